"""Fast time and memory of plans with one replica a stage, for whoever searches.

The same cost model as the judge's, put together a second time: planners rank with
it, the judge has the last word. Layer times are prefix sums, synchronisation is
computed once for every run of layers with equal holders.
"""

from collections import Counter
from collections.abc import Iterable
from functools import lru_cache
from itertools import accumulate, pairwise
from typing import NamedTuple

from .costs import CostTable
from .costs.compute import ceil
from .plans import Pipeline, Replica, Stage, TrainingPlan
from .schema import exact


class StageShape(NamedTuple):
    """Layers `[first, last)` on `t` GPUs of `node`, one tensor-parallel group."""

    first: int
    last: int
    node: str
    t: int


class PipelineShape(NamedTuple):
    """`n` micro-batches of `b` sequences through `stages`."""

    n: int
    b: int
    stages: tuple[StageShape, ...]


class Shortage(NamedTuple):
    """MiB that a GPU of stage `stage` on `node` lacks."""

    mib: int
    node: str
    stage: int


class SearchCost:
    """Times in us and shortages in MiB of plans given by their shapes."""

    def __init__(self, table: CostTable) -> None:
        self.table = table
        self.costs = table.workload.costs
        self.room = {n.name: table.memory_mib(n.name) for n in table.cluster.nodes}
        self._need = lru_cache(None)(self._need_mib)
        self._passed = lru_cache(None)(self._times_before)
        self._behind = lru_cache(None)(self._backward_before)
        self.pipeline_us = lru_cache(None)(self._pipeline_us)

    def stage_us(self, stage: StageShape, b: int) -> int:
        """Compute time of a stage for one micro-batch, the head not counted."""
        before = self._passed(stage.node, stage.t, b)
        return before[stage.last] - before[stage.first]

    def taus(self, stages: tuple[StageShape, ...], b: int) -> list[int]:
        """Time of every stage for one micro-batch, its hop included."""
        table = self.table
        taus = [self.stage_us(stage, b) for stage in stages]
        for j, (one, two) in enumerate(pairwise(stages)):
            taus[j] += table.hop_us(one.node, two.node, two.t, b)
        taus[-1] += table.head_us(stages[-1].node, stages[-1].t, b)
        return taus

    def _pipeline_us(self, n: int, b: int, stages: tuple[StageShape, ...]) -> int:
        """Time of `n` micro-batches of `b` through a pipeline."""
        taus = self.taus(stages, b)
        if self.costs.pipeline == "lockstep":
            return lockstep_us(n, taus)
        return sum(taus) + (n - 1) * max(taus)

    def shortages(self, pipeline: PipelineShape) -> Iterable[Shortage]:
        """Every stage of a pipeline that does not fit, and by how much."""
        count = len(pipeline.stages)
        for j, s in enumerate(pipeline.stages):
            need = self.need_mib(s, pipeline.b, pipeline.n, count, j)
            if need > self.room[s.node]:
                yield Shortage(need - self.room[s.node], s.node, j)

    def need_mib(self, stage: StageShape, b: int, n: int, stages: int, j: int) -> int:
        """Memory of a GPU of `stage`, at position `j` of `stages`."""
        return self._need(stage.first, stage.last, stage.t, b, n, stages, j)

    def _need_mib(
        self, first: int, last: int, t: int, b: int, n: int, stages: int, j: int
    ) -> int:
        parts = self.table.stage_mib(range(first, last), t, b, n, stages, j)
        return sum(parts.values())

    def iteration_us(self, pipelines: tuple[PipelineShape, ...]) -> int:
        """Time of an iteration; memory is not looked at."""
        slowest = max(self.pipeline_us(*shape) for shape in set(pipelines))
        return ceil(exact(self.costs.pipeline_factor) * slowest) + ceil(
            exact(self.costs.sync_factor) * self.sync_us(pipelines)
        )

    def sync_us(self, pipelines: tuple[PipelineShape, ...]) -> int:
        """Time of the slowest stage's gradient synchronisation."""
        total, ends = self._sync_before(pipelines)
        slowest = 0
        for pipeline in set(pipelines):
            slowest = max(slowest, self._slowest_sync(pipeline, total, ends))
        return slowest

    def _slowest_sync(
        self, pipeline: PipelineShape, total: list[int], ends: tuple[int, int]
    ) -> int:
        slowest = hidden = 0
        for j, stage in enumerate(pipeline.stages):
            sync = total[stage.last] - total[stage.first]
            sync += ends[0] if j == 0 else 0
            sync += ends[1] if j == len(pipeline.stages) - 1 else 0
            slowest = max(slowest, sync - hidden)
            if self.costs.sync_overlap == "backward":
                before = self._behind(stage.node, stage.t, pipeline.b)
                hidden += before[stage.last] - before[stage.first]
        return slowest

    def _sync_before(
        self, pipelines: tuple[PipelineShape, ...]
    ) -> tuple[list[int], tuple[int, int]]:
        """Synchronisation of all layers before each, and that of the two ends."""
        table, parameters = self.table, self.table.model.parameters
        shapes = Counter(pipeline.stages for pipeline in pipelines)
        cuts = sorted({s.first for shape in shapes for s in shape} | {table.layers})
        by_layer: list[int] = []
        holders: list[tuple[str, int]] = []
        end_us: list[int] = []
        for first, last in pairwise(cuts):
            holders = [
                (stage.node, stage.t)
                for shape, copies in shapes.items()
                for stage in shape
                if stage.first <= first < stage.last
                for _ in range(copies)
            ]
            holders.sort()
            by_size = {
                p: table.sync_us(p, holders) for p in set(parameters[first:last])
            }
            by_layer += (by_size[p] for p in parameters[first:last])
            if first == 0 and self.costs.head == "include":
                end_us.append(table.sync_us(table.model.embedding_parameters, holders))
        if self.costs.head == "include":
            end_us.append(table.sync_us(table.model.embedding_parameters, holders))
        ends = (end_us[0], end_us[1]) if end_us else (0, 0)
        return [0, *accumulate(by_layer)], ends

    def _times_before(self, node: str, t: int, b: int) -> list[int]:
        return [0, *accumulate(self.table.layer_us(node, t, b))]

    def _backward_before(self, node: str, t: int, b: int) -> list[int]:
        return [0, *accumulate(self.table.backward_us(node, t, b))]

    def plan(self, pipelines: Iterable[PipelineShape]) -> TrainingPlan:
        """The plan of these shapes: GPUs of a node are handed out in order."""
        used: Counter[str] = Counter()
        made = []
        for n, b, shapes in pipelines:
            stages = []
            for first, last, node, t in shapes:
                gpus = tuple(f"{node}:{used[node] + i}" for i in range(t))
                used[node] += t
                replica = Replica(gpus=gpus, samples=b)
                stages.append(Stage(layers=(first, last), replicas=(replica,)))
            made.append(
                Pipeline(micro_batches=n, micro_batch_size=b, stages=tuple(stages))
            )
        return TrainingPlan(pipelines=tuple(made))


def lockstep_us(n: int, taus: list[int]) -> int:
    """Each time slot lasts as long as the slowest stage that is active in it."""
    depth = len(taus)
    spare = max(0, n - depth)  # slots in which every stage is active, but one
    n -= spare
    slots = (taus[max(0, s - n + 1) : s + 1] for s in range(depth + n - 1))
    return spare * max(taus) + sum(map(max, slots))
