"""Packings of the integer master as plans: their pipelines placed on named nodes.

A whole pipeline says how many GPUs of each class a stage uses, and which stages share a
node. Here chains of stages are placed on nodes, the longest first, then stages in
several nodes. Samples are shared anew. What does not come out as it was counted is left
to the judge.
"""

from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from ...errors import PlanRejected
from ...plans import Pipeline, Replica, Stage, TrainingPlan
from ...schema import Instance
from ...stages import StageTable
from ..one_pipeline.cluster_tables import ClusterTables
from ..pipelines.boxes import Box
from ..pipelines.counts import IntegerMaster, WholePipeline
from ..pipelines.tracing import Staged
from .replicas import Place, Placed, cheapest_replicas


class Packings:
    """Offers plans of packings, each once."""

    def __init__(
        self, instance: Instance, offer: Callable[[TrainingPlan], int]
    ) -> None:
        """`offer` returns the time of a plan."""
        self._layout, self._offer = Layout(ClusterTables(instance)), offer
        self._seen: set[tuple[object, ...]] = set()

    def offer(self, table: StageTable, master: IntegerMaster, box: Box) -> None:
        """Offer the packing of a master whose box stands, if it is a new one."""
        key = master.signature
        if key is None or key in self._seen:
            return
        self._seen.add(key)
        packing = master.pipelines()
        if packing:
            plan = self._layout.plan(table, packing, box.sync_high_us or 0)
            if plan is not None:
                with suppress(PlanRejected):  # for what counts of GPUs do not see
                    self._offer(plan)


class _Numbered(NamedTuple):
    """A stage of a packing: which pipeline it is of, and its number there."""

    pipeline: int
    number: int


