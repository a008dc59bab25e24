"""Plans of one pipeline: the least rows of stages, laid on named nodes.

A row says how many GPUs of each kind a stage uses, and which stages share a node. Here
stages are laid on nodes one after another, and their samples are shared anew, in
replicas of one degree a stage, with the memory of the place that they have. What does
not come out as the row has it is left to the judge.
"""

from collections.abc import Iterator, Sequence
from functools import cache
from itertools import product
from math import inf
from typing import NamedTuple

from ....plans import Pipeline, Replica, Stage, TrainingPlan
from ...one_pipeline.cluster_tables import BIG, ClusterTables
from ...one_pipeline.shares import least_us, shared
from .bound import CountBound
from .kinds import Kind
from .rows import Laid

_RISES = (1.0, 1.03, 1.08, 1.2)  # of the least slowest stage that there can be
_SYNCS = (inf, 0.1, 0.3, 0.03, 0.01)  # parts of the least time, for synchronisation


class _Placed(NamedTuple):
    """A stage on named nodes, by number: GPUs of each."""

    first: int
    last: int
    gpus: dict[int, int]


def pipelines(bound: CountBound) -> Iterator[TrainingPlan]:
    """Plans of one pipeline, of every size of micro-batches.

    They may break rules that rows do not know: they are to be judged.
    """
    instance, sizes = bound.instance, bound.fleet.sizes
    cluster = ClusterTables(instance)
    batch = instance.workload.global_batch
    even = [i for i, x in enumerate(sizes) if not batch % x.sequences]
    quickest_us = cache(bound.quickest_us)
    for part, size in product(_SYNCS, even):
        for row in bound.rows(size, part * quickest_us(size), _RISES):
            b = sizes[size].sequences
            placed = _Layout(cluster, bound.kinds).lay(row)
            plan = _plan(cluster, placed, b, batch // b)
            if plan is not None:
                yield plan


class _Layout:
    """Stages of a row, laid on nodes with GPUs that are free."""

    def __init__(self, cluster: ClusterTables, kinds: Sequence[Kind]) -> None:
        number = {name: i for i, name in enumerate(cluster.cost.names)}
        self._nodes = [[number[name] for name in kind.nodes] for kind in kinds]
        self._free = list(cluster.count)

    def lay(self, row: Sequence[Laid]) -> list[_Placed]:
        """The stages on nodes; a stage that fits no node is spread."""
        placed: list[_Placed] = []
        here: int | None = None  # node that the stage must begin in
        for i, stage in enumerate(row):
            gpus: dict[int, int] = {}
            for kind, wanted in enumerate(stage.use):
                if not wanted:
                    continue
                whole = _chain(row[i:], kind) if stage.packed else wanted
                for node in self._order(kind, wanted, whole, here, stage.packed):
                    taken = min(
                        wanted - sum(gpus.get(x, 0) for x in self._nodes[kind]),
                        self._free[node],
                    )
                    if taken:
                        gpus[node] = gpus.get(node, 0) + taken
                        self._free[node] -= taken
            placed.append(_Placed(stage.first, stage.last, gpus))
            here = self._shared(stage, gpus)
        return placed

    def _order(
        self, kind: int, wanted: int, whole: int, here: int | None, packed: bool
    ) -> list[int]:
        """Nodes of a kind, in the order in which GPUs are taken from them."""
        free = self._free

        def fitness(node: int) -> tuple[bool, bool, int]:
            if not packed:  # whole nodes first
                return node != here, False, -free[node]
            if free[node] >= whole:
                return node != here, False, free[node]
            return node != here or free[node] < wanted, True, -free[node]

        return sorted(self._nodes[kind], key=fitness)

    def _shared(self, stage: Laid, gpus: dict[int, int]) -> int | None:
        """The node of a stage that the next one is in, too."""
        if stage.together is None:
            return None
        nodes = [x for x in self._nodes[stage.together] if x in gpus]
        return max(nodes, key=lambda node: self._free[node], default=None)


def _chain(row: Sequence[Laid], kind: int) -> int:
    """GPUs of a node that the first stages of a row use together."""
    gpus = 0
    for stage in row:
        if not stage.packed:
            break
        gpus += stage.use[kind]
        if stage.together is None:
            break
    return gpus


def _plan(
    cluster: ClusterTables, placed: list[_Placed], b: int, n: int
) -> TrainingPlan | None:
    given = [0] * len(cluster.count)
    stages = []
    for k, stage in zip(range(len(placed), 0, -1), placed, strict=True):
        found = _replicas(cluster, stage, k, b, n)
        if found is None:
            return None
        replicas = []
        for node, t, samples in found:
            ids = range(given[node], given[node] + t)
            given[node] += t
            name = cluster.cost.names[node]
            gpus = tuple(f"{name}:{i}" for i in ids)
            replicas.append(Replica(gpus=gpus, samples=samples))
        layers = (stage.first, stage.last)
        stages.append(Stage(layers=layers, replicas=tuple(replicas)))
    pipeline = Pipeline(micro_batches=n, micro_batch_size=b, stages=tuple(stages))
    return TrainingPlan(pipelines=(pipeline,))


def _replicas(
    cluster: ClusterTables, stage: _Placed, k: int, b: int, n: int
) -> list[tuple[int, int, int]] | None:
    """Replicas of one degree that take least: node, GPUs and samples of each."""
    best: tuple[int, list[tuple[int, int, int]]] | None = None
    for t in range(1, max(stage.gpus.values(), default=0) + 1):
        nodes = [node for node, gpus in stage.gpus.items() for _ in range(gpus // t)]
        # Of more replicas than there are samples, those that are first are left.
        nodes = nodes[:b]
        counts = [sum(cluster.kind[x] == c for x in nodes) for c in cluster.kinds]
        times = []
        for c in cluster.kinds:
            row = [BIG] * b
            if counts[c]:
                for s in cluster.allowed(c, t, n, stage.first, stage.last, k, b):
                    row[s - 1] = cluster.span_us(c, t, s, stage.first, stage.last)
            times.append(row)
        us = least_us(times, counts, b, b) if nodes else BIG
        if us >= BIG:
            continue
        places = [(node, nodes.count(node)) for node in dict.fromkeys(nodes)]
        span = range(stage.first, stage.last)
        whole = n * us + cluster.sync_us(t, places, span)
        if best is None or whole < best[0]:
            samples = [list(each) for each in shared(times, counts, b, b, us)]
            taken = [(x, t, samples[cluster.kind[x]].pop()) for x in nodes]
            best = whole, taken
    return best and best[1]
