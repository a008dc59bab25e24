"""The cost model once more, in plain floats and straight from its formulas.

Shares no line with `hetopt.costs` or with the judge: it reads the instance's own
fields, rounds nothing, and returns seconds and bytes.
"""

from typing import Any

from hetopt.plans import Pipeline, Replica, Stage, TrainingPlan
from hetopt.schema import Instance


class FloatJudge:
    """Times in seconds and memory in bytes of plans on one instance."""

    def __init__(self, instance: Instance) -> None:
        """Keep the symbols of the cost model at hand."""
        self.costs, self.model = instance.workload.costs, instance.model
        self.cluster = instance.planned_cluster
        self.S, self.H = instance.workload.sequence_length, instance.model.hidden
        self.full = self.costs.recompute == "full"
        self.nodes = {node.name: node for node in self.cluster.nodes}

    def link(self, a: str, b: str) -> tuple[float, float]:
        """(alpha in s, beta in bytes/s) between GPUs of two nodes."""
        if a == b:
            node = self.nodes[a]
            return node.intra_latency_us * 1e-6, (node.intra_gbytes_per_s or 0) * 1e9
        inter = self.cluster.inter
        for pair in inter.pairs:
            if {pair.first, pair.second} == {a, b}:
                return pair.latency_us * 1e-6, pair.gbytes_per_s * 1e9
        return inter.latency_us * 1e-6, (inter.gbytes_per_s or 0) * 1e9

    def flops(self, node: str) -> float:
        """F_g."""
        gpu = self.cluster.gpus[self.nodes[node].gpu]
        return gpu.peak_tflops * 1e12 * gpu.efficiency

    def layer(self, layer: int, node: str, t: int, b: int) -> float:
        """Forward and backward of one layer, analytic."""
        p, s = self.model.active_parameters[layer], self.S
        width = (self.model.head_dim or 0) * self.model.heads or self.H
        c, rounds = (4, 12) if self.full else (3, 8)
        time = c * (2 * p * b * s + 4 * b * s**2 * width) / (t * self.flops(node))
        if t > 1:
            alpha, beta = self.link(node, node)
            time += rounds * (t - 1) * (alpha + 2 * b * s * self.H / (t * beta))
        return time

    def head(self, node: str, t: int, b: int) -> float:
        """The head, where it counts: c = 3, no attention."""
        if self.costs.head == "omit":
            return 0.0
        p = self.model.vocabulary * self.H
        return 3 * 2 * p * b * self.S / (t * self.flops(node))

    def hop(self, sender: str, receiver: str, t: int, b: int) -> float:
        """One micro-batch from a stage to the next, both directions."""
        size = 2 * b * self.S * self.H
        alpha, beta = self.link(sender, receiver)
        way = alpha + size / beta
        if t > 1:
            alpha, beta = self.link(receiver, receiver)
            way += (t - 1) * (alpha + size / (t * beta))
        return 2 * way

    def sync(self, parameters: int, holders: list[tuple[str, int]]) -> float:
        """Gradients of `parameters` among replicas (node, degree), one by one."""
        n = len(holders)
        if n == 1:
            return 0.0
        t_min = min(t for _, t in holders)
        pairs = [(i, j) for i in range(n) for j in range(n) if i != j]
        if self.costs.sync == "bottleneck":
            slowest = min(self.link(holders[i][0], holders[j][0])[1] for i, j in pairs)
            return 2 * (n - 1) / n * (2 * parameters / t_min) / slowest
        sums = [0.0] * n
        for i, j in pairs:
            alpha, beta = self.link(holders[i][0], holders[j][0])
            sums[i] += alpha + 2 * parameters / (t_min * n * beta)
        return 2 * max(sums)

    def memory(
        self, layers: range, t: int, b: int, micro_batches: int, stages: int, j: int
    ) -> float:
        """Bytes on one GPU of stage `j` of `stages`."""
        costs, s, h = self.costs, self.S, self.H
        p = sum(self.model.parameters[x] for x in layers)
        total = costs.bytes_per_parameter * p / t + costs.reserve_mib * 2**20
        held = {"one": 1, "gpipe": micro_batches}.get(
            costs.in_flight, min(micro_batches, stages - j)
        )
        scores = 0 if costs.flash else 5 * self.model.heads * s / (h * t)
        whole = b * s * h * (10 + 24 / t + scores)
        border = 2 * b * s * h
        if costs.activations == "checkpoint":
            total += len(layers) * border
        elif self.full:
            shared = t if costs.sequence_parallel else 1
            total += held * len(layers) * border / shared + whole
        else:
            total += held * len(layers) * whole
        if costs.head == "include":
            ends = (j == 0) + (j == stages - 1)
            if ends == 2 and self.model.tied_embeddings:
                ends = 1
            v = self.model.vocabulary
            total += ends * costs.bytes_per_parameter * v * h / t
            if j == stages - 1:
                total += 6 * b * s * v / t
        return total

    # --- whole plans -----------------------------------------------------------

    def iteration(self, plan: TrainingPlan) -> float:
        """Seconds of one iteration."""
        slowest = max(self.pipeline(p) for p in plan.pipelines)
        sync = self.synchronisation(plan)
        return self.costs.pipeline_factor * slowest + self.costs.sync_factor * sync

    def stage(self, pipeline: Pipeline, j: int) -> float:
        """Compute time of a stage for one micro-batch: its slowest replica."""
        stage, last = pipeline.stages[j], j == len(pipeline.stages) - 1
        return max(self._replica(stage, r, last) for r in stage.replicas)

    def _replica(self, stage: Stage, replica: Replica, last: bool) -> float:
        at = (replica.gpus[0].rpartition(":")[0], len(replica.gpus), replica.samples)
        time = sum(self.layer(x, *at) for x in range(*stage.layers))
        return time + (self.head(*at) if last else 0.0)

    def taus(self, pipeline: Pipeline) -> list[float]:
        """Compute and hop of every stage."""
        times = []
        for j, stage in enumerate(pipeline.stages):
            hop = 0.0
            if j + 1 < len(pipeline.stages):
                b = max(r.samples for r in stage.replicas)
                hop = min(
                    self.hop(x.node, y.node, len(y.gpus), b)
                    for x in stage.replicas
                    for y in pipeline.stages[j + 1].replicas
                )
            times.append(self.stage(pipeline, j) + hop)
        return times

    def pipeline(self, pipeline: Pipeline) -> float:
        """Critical path, or slot by slot in lockstep."""
        taus, n = self.taus(pipeline), pipeline.micro_batches
        if self.costs.pipeline == "critical":
            return sum(taus) + (n - 1) * max(taus)
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
        slowest = 0.0
        for pipeline in plan.pipelines:
            hidden = 0.0
            for j in range(len(pipeline.stages)):
                keys = self._tensors(pipeline, j)
                own = sum(self.sync(self._size(key), holders[key]) for key in keys)
                slowest = max(slowest, own - hidden)
                if self.costs.sync_overlap == "backward":
                    hidden += self._backward(pipeline, j)
        return slowest

    def _tensors(self, pipeline: Pipeline, j: int) -> list[Any]:
        """What stage `j` holds and synchronises: layers, embedding, head."""
        keys: list[Any] = list(range(*pipeline.stages[j].layers))
        if self.costs.head == "include":
            keys += ["embedding"] if j == 0 else []
            keys += ["head"] if j == len(pipeline.stages) - 1 else []
        return keys

    def _size(self, key: Any) -> int:
        if isinstance(key, int):
            return self.model.parameters[key]
        return self.model.vocabulary * self.H

    def _backward(self, pipeline: Pipeline, j: int) -> float:
        share = 3 / 4 if self.full else 2 / 3
        stage, last = pipeline.stages[j], j == len(pipeline.stages) - 1
        times = []
        for r in stage.replicas:
            whole = self._replica(stage, r, False)
            head = self.head(r.node, len(r.gpus), r.samples) if last else 0.0
            times.append(share * whole + 2 / 3 * head)
        return max(times)
