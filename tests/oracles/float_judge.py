"""The cost model once more, in plain floats and straight from its formulas.

Shares no line with `hetopt.costs` or with the judge but what settings a choice means:
it reads the instance's own fields, rounds nothing, and returns seconds and bytes.
"""

from functools import cached_property
from statistics import median_low
from typing import Any

import float_ports
from calibrated_floats import FloatTimes

from hetopt.costs import under
from hetopt.plans import Pipeline, Replica, Stage, TrainingPlan
from hetopt.schema import Instance

MIXERS = ("mamba", "mamba1", "linear", "convolution")


def attending(parts: list[str]) -> int:
    """How many parts of a layer have scores."""
    return sum(part in ("attention", "window") for part in parts)


class FloatJudge:
    """Times in seconds and memory in bytes of plans on one instance."""

    def __init__(
        self, instance: Instance, recompute: str | None = None, zero: int | None = None
    ) -> None:
        """Keep the symbols of the cost model at hand, under a plan's own choices."""
        self.costs = under(instance, recompute, zero).workload.costs
        self.instance, self.model = instance, instance.model
        self.others = {self.costs.recompute: self}
        self.cluster = instance.planned_cluster
        self.S, self.H = instance.workload.sequence_length, instance.model.hidden
        self.full = self.costs.recompute == "full"
        self.nodes = {node.name: node for node in self.cluster.nodes}
        inter = self.cluster.inter
        self.between = inter.latency_us, inter.gbytes_per_s or 0
        self.links = {
            frozenset((pair.first, pair.second)): (pair.latency_us, pair.gbytes_per_s)
            for pair in inter.pairs
        }
        self.runs = self.costs.interleave
        # Bytes of a parameter, and of an element on links and in activations.
        states = {"fp32": (4, 4, 8), "bf16": (2, 2, 4), "bf16_mixed": (2, 2, 12)}
        states["fp16_mixed"] = states["bf16_mixed"]
        states["bf16_fp32_gradients"] = (2, 4, 12)
        each = self.costs.bytes_per_parameter
        plain = (2, 2, each - 4) if each > 4 else (each, 0, 0)
        told = self.costs.precision or ""
        self.states = states.get(told, plain)
        self.usual = states.get(told)
        self.ends = self.states
        if told:
            wide = 2 if told == "bf16" else 4
            adam = 2 * wide
            mine = {"adamw": adam, "adafactor": 0, "adamw_8bit": 2 + 8 / 256}
            kept = mine.get(self.costs.optimiser, wide)
            weight, gradient, whole = self.states
            self.states = (weight, gradient, whole - adam + kept)
            if self.costs.optimiser != "muon":
                self.ends = self.states
        self.moved = self.states
        if self.costs.offload:
            self.states, self.ends = (*self.states[:2], 0), (*self.ends[:2], 0)
        # Of frozen layers, and of a frozen embedding or head.
        self.narrow, self.wide = self.states, self.ends
        if self.costs.lora:
            bits = {4: 4.126953125, 8: 8, None: 8 * self.states[0]}
            self.narrow = (bits[self.costs.lora.weight_bits] / 8, 0, 0)
            self.wide = (self.states[0], 0, 0)
        self.e = 4 if self.costs.precision == "fp32" else 2
        self.g = self.states[1] if self.costs.precision else 2

    @cached_property
    def calibrated(self) -> FloatTimes:
        """Times of layers where they are calibrated, by this judge's own rule."""
        chosen = self.instance.with_workload(costs=self.costs)
        return FloatTimes(chosen, self.costs.recompute)

    def under(self, rule: str | None) -> "FloatJudge":
        """The judge of a stage that recomputes by a rule of its own."""
        rule = rule or self.costs.recompute
        if rule not in self.others:
            self.others[rule] = FloatJudge(self.instance, rule, self.costs.zero)
        return self.others[rule]

    def link(self, a: str, b: str) -> tuple[float, float]:
        """(alpha in s, beta in bytes/s) between GPUs of two nodes."""
        if a == b:
            node = self.nodes[a]
            return node.intra_latency_us * 1e-6, (node.intra_gbytes_per_s or 0) * 1e9
        latency_us, gbytes_per_s = self.links.get(frozenset((a, b)), self.between)
        return latency_us * 1e-6, gbytes_per_s * 1e9

    def flops(self, node: str) -> float:
        """F_g."""
        gpu = self.cluster.gpus[self.nodes[node].gpu]
        return gpu.peak_tflops * 1e12 * gpu.efficiency

    def layer(self, layer: int, node: str, t: int, b: int) -> float:
        """Forward and backward of one layer, by formula or as measured."""
        if self.costs.profile:
            return 1e-6 * sum(row.layer_us[layer] for row in self.rows(node, t, b))
        if self.costs.calibration:
            return self.calibrated.layer(layer, node, t, b)
        p, s, parts = self.model.active_parameters[layer], self.S, self.parts(layer)
        c, rounds = (4, 6) if self.full else (3, 4)
        scores = 4 * b * self.pairs(parts) * self.widths(layer)[0]
        if self.model.indexer and {"attention", "window"} & {*parts}:
            x = self.model.indexer
            scores += 2 * b * s * s * x.heads * x.head_dim
        frozen = c - 1 if self.costs.lora else c  # no gradients of frozen weights
        flops = frozen * 2 * p * b * s + c * scores
        flops += c * 2 * b * s * sum(self.lora(layer, self.model.active_experts))
        if self.costs.recompute == "selective":
            flops += scores
        flops += c * b * s * sum(map(self.scanned, parts))
        if layer >= self.model.layers - self.model.mtp_layers:
            v = self.model.vocabulary if self.costs.head == "include" else 0
            flops += c * 2 * b * s * v * self.H
        time = flops / (t * self.flops(node))
        if t > 1:
            alpha, beta = self.link(node, node)
            each = alpha + self.e * b * s * self.H / (t * beta)
            time += len(parts) * rounds * (t - 1) * each
        return time

    def scanned(self, part: str) -> int:
        """FLOPs of a token's scan, forward."""
        if part == "mamba":
            x = self.model.mamba
            return 7 * x.heads * x.head_dim * x.state
        if part == "mamba1":
            return 7 * self.model.mamba1.width * self.model.mamba1.state
        if part == "linear":
            y = self.model.linear
            each = 5 if y.decay == "fixed" else 7
            return each * y.value_heads * y.value_dim * y.key_dim
        return 2 * self.model.convolution.width if part == "convolution" else 0

    def shape(self, layer: int) -> dict[str, Any]:
        """The model's own fields as a layer has them."""
        found = {name: getattr(self.model, name) for name in ("heads", "kv_heads")}
        found |= {"head_dim": self.model.head_dim, "keys": self.model.kv_products}
        found["intermediate"] = self.model.intermediate
        if listed := self.model.layer_shapes:
            own = listed[layer % len(listed)].model_dump(exclude_none=True)
            if "kv_products" in own:
                own["keys"] = own["kv_products"]
            found |= own
        return found

    def gate(self, layer: int) -> int:
        """Width of the gate of attention's output."""
        own = self.shape(layer)
        value = self.model.value_dim or own["head_dim"] or self.H // own["heads"]
        return own["heads"] * value if self.model.gated_attention else 0

    def lora(self, layer: int, experts: int | None) -> list[int]:
        """Parameters of a layer's adapters, matrix by matrix."""
        lora, h = self.costs.lora, self.H
        if lora is None:
            return []
        q, k = (int(width) for width in self.widths(layer))
        found = [h + q, h + k, h + k, q + h]
        if lora.beside == "all":
            widths = [self.model.intermediate or 4 * h]
            if "experts" in self.parts(layer):
                many = (experts or 0) + self.model.shared_experts
                widths = [self.model.expert_intermediate or widths[0]] * many
            found += [h + x for x in widths] * (3 if self.model.gated else 2)
        return [lora.rank * both for both in found]

    def parts(self, layer: int) -> list[str]:
        """What a layer is made of, by the fields that say so."""
        model = self.model
        if model.layer_kinds:
            return model.layer_kinds[layer % len(model.layer_kinds)].split("+")
        sparse = model.experts and layer >= model.dense_layers
        return ["attention", "experts" if sparse else "dense"]

    def pairs(self, parts: list[str]) -> float:
        """Scores of a head: all, or twice the causal half that a token sees."""
        s, model = self.S, self.model
        chosen = model.indexer.chosen if model.indexer else s
        total = 0
        for part in parts:
            if part not in ("attention", "window"):
                continue
            w = min(model.window, chosen, s) if part == "window" else min(chosen, s)
            if not self.costs.flash:
                total += s * s
            elif model.chunked and part == "window":
                total += sum(min(w, s - x) ** 2 for x in range(0, s, w))
            else:
                seen = [min(i, w) for i in range(1, s + 1)]  # of each, itself too
                total += 2 * sum(seen) - w
        return total

    def widths(self, layer: int) -> tuple[float, float]:
        """Of queries and of keys; the mean of keys and values."""
        model, own = self.model, self.shape(layer)
        if x := model.latent:
            width = model.heads * (x.plain + x.rotary + x.value_dim) // 2
            return width, width
        each = own["head_dim"] or self.H // own["heads"]
        width = own["heads"] * (each + (model.value_dim or each)) // 2
        return width, width * (own["kv_heads"] or own["heads"]) / own["heads"]

    def inner(self, part: str, layer: int) -> int:
        """Width of an MLP, or of the experts of a token where kinds tell them."""
        model, dense = self.model, self.shape(layer)["intermediate"] or 4 * self.H
        if part == "experts" and model.layer_kinds:
            used = model.active_experts + model.shared_experts
            return used * (model.expert_intermediate or dense)
        return dense

    def rows(self, node: str, t: int, b: int) -> list[Any]:
        """Measurements that make up a size: at itself, or at its binary digits."""
        gpu = self.nodes[node].gpu
        at = {
            row.micro_batch: row
            for row in self.costs.profile
            if row.gpu == gpu and row.tensor_parallel == t
        }
        if b in at:
            return [at[b]]
        return [at[1 << i] for i, bit in enumerate(reversed(f"{b:b}")) if bit == "1"]

    def rate(self, node: str) -> float:
        """Bytes/s of a GPU's memory; 0 where it is not given."""
        gpu = self.cluster.gpus[self.nodes[node].gpu]
        return (gpu.memory_gbytes_per_s or 0) * 1e9

    def head(self, node: str, t: int, b: int) -> float:
        """The head, where it counts: c = 3, no attention."""
        if self.costs.head == "omit":
            return 0.0
        if self.costs.calibration:
            return self.calibrated.head(node, t, b)
        p, passes = self.model.vocabulary * self.H, 2 if self.costs.lora else 3
        return passes * 2 * p * b * self.S / (t * self.flops(node))

    def hop(self, x: tuple[str, int], y: tuple[str, int], b: int) -> float:
        """One micro-batch between (node, degree) and the next, both directions."""
        # Parts of a group, each of which has its own tokens.
        parts = self.costs.context_parallel
        size, t = self.e * b * self.S * self.H, y[1] // parts
        total = 0.0
        for a, c in ((x, y), (y, x)):
            alpha, beta = self.link(a[0], c[0])
            if x[0] != y[0]:
                reach = []
                for node, gpus in (a, c):
                    n = self.nodes[node].adapters
                    reach.append(min(gpus, n) / n if n else 1.0)
                beta *= min(reach)
            total += alpha + size / beta
        if t > 1:
            alpha, beta = self.link(y[0], y[0])
            total += 2 * (t - 1) * (alpha + size / (parts * t * beta))
        factor, other = self.costs.hop_factor, self.costs.interleaved_hop_factor
        return total * (factor if other is None or self.runs == 1 else other)

    def ring(self, a: str, b: str, members: dict[str, int], t: int) -> float:
        """Bytes/s that one of `t` rings has between two nodes, its slower direction."""
        rate = min(self.link(a, b)[1], self.link(b, a)[1])
        if a == b:
            return rate
        shares = [1.0]
        for end in (a, b):
            if n := self.nodes[end].adapters:
                shares.append(min(n, t * members[end]) / n / t)
        return rate * min(shares)

    def sync(self, parameters: float, holders: list[tuple[str, int]]) -> float:
        """Gradients of `parameters` among replicas (node, degree), one by one."""
        if self.costs.zero_groups > 1:
            return self.grouped(parameters, holders)
        return self.ring_of(parameters, holders)

    def ring_of(self, parameters: float, holders: list[tuple[str, int]]) -> float:
        """The same of all replicas in one ring."""
        c = self.costs.context_parallel  # so many GPUs of a group hold the same
        holders = [(node, t // c) for node, t in holders for _ in range(c)]
        n = len(holders)
        if n == 1:
            return 0.0
        t_min, passes = min(t for _, t in holders), 3 if self.costs.zero == 3 else 2
        pairs = [(i, j) for i in range(n) for j in range(n) if i != j]
        members: dict[str, int] = {}
        for node, _ in holders:
            members[node] = members.get(node, 0) + 1

        def rate(i: int, j: int) -> float:
            return self.ring(holders[i][0], holders[j][0], members, t_min)

        if self.costs.sync == "bottleneck":
            slowest = min(rate(i, j) for i, j in pairs)
            return passes * (n - 1) / n * (self.g * parameters / t_min) / slowest
        sums = [0.0] * n
        for i, j in pairs:
            alpha = self.link(holders[i][0], holders[j][0])[0]
            sums[i] += alpha + self.g * parameters / (t_min * n * rate(i, j))
        return passes * max(sums)

    def grouped(self, parameters: float, holders: list[tuple[str, int]]) -> float:
        """In groups that each divide states: in a group, then a ring for each place."""
        r, n = self.costs.zero_groups, len(holders)
        m, t = max(1, n // r), min(t for _, t in holders)
        names, size = [node for node, _ in holders], self.g * parameters / t
        inside = [names[i : i + m] for i in range(0, n, m)]
        across = [[names[i] for i in range(k, n, m)] for k in range(m)]
        total = 0.0
        for rings, own, passes in (
            (inside, size, 3 if self.costs.zero == 3 else 2),
            (across, size / m, 2),
        ):
            many = {a: t * sum(a in ring for ring in rings) for a in names}
            times = [self.one_ring(ring, many, own) for ring in rings]
            total += passes * max(times)
        return total

    def one_ring(self, ring: list[str], many: dict[str, int], size: float) -> float:
        """A pass over `size` bytes, where so `many` rings run at once on each node."""

        def rate(a: str, b: str) -> float:
            full = min(self.link(a, b)[1], self.link(b, a)[1])
            shares = [1.0]
            for end in (a, b):
                if a != b and (there := self.nodes[end].adapters):
                    reached = min(there, many[end] * ring.count(end))
                    shares.append(reached / there / many[end])
            return full * min(shares)

        n = len(ring)
        pairs = [(i, j) for i in range(n) for j in range(n) if i != j]
        if not pairs:
            return 0.0
        if self.costs.sync == "bottleneck":
            return (n - 1) / n * size / min(rate(ring[i], ring[j]) for i, j in pairs)
        sums = [0.0] * n
        for i, j in pairs:
            sums[i] += self.link(ring[i], ring[j])[0]
            sums[i] += size / n / rate(ring[i], ring[j])
        return max(sums)

    def held(self, micro_batches: int, stages: int, j: int) -> float:
        """Micro-batches in flight."""
        if self.costs.in_flight != "1f1b":
            return 1 if self.costs.in_flight == "one" else micro_batches
        v = self.runs
        ahead = 2 * (stages - j - 1) + (v - 1) * stages if v > 1 else stages - j - 1
        return min(micro_batches * v, ahead + 1) / v

    def parameter(self, replicas: int, states: Any) -> float:
        """Bytes of a parameter with such states in each of so many replicas."""
        split = states[3 - self.costs.zero :]
        replicas = max(1, replicas // self.costs.zero_groups)
        return sum(states) - sum(split) + sum(split) / replicas

    def trained(self, key: Any) -> int:
        """Parameters of a layer, embedding or head that have gradients."""
        if self.costs.lora:
            own = isinstance(key, int)
            return sum(self.lora(key, self.model.experts)) if own else 0
        if isinstance(key, int):
            return self.model.parameters[key]
        return self.model.vocabulary * self.H

    def saved(self, layer: int, t: int, b: int) -> tuple[float, float, float]:
        """Bytes that a layer keeps: whole, split, scores."""
        e, h, tokens, parts = self.e, self.H, b * self.S, self.parts(layer)
        group = t if self.costs.sequence_parallel else 1
        whole = (4 * e + 2) * h * len(parts) / 2
        whole = whole / (group if self.costs.recompute == "selective" else 1)
        whole += 4 * e * h if layer >= self.model.layers - self.model.mtp_layers else 0
        split = e * sum(self.kept(part) for part in parts)
        heads = self.shape(layer)["heads"]
        scores = attending(parts) * heads * self.S * (2 * e + 1)
        return (
            tokens * whole,
            tokens * split / t,
            0 if self.costs.flash else tokens * scores / t,
        )

    def kept(self, part: str) -> int:
        """Elements of a token that a part keeps inside."""
        model = self.model
        if part == "mamba":
            x = model.mamba
            return 5 * x.heads * x.head_dim + 4 * x.groups * x.state
        if part == "mamba1":
            y = model.mamba1
            return 6 * y.width + y.rank + 2 * y.state
        if part == "linear":
            z = model.linear
            values = z.value_heads * z.value_dim
            mixed = 2 * z.key_heads * z.key_dim + values
            return mixed * (2 if z.convolution else 1) + 3 * values
        if part == "convolution":
            return 6 * model.convolution.width
        return (4 if part in ("attention", "window") else 8) * self.H

    def activations(self, layers: range, t: int, b: int, held: float) -> float:
        """Bytes of activations of a stage."""
        costs, s, h, e = self.costs, self.S, self.H, self.e
        border = e * b * s * h
        if costs.activations == "checkpoint":
            return len(layers) * border
        border /= t if costs.sequence_parallel else 1
        kept, once = 0.0, [0.0]
        for layer in layers:
            parts = self.saved(layer, t, b)
            if costs.recompute == "none":
                kept, again = kept + sum(parts), 0.0
            elif costs.recompute == "selective":
                kept, again = kept + parts[0] + parts[1], parts[2]
            else:
                kept, again = kept + border, sum(parts)
            once.append(again)
        return held * kept + max(once)

    def measured(self, layers: range, node: str, t: int, b: int, held: float) -> float:
        """Bytes of a run of layers, from a profile that weighs them."""
        rows, total = self.rows(node, t, b), 0.0
        if all(row.activation_mib is not None for row in rows):
            for x in layers:
                own = max(row.layer_mib[x] - row.activation_mib[x] for row in rows)
                total += own + held * sum(row.activation_mib[x] for row in rows)
            return total * 2**20
        total = 2.0**20 * sum(row.layer_mib[x] for row in rows for x in layers)
        if held <= 1:
            return total
        more = self.activations(layers, t, b, held)
        return total + more - self.activations(layers, t, b, 1)

    def memory(
        self,
        layers: range,
        t: int,
        b: int,
        micro_batches: int,
        stages: int,
        j: int,
        holders: list[int] | None = None,
        node: str | None = None,
    ) -> float:
        """Bytes on one GPU of stage `j` of `stages`; `holders` for each layer.

        `node` is needed where layers were weighed.
        """
        costs, s, h = self.costs, self.S, self.H
        many = holders or [1] * len(self.model.parameters)
        ends = (j == 0) + (j == stages - 1)
        if ends == 2 and self.model.tied_embeddings:
            ends = 1
        tables = ends * self.model.vocabulary * h * (costs.head == "include")
        here = many[layers[0] if j == 0 else layers[-1]]
        total: float = costs.reserve_mib * 2**20
        held = self.held(micro_batches, stages, j)
        if any(row.layer_mib for row in costs.profile):
            assert node is not None
            total += self.measured(layers, node, t, b, held)
        else:
            c = self.costs.context_parallel
            for x in layers:
                own = self.model.parameters[x]
                total += self.parameter(c * many[x], self.narrow) * own * c / t
                if self.costs.lora:
                    more = self.parameter(c * many[x], self.states) * self.trained(x)
                    total += more * c / t
            if costs.activations == "calibrated":
                assert node is not None
                ends_ = [j == 0, j == stages - 1]
                passes, once = self.calibrated.weight(layers, node, t, b, held, ends_)
                counts = [(self.model.parameters[x], many[x]) for x in layers]
                counts.append((tables, here))
                one = (0, 0, 1)  # a byte that replicas divide under any ZeRO
                parted = sum(p * c / t * self.parameter(c * n, one) for p, n in counts)
                total += max(passes, self.calibrated.copied(parted)) + once
            else:
                total += self.activations(layers, t, b, held)
        if costs.head == "include":
            c, v = costs.context_parallel, self.model.vocabulary
            total += tables * self.parameter(c * here, self.wide) * c / t
            if j == stages - 1 and costs.activations != "calibrated":
                each = self.e + (0 if costs.fused_loss else 4)
                each += 4 if costs.logit_gradients else 0
                total += each * b * s * v / t
        return total

    # --- whole plans -----------------------------------------------------------

    def iteration(self, plan: TrainingPlan) -> float:
        """Seconds of one iteration."""
        if self.costs.calibration:
            for rule in self.instance.workload.recomputes:
                self.under(rule).calibrated.gpus = plan.gpu_count
        slowest = max(self.pipeline(p) for p in plan.pipelines)
        slowest = max(slowest, float_ports.passes(self, plan))
        sync = self.synchronisation(plan)
        alone = all(len(p.stages) == 1 for p in plan.pipelines)
        if self.costs.zero == 3 and self.costs.gathers == "micro_batch" and alone:
            sync *= max(p.micro_batches for p in plan.pipelines)
        whole = self.costs.pipeline_factor * slowest + self.costs.sync_factor * sync
        over = 1e-6 * self.costs.iteration_overhead_us
        if self.costs.calibration and self.costs.sync_factor:  # sent, hidden or not
            sent = (self.costs.gradient_bytes + 2 * (self.costs.sync_passes - 1)) / (
                self.costs.gradient_bytes * self.costs.sync_passes
            )
            whole = max(whole, int(1000 * sent) / 1000 * sync)
        return whole + self.tied(plan) + self.update(plan) + over

    def tied(self, plan: TrainingPlan) -> float:
        """Seconds of the all-reduce of tied embeddings where it takes longest."""
        if not (self.costs.tied_sync and self.model.tied_embeddings):
            return 0.0
        if self.costs.lora:
            return 0.0
        times = [0.0]
        for pipeline in plan.pipelines:
            if len(pipeline.stages) > 1:
                ends = [pipeline.stages[0], pipeline.stages[-1]]
                both = [(r.node, len(r.gpus)) for end in ends for r in end.replicas]
                times.append(self.ring_of(self.model.vocabulary * self.H, both))
        return max(*times, float_ports.ties(self, plan))

    def roundings(self, plan: TrainingPlan) -> float:
        """Microseconds by which whole numbers can differ: each term is rounded up."""
        costs, layers = self.costs, len(self.model.parameters)
        waves = max(p.micro_batches + len(p.stages) for p in plan.pipelines)
        slots = waves * (layers + 2) * (1 + 2 * self.runs) + layers + 2
        often = max(p.micro_batches for p in plan.pipelines)  # sums of gradients
        syncs = (often if costs.gathers == "micro_batch" else 1) * (2 * layers + 4)
        return 6 + costs.pipeline_factor * slots + costs.sync_factor * syncs

    def holders(self, plan: TrainingPlan) -> list[int]:
        """Replicas of each layer."""
        return [
            sum(
                len(stage.replicas)
                for pipeline in plan.pipelines
                for stage in pipeline.stages
                if x in range(*stage.layers)
            )
            for x in range(self.model.layers)
        ]

    def update(self, plan: TrainingPlan) -> float:
        """Seconds of the optimiser where it takes longest."""
        many, times = self.holders(plan), [0.0]
        for pipeline in plan.pipelines:
            for j, stage in enumerate(pipeline.stages):
                last = j == len(pipeline.stages) - 1
                held = {x: self.trained(x) for x in range(*stage.layers)}
                ends = (j == 0) + last
                if ends == 2 and self.model.tied_embeddings:
                    ends = 1
                if self.costs.head == "include":
                    end = min(held) if j == 0 else max(held)
                    held[end] += ends * self.trained("head")
                for r in stage.replicas:
                    c = self.costs.context_parallel
                    in_one = [max(1, c * n // self.costs.zero_groups) for n in many]
                    split = [n if self.costs.zero else 1 for n in in_one]
                    size, time = dict(held), 0.0
                    if each := self.updates(r):
                        time = 1e-6 * sum(each[x] / split[x] for x in held)
                        for x in held:
                            size[x] -= self.trained(x)
                    own = sum(p / split[x] for x, p in size.items())
                    time += self.one_update(r.node, plan) * own * c / len(r.gpus)
                    times.append(time)
        return max(times)

    def one_update(self, node: str, plan: TrainingPlan) -> float:
        """Seconds of the update of one parameter on a GPU of a node."""

        def passed(states: Any) -> float:
            return 5 * states[1] + 2 * (states[0] + states[2])

        moved, gpu = passed(self.moved), self.cluster.gpus[self.nodes[node].gpu]
        if self.costs.offload:
            over = (self.moved[0] + self.moved[1]) / (1e9 * gpu.host_gbytes_per_s)
            shared = 1e9 * self.costs.offload.memory_gbytes_per_s
            used = sum(len(r.gpus) for r in plan.replicas() if r.node == node)
            return over + moved * used / shared
        if self.costs.calibration:
            seen = 40 * self.costs.calibration.constants.get("update", 0)
            if not seen:
                return 0.0
            moved = seen * (moved / passed(self.usual) if self.usual else 1)
        if not self.rate(node):
            return 0.0
        more = 0.0
        if self.costs.optimiser == "muon":
            wide = self.model.intermediate or 4 * self.H
            if self.model.experts:
                wide = self.model.expert_intermediate or wide
            low, high = min(wide, self.H), max(wide, self.H)
            more = 5 * (4 * low + 2 * low * low / high) / self.flops(node)
        return moved / self.rate(node) + more

    def updates(self, replica: Replica) -> list[float] | None:
        """Measured update of every layer: the middle one of the sizes measured."""
        key = (self.nodes[replica.node].gpu, len(replica.gpus))
        told = [
            row.update_us
            for row in self.costs.profile
            if (row.gpu, row.tensor_parallel) == key and row.update_us is not None
        ]
        return [median_low(times) for times in zip(*told, strict=True)] or None

    def stage(self, pipeline: Pipeline, j: int) -> float:
        """Compute time of a stage for one micro-batch: its slowest replica."""
        stage, last = pipeline.stages[j], j == len(pipeline.stages) - 1
        mine = self.under(stage.recompute)
        return max(mine._replica(stage, r, last) for r in stage.replicas)

    def _replica(self, stage: Stage, replica: Replica, last: bool) -> float:
        at = (replica.gpus[0].rpartition(":")[0], len(replica.gpus), replica.samples)
        time = sum(self.layer(x, *at) for x in range(*stage.layers))
        return time + (self.head(*at) if last else 0.0)

    def hops(self, pipeline: Pipeline) -> list[float]:
        """What every stage sends, each border as often as there are runs of layers."""
        times, count = [], len(pipeline.stages)
        for j, stage in enumerate(pipeline.stages):
            times.append(0.0)
            crossings = self.runs if j + 1 < count else self.runs - 1
            if crossings and count > 1:
                b = max(r.samples for r in stage.replicas)
                times[j] = crossings * min(
                    self.hop((x.node, len(x.gpus)), (y.node, len(y.gpus)), b)
                    for x in stage.replicas
                    for y in pipeline.stages[(j + 1) % count].replicas
                )
        return times

    def pipeline(self, pipeline: Pipeline) -> float:
        """Critical path, or slot by slot in lockstep."""
        hops, n = self.hops(pipeline), pipeline.micro_batches
        taus = [self.stage(pipeline, j) + hop for j, hop in enumerate(hops)]
        whole = sum(taus)
        if self.costs.hops == "both":
            taus = [tau + hops[j - 1] for j, tau in enumerate(taus)]
        if self.costs.pipeline == "critical":
            return n * max(taus) + (whole - max(taus)) / self.runs
        total = 0.0
        for slot in range(len(taus) + n - 1):
            # Stage j works on micro-batch slot - j.
            total += max(tau for j, tau in enumerate(taus) if 0 <= slot - j < n)
        return total

    def synchronisation(self, plan: TrainingPlan) -> float:
        """The slowest stage's gradients, less what backward passes before it hide."""
        holders: dict[Any, list[tuple[str, int]]] = {}
        for pipeline in plan.pipelines:
            for j, stage in enumerate(pipeline.stages):
                for key in self._tensors(pipeline, j):
                    for r in stage.replicas:
                        holders.setdefault(key, []).append((r.node, len(r.gpus)))
        slowest, idle = 0.0, dict[str, float]()
        for pipeline in plan.pipelines:
            hidden = 0.0
            for j in range(len(pipeline.stages)):
                for r in pipeline.stages[j].replicas:
                    idle[r.node] = max(idle.get(r.node, 0.0), hidden)
                keys = self._tensors(pipeline, j)
                own = sum(self.sync(self._size(key), holders[key]) for key in keys)
                slowest = max(slowest, own - hidden)
                if self.costs.sync_overlap == "backward":
                    hidden += self._backward(pipeline, j)
        return max(slowest, float_ports.sums(self, holders, idle))

    def _tensors(self, pipeline: Pipeline, j: int) -> list[Any]:
        """What stage `j` holds and synchronises: layers, embedding, head."""
        keys: list[Any] = list(range(*pipeline.stages[j].layers))
        sent = not self.costs.lora or self.costs.zero == 3
        if self.costs.head == "include" and sent:
            keys += ["embedding"] if j == 0 else []
            keys += ["head"] if j == len(pipeline.stages) - 1 else []
        return keys

    def _size(self, key: Any) -> float:
        if not (self.costs.lora and self.costs.zero == 3):
            return self.trained(key)
        # Frozen weights are gathered twice, where gradients have three passes.
        own, weight = self.model.vocabulary * self.H, self.wide[0]
        if isinstance(key, int):
            own, weight = self.model.parameters[key], self.narrow[0]
        return self.trained(key) + 2 * weight * own / (3 * self.g)

    def _backward(self, pipeline: Pipeline, j: int) -> float:
        stage, last = pipeline.stages[j], j == len(pipeline.stages) - 1
        mine = self.under(stage.recompute)
        times = []
        for r in stage.replicas:
            whole = mine._behind(stage, r)
            head = self.head(r.node, len(r.gpus), r.samples) if last else 0.0
            times.append(whole + 2 / 3 * head)
        return max(times)

    def _behind(self, stage: Stage, replica: Replica) -> float:
        """Backward passes of a replica's layers."""
        at = (replica.node, len(replica.gpus), replica.samples)
        span = range(*stage.layers)
        return sum(self.behind(x, *at) for x in span)

    def behind(self, layer: int, node: str, t: int, b: int) -> float:
        """The backward pass of a layer: measured, or a share of both."""
        at = (node, t, b)
        rows = self.rows(*at) if self.costs.profile else [None]
        if all(row and row.backward_us is not None for row in rows):
            return 1e-6 * sum(row.backward_us[layer] for row in rows)
        if self.costs.calibration:
            return self.calibrated.layer(layer, *at, behind=True)
        share = 3 / 4 if self.full else 2 / 3
        if self.costs.lora:
            share = 2 / 3 if self.full else 1 / 2
        return share * self.layer(layer, *at)