@dataclass(frozen=True)
class Layout:
    """Lays packings on the nodes of one cluster."""

    cluster: ClusterTables

    def plan(
        self, table: StageTable, packing: Sequence[WholePipeline], sync_us: int
    ) -> TrainingPlan | None:
        """Return a plan of a packing; None where its pipelines find no room.

        Classes of nodes are those of the `table`. Stages may synchronise for `sync_us`,
        if they can.
        """
        counts = self._micro_batches(packing)
        if counts is None:
            return None
        nodes = _Nodes(self.cluster, table).placed(packing)
        given = [0] * len(self.cluster.count)
        pipelines = []
        for i, (pipeline, n) in enumerate(zip(packing, counts, strict=True)):
            last, stages = len(pipeline.stages) - 1, []
            for j, stage in enumerate(pipeline.stages):
                hops = _hops(table, stage, last=j == last)
                placed = Placed(stage.first, stage.last, nodes[_Numbered(i, j)], hops)
                place = Place(n, pipeline.size, sync_us, len(pipeline.stages) - j)
                if (found := self._stage(placed, place, given)) is None:
                    return None
                stages.append(found)
            pipelines.append(
                Pipeline(
                    micro_batches=n,
                    micro_batch_size=pipeline.size,
                    stages=tuple(stages),
                )
            )
        return TrainingPlan(pipelines=tuple(pipelines))

    def _micro_batches(self, packing: Sequence[WholePipeline]) -> list[int] | None:
        """Return how many each pipeline has, of what it can take; None if none do."""
        left = self.cluster.instance.workload.global_batch
        found = [each.sequences // each.size for each in packing]
        over = sum(n * each.size for n, each in zip(found, packing, strict=True)) - left
        # Those with small micro-batches give back what is too much.
        for i in sorted(range(len(packing)), key=lambda i: -packing[i].size):
            less = min(found[i] - 1, over // packing[i].size)
            found[i] -= less
            over -= less * packing[i].size
        return None if over else found

    def _stage(self, placed: Placed, place: Place, given: list[int]) -> Stage | None:
        """Return a stage on the next GPUs of its nodes."""
        found = cheapest_replicas(self.cluster, placed, place)
        if found is None:
            return None
        replicas = []
        for node, t, samples in found:
            ids = range(given[node], given[node] + t)
            given[node] += t
            name = self.cluster.cost.names[node]
            gpus = tuple(f"{name}:{i}" for i in ids)
            replicas.append(Replica(gpus=gpus, samples=samples))
        layers = placed.first, placed.last
        return Stage(layers=layers, replicas=tuple(replicas))


def _hops(table: StageTable, stage: Staged, *, last: bool) -> Sequence[float]:
    """Return what a stage takes to hand on, by samples."""
    classes = table.classes
    if last:
        return [0] * len(classes[0].outer_us)
    if stage.together is not None:
        return [*map(int, classes[stage.together].inner_us)]
    used = [classes[c].outer_us for c, gpus in enumerate(stage.use) if gpus]
    return [*map(int, np.min(used, axis=0))]


class _Nodes:
    """Nodes with GPUs that are free."""

    def __init__(self, cluster: ClusterTables, table: StageTable) -> None:
        number = {name: i for i, name in enumerate(cluster.cost.names)}
        self._nodes = [[number[name] for name in c.nodes] for c in table.classes]
        self._free = list(cluster.count)

    def placed(
        self, packing: Sequence[WholePipeline]
    ) -> dict[_Numbered, dict[int, int]]:
        """Return GPUs by node of each stage; a chain that fits no node is spread."""
        found: dict[_Numbered, dict[int, int]] = {}
        rows = [each.stages for each in packing]
        chains = [(i, chain) for i, row in enumerate(rows) for chain in _chains(row)]

        def wanted(i: int, chain: range) -> int:
            # Beside a stage in several nodes before a chain there is one GPU for it.
            joined = chain[0] > 0 and rows[i][chain[0] - 1].together is not None
            return sum(sum(rows[i][j].use) for j in chain) + joined

        for i, chain in sorted(chains, key=lambda each: -wanted(*each)):
            node = self._node(rows[i][chain[0]], wanted(i, chain))
            for j in chain:
                found[_Numbered(i, j)] = self._taken(rows[i][j], node)
        for i, row in enumerate(rows):
            for j, stage in enumerate(row):
                if not stage.in_node:
                    near = [j - 1] * (j > 0 and row[j - 1].together is not None)
                    near += [j + 1] * (stage.together is not None)
                    shared = [found.get(_Numbered(i, n), {}) for n in near]
                    found[_Numbered(i, j)] = self._spread(stage, shared)
        return found

    def _node(self, stage: Staged, wanted: int) -> int | None:
        """Return a node with so much room, and the least that is left; or none."""
        (kind,) = (c for c, gpus in enumerate(stage.use) if gpus)
        able = [node for node in self._nodes[kind] if self._free[node] >= wanted]
        return min(able, key=lambda node: self._free[node], default=None)

    def _taken(self, stage: Staged, node: int | None) -> dict[int, int]:
        if node is None:
            return self._spread(stage, [])
        self._free[node] -= sum(stage.use)
        return {node: sum(stage.use)}

    def _spread(
        self, stage: Staged, shared: Sequence[dict[int, int]]
    ) -> dict[int, int]:
        """Take GPUs of several nodes: one of each that is shared, then of empty ones.

        `shared` are the nodes of neighbours, one of which is to be this stage's, too.
        """
        gpus: dict[int, int] = {}
        left = list(stage.use)
        for nodes in shared:
            able = [
                (c, node)
                for c, some in enumerate(left)
                for node in self._nodes[c]
                if some and node in nodes and self._free[node]
            ]
            if able and not nodes.keys() & gpus.keys():
                kind, node = max(able, key=lambda each: self._free[each[1]])
                self._take(gpus, node, 1)
                left[kind] -= 1
        for kind, wanted in enumerate(left):
            # Nodes that are used already, then whole ones.
            order = [(x not in gpus, -self._free[x], x) for x in self._nodes[kind]]
            for _, _, node in sorted(order):
                taken = min(wanted, self._free[node])
                self._take(gpus, node, taken)
                wanted -= taken
        return gpus

    def _take(self, gpus: dict[int, int], node: int, number: int) -> None:
        if number:
            gpus[node] = gpus.get(node, 0) + number
            self._free[node] -= number


def _chains(row: Sequence[Staged]) -> list[range]:
    """Return stages that are in one node, one behind the other, by number."""
    found, begin = [], 0
    for i, stage in enumerate(row):
        goes_on = stage.together is not None and i + 1 < len(row) and row[i + 1].in_node
        if stage.in_node and not goes_on:
            found.append(range(begin, i + 1))
        if not (stage.in_node and goes_on):
            begin = i + 1
    return found
