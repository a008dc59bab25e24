"""Calibrated times once more, in floats: whole runs in place of parts of layers.

`hetopt.costs.formulas` times the mean layer of a symmetric run; here a run has layers
of one kind alone, and the tables' own reading of an instance is not used.
"""

from dataclasses import replace
from typing import Any

from hetopt.costs.constants import Table
from hetopt.costs.formulas import activations, kernels, memory
from hetopt.costs.formulas.architecture import Architecture, Indexer, Mixer, mamba_2
from hetopt.costs.formulas.layout import Layout
from hetopt.costs.formulas.machine import Machine
from hetopt.costs.formulas.step import layer_times
from hetopt.schema import Instance
from hetopt.schema.layers import Vectors


class FloatTimes:
    """Seconds of layers and of the head of one instance, under one rule."""

    def __init__(self, instance: Instance, rule: str) -> None:
        """`rule` is how layers are recomputed."""
        self.instance, self.rule = instance, rule
        self.model, self.costs = instance.model, instance.workload.costs
        self.cluster = instance.planned_cluster
        assert self.costs.calibration is not None
        self.calibration = self.costs.calibration
        self.constant = Table(self.calibration.constants)
        self.gpus = self.cluster.gpu_count  # of the plan

    def shape(self, layer: int) -> Architecture:
        """A model of two layers like this one."""
        m = self.model
        own: dict[str, Any] = {}
        if m.layer_shapes:
            shape = m.layer_shapes[layer % len(m.layer_shapes)]
            own = shape.model_dump(exclude_none=True)
        heads = own.get("heads", m.heads)
        width_of_head = own.get("head_dim", m.head_dim) or m.hidden // heads
        inner = own.get("intermediate", m.intermediate) or 4 * m.hidden
        sparse = bool(m.experts) and layer >= m.dense_layers
        width = m.expert_intermediate or inner
        parts = ["attention", "experts" if sparse else "dense"]
        if m.layer_kinds:
            parts = m.layer_kinds[layer % len(m.layer_kinds)].split("+")
        if layer >= m.layers - m.mtp_layers:
            parts.append("further")
        return Architecture(
            layers=(tuple(parts),) * 2,
            hidden=m.hidden,
            heads=heads,
            kv_heads=own.get("kv_heads", m.kv_heads) or heads,
            head_dim=width_of_head,
            intermediate=inner,
            gated=m.gated,
            vocabulary=m.vocabulary,
            experts=m.experts or 0,
            experts_per_token=m.active_experts or 0,
            expert_intermediate=width,
            shared_intermediate=m.shared_experts * width,
            relu=m.activation == "relu",
            latent=m.latent,
            mixers=self.mixers(),
            indexer=self.indexer(),
            value_dim=m.value_dim or 0,
            gate=heads * (m.value_dim or width_of_head) * m.gated_attention,
            kv_products=own.get("kv_products", m.kv_products),
            expert_hidden=m.expert_hidden or 0,
            window=m.window if "window" in parts else None,
            chunked=m.chunked,
        )

    def mixers(self) -> dict[str, Mixer]:
        """Mixers without scores, product by product."""
        m, found, h = self.model, {}, self.model.hidden
        if m.mamba:
            found["mamba"] = mamba_2(h, *[*dict(m.mamba).values()][:4])
        if x := m.mamba1:
            products = (
                (2 * x.width, h, "n"),
                (x.rank + 2 * x.state, x.width, "k"),
                (x.width, x.rank, "n"),
                (h, x.width, "k"),
            )
            kept = 6 * x.width + x.rank + 2 * x.state
            found["mamba1"] = Mixer(products, x.width, kept, 7 * x.width * x.state)
        if y := m.linear:
            keys, values = y.key_heads * y.key_dim, y.value_heads * y.value_dim
            first = [(2 * keys + values, h, "n")]
            if y.decay == "head":
                first += [(2 * y.value_heads, h, "n")]
            if y.decay == "channel":
                first += [(y.rank, h, "")] * (y.rank > 0)
                first += [(keys, y.rank or h, "n"), (y.value_heads, h, "")]
            first += [(y.rank, h, "")] * (y.rank > 0)
            first += [(values, y.rank or h, "n"), (h, values, "k")]
            kept = (1 + (y.convolution > 0)) * (2 * keys + values) + 3 * values
            scan = (5 if y.decay == "fixed" else 7) * values * y.key_dim
            found["linear"] = Mixer(tuple(first), values, kept, scan)
        if z := m.convolution:
            products = ((3 * z.width, h, "n"), (h, z.width, "k"))
            found["convolution"] = Mixer(products, z.width, 6 * z.width, 2 * z.width)
        return found

    def indexer(self) -> Indexer | None:
        """What chooses tokens, product by product."""
        m, x = self.model, self.model.indexer
        if x is None:
            return None
        low = m.latent.query_rank if m.latent else 0
        wide = x.heads * x.head_dim
        products = (
            (wide, low or m.hidden, ""),
            (x.head_dim, m.hidden, ""),
            (x.heads, m.hidden, ""),
        )
        return Indexer(x.heads, x.head_dim, x.chosen, products)

    def machine(self, node: str) -> Machine:
        """One node alone."""
        spec = self.cluster.node[node]
        gpu = self.cluster.gpus[spec.gpu]
        assert gpu.card
        assert gpu.generation
        assert gpu.peaks
        assert gpu.memory_gbytes_per_s
        flops = {name: 1e12 * tflops for name, tflops in gpu.peaks.items()}
        link = 1e9 * (spec.intra_gbytes_per_s or 1.0)
        many = spec.count
        return Machine(
            gpu.card, gpu.generation, flops, 1e9 * gpu.memory_gbytes_per_s,
            gpu.memory_gib, many, many, link, many, link,
            site=self.calibration.site or "",
        )  # fmt: skip

    def run(self, node: str, t: int, b: int, rule: str) -> Layout:
        """The run that the group is one of."""
        gpu = self.cluster.gpus[self.cluster.node[node].gpu]
        said: Any = self.calibration.kernel
        chosen = self.calibration.framework in (
            *("torch", "executor", "litgpt", "trainer", "unsloth"),
        )
        if said == "none" or not (chosen or "bf16" in (gpu.peaks or {})):
            said = None
        titan = {"selective": "ops"} if "titan" in self.calibration.framework else {}
        return Layout(
            self.calibration.framework, self.calibration.style,
            self.calibration.precision, self.instance.workload.sequence_length, b, 1,
            tp=t // self.costs.context_parallel, cp=self.costs.context_parallel,
            ep=self.costs.expert_parallel, recompute=titan.get(rule, rule), kernel=said,
            split_sequence=self.costs.sequence_parallel, dropout=self.model.dropout,
            states={"fp32": "fp32", "bf16": "16bit"}.get(self.costs.precision, "mixed"),
            fused_loss=self.costs.fused_loss
            or self.calibration.framework in ("megatron", "llm-foundry")
            or bool(titan and self.calibration.style == "compiled"),
            sharding={"deepspeed": "deepspeed"}.get(self.calibration.framework, "fsdp"),
            accumulate_fp32=self.fp32_gradients, zero=self.costs.zero,
            lora=self.costs.lora is not None,
            rank=self.costs.lora.rank if self.costs.lora else 0,
            adapted=("attention",)
            if self.costs.lora and self.costs.lora.beside == "attention"
            else ("attention", "mlp"),
            frozen_bits=self.costs.lora.weight_bits if self.costs.lora else None,
            expert_biases=(self.model.vectors or Vectors()).expert > 0,
            chunked_loss=self.calibration.loss == "chunked",
            overlap_tp="tp" in self.calibration.overlap,
            flexible=self.calibration.dispatcher == "flexible",
        )  # fmt: skip

    @property
    def fp32_gradients(self) -> bool:
        """Whether gradients have 32 bits."""
        return self.costs.precision in ("fp32", "bf16_fp32_gradients")

    def weight(
        self, layers: range, node: str, t: int, b: int, held: float, ends: list[bool]
    ) -> tuple[float, float]:
        """Bytes of passes, the loss among them; of what ZeRO brings together."""
        first, last = ends
        run = replace(self.run(node, t, b, self.rule), pp=1 if all(ends) else 2)
        c, m = self.constant, self.model
        each = []
        for x in layers:
            shape = self.shape(x)
            each.append(activations.of_stage(c, shape, run, shape.layers[:1]))
        shape = self.shape(layers[0])
        passed = memory.passed_on(shape, run)
        total = held * (sum(x.held for x in each) + passed)
        routed = {x: self.routed(x) for x in layers}
        whole = [(m.parameters[x] - routed[x]) / run.tp for x in layers]
        own = [routed[x] / run.ep for x in layers]
        tables = first + last - (first and last and m.tied_embeddings)
        parts = memory.Parameters(
            sum(whole),
            sum(own),
            tables * m.vocabulary * m.hidden / run.tp,
            max(map(sum, zip(whole, own, strict=True))),
        )
        leaves = max(memory.leaving(self.shape(x), run, parts) for x in layers)
        passing = max(x.working for x in each) + leaves
        once = sum(memory.undivided(c, shape, run, parts))
        if last and self.costs.head == "include":
            passing = max(passing, activations.head(c, shape, run))
            once += memory.cuts(c, shape, run)
        if self.calibration.framework == "megatron" and not run.lora:
            tables = m.vocabulary * m.hidden / run.tp
            there = self.elements(layers, run)
            there += tables * (last and self.costs.head == "include")
            once += 2 * there * c("memory.stand_ins")
        return total + passing, once

    def copied(self, parameters: float) -> float:
        """Bytes of the gradients that DeepSpeed's update copies."""
        known, halves = self.calibration, self.calibration.precision == "fp16"
        others = self.costs.lora or self.costs.offload or self.costs.precision == "fp32"
        if known.framework != "deepspeed" or others:
            return 0
        if not self.costs.zero:
            return 4 * halves * parameters
        some = min(parameters, 1e9) if self.costs.zero == 3 else parameters
        return 6 * some * (halves or not self.fp32_gradients)

    def elements(self, layers: range, run: Layout) -> float:
        """Weights of matrices of which each shape is counted once."""
        found: list[list[float]] = []
        for x in layers:
            shape = self.shape(x)
            for part in shape.layers[0]:
                found += [[m.n, m.k] for m in shape.matrices(part, run.tp, run.experts)]
        unlike = [pair for i, pair in enumerate(found) if pair not in found[:i]]
        return sum(n * k for n, k in unlike)

    def routed(self, layer: int) -> float:
        """Parameters of a layer's experts, but for shared ones."""
        m = self.model
        if "experts" not in self.shape(layer).layers[0]:
            return 0
        width = m.expert_intermediate or m.intermediate or 4 * m.hidden
        each = (3 if m.gated else 2) * (m.expert_hidden or m.hidden) * width
        return min(m.experts * each, m.parameters[layer])

    def layer(
        self, layer: int, node: str, t: int, b: int, behind: bool = False
    ) -> float:
        """Both passes of a layer, or the backward one."""

        def both(rule: str) -> float:
            shape, run = self.shape(layer), self.run(node, t, b, rule)
            times = layer_times(self.constant, self.machine(node), shape, run)
            more = (times.products + times.experts) * (self.share(layer) - 1)
            if "further" in shape.layers[0] and self.costs.head == "include":
                more += self.head(node, t, b)
            host = times.launches  # beside the device
            device = sum(times) - host + more
            return (device**2 + host**2) ** 0.5 * self.pace

        whole = both(self.rule)
        if not behind:
            return whole
        once, twice = (
            layer_times(
                self.constant,
                self.machine(node),
                self.shape(layer),
                self.run(node, t, b, rule),
            ).launches
            for rule in ("none", "full")
        )
        # A third of the launches, but for those that recomputation adds itself.
        first = both("full") - both("none")
        first += (once / 3 - (twice - once)) * self.pace
        return max(0.0, whole - first)

    def share(self, layer: int) -> float:
        """Parameters that are told over those of the shape."""
        m, shape = self.model, self.shape(layer)
        told = m.layer_parameters, m.parameters_per_layer, m.active_layer_parameters
        if not any(told):
            return 1.0
        own = replace(shape, layers=shape.layers[:1]).active
        return m.active_parameters[layer] / own

    @property
    def pace(self) -> float:
        """Of layers, where the plan is on several GPUs."""
        by = self.calibration
        what = "release.experts" if self.model.experts else "release"
        months = {None: 0, "24.02": -24, "27.01": 11}[by.release]
        found: float = self.constant(what) ** (months / 6)
        if self.gpus > 1:
            found *= self.constant("pace", by.framework, by.style, by.site or "")
        return found

    def head(self, node: str, t: int, b: int) -> float:
        """Head and loss."""
        if not self.model.vocabulary:
            return 0.0
        by = (self.calibration.style, self.calibration.framework)
        c = self.costs.context_parallel
        shape, tokens = self.shape(0), b * self.instance.workload.sequence_length / c
        machine = self.machine(node)
        lora = self.costs.lora is not None
        return kernels.head_s(
            self.constant, machine, shape, tokens, t // c, by, lora=lora
        )
