"""A time that no plan of a shape beats: `least`, and a quicker one that is no better.

A stage of x layers is as slow as the slowest of its replicas, and holds what all of
them hold. For a bottleneck tau, X_k[j] is the most layers that a group of kind k can
take at position j: in time, with the head on the last stage and at least the cheapest
hop behind the others, and in memory. With kinds sorted from the largest X to the
smallest (raised to their maximum where positions disagree), a stage holds at most the X
of its last kind, and at most floor((groups of the first i kinds) / replicas) stages
have no kind behind the i-th. So the layers that all stages hold are at most

    sum_j X_K[j] + sum over i < K of the floor(...) largest X_i[j] - X_{i+1}[j],

and a bottleneck for which this is less than the layers is refuted. The pipeline with
the bottleneck takes n tau and fills: every layer on the kind that is fastest for it,
the head, a hop for each other stage. The cheapest hop is that of any two groups, for a
stage of several replicas hands on by its cheapest way.

Synchronisation: the stage with most layers has at least the ceiling of layers / stages,
each with all replicas, of which a node holds as many as it has groups; the others are
across the fastest link. What overlaps may hide it, and then it counts 0. The optimiser
is as long as that of the mean stage where memory is fastest, at least.
"""

from bisect import bisect_left
from fractions import Fraction
from math import inf

import numpy as np
from numpy.typing import NDArray

from ...caching import cached_method
from ...costs.communication import rounds
from ..fast_cost import FastCost, Slot
from .filling import Shape, groups_of, nodes_by_kind

_MANY_NODES = 64
_HALVINGS = 40
_ROUNDING = 1 - 1e-9  # what float arithmetic may cost, generously
_Floats = NDArray[np.float64]


class Least:
    """Least times of the shapes of one instance under one setting."""

    def __init__(self, cost: FastCost) -> None:
        """Tables are made when a shape asks for them."""
        self._cost = cost
        self._layers = cost.layers
        self._pairs = bool(cost.instance.planned_cluster.inter.pairs)
        # Parameters that the layers before each exchange.
        self._sums = np.cumsum([0, *cost.table.exchanged.layers])
        self._lightest = [self._lightest_run(x) for x in range(self._layers + 1)]

    # --- what is asked for -------------------------------------------------------

    def quick_us(self, shape: Shape) -> float:
        """Total work at the bottleneck, memory apart."""
        t, replicas, stages, size, _ = shape[:5]
        kinds = self._kinds(t, size)
        whole = np.array([self._times(node, t, size)[-1] for node, _ in kinds])
        rates = np.repeat(1 / np.maximum(whole, 1e-9), [g for _, g in kinds])
        # At most the fastest groups, each stage as fast as its slowest replica.
        slowest = -np.sort(-rates)[replicas - 1 : replicas * stages : replicas]
        return self._whole(shape, self._shared(t, size) / float(slowest.sum()))

    def us(self, shape: Shape) -> float:
        """With positions, memory, hops and the head; infinite where nothing fits."""
        t, replicas, stages, size, _ = shape[:5]
        kinds = self._kinds(t, size)
        hop = self._hop(t, size)
        heads = [float(self._cost.head_us(node, t, size)) for node, _ in kinds]
        rooms = np.array([self._room_of(node, shape) for node, _ in kinds])
        times = [self._times(node, t, size) for node, _ in kinds]
        counts = np.array([groups for _, groups in kinds])
        # Interleaved, the last stage sends to the first for all but the last run.
        runs = self._cost.costs.schedule.interleave
        back = (runs - 1) / runs

        def held(tau: float) -> float:
            in_time = np.empty(rooms.shape)
            for k, row in enumerate(times):
                last = heads[k] + (hop * back if stages > 1 else 0)
                in_time[k, :-1] = np.searchsorted(row, tau - hop, side="right") - 1
                in_time[k, -1] = np.searchsorted(row, tau - last, side="right") - 1
            return _held(np.minimum(rooms, in_time), counts, replicas)

        if held(inf) < self._layers:
            return inf
        low = 0.0
        high = 1.0 + hop + max(heads) + float(max(row[-1] for row in times))
        for _ in range(_HALVINGS):
            middle = (low + high) / 2
            if held(middle) >= self._layers:
                high = middle
            else:
                low = middle
            if high - low < 0.5:
                break
        return self._whole(shape, low)

    def shared_us(self, replicas: int, passes_us: float) -> float:
        """Return the least time of whole models whose passes take so long."""
        cost = self._cost
        shape = Shape(1, replicas, 1, 1, 1)
        whole = float(cost.pipeline_factor) * passes_us
        whole += float(cost.sync_factor) * self._sync_us(shape)
        whole += self._updated(1, 1, replicas if cost.costs.updates.zero else 1)
        return float(np.floor(whole * _ROUNDING)) + cost.table.overhead_us

    # --- parts -------------------------------------------------------------------

    @cached_method
    def _kinds(self, t: int, size: int) -> list[tuple[int, int]]:
        """A node that speaks for each kind, and how many groups the kind has."""
        several = nodes_by_kind(self._cost, t, size)
        return [(nodes[0], len(nodes)) for nodes in several]

    @cached_method
    def _times(self, node: int, t: int, size: int) -> _Floats:
        """Least time of 0, 1, ... layers in a row."""
        sums = np.array(self._cost.prefix(node, t, size)[0], dtype=float)
        spans = (sums[x:] - sums[: len(sums) - x] for x in range(1, len(sums)))
        return np.array([0.0, *(float(span.min()) for span in spans)])

    def _layer_us(self, t: int, size: int) -> _Floats:
        rows = [self._cost.prefix(node, t, size)[0] for node, _ in self._kinds(t, size)]
        return np.diff(np.array(rows, dtype=float), axis=1)

    @cached_method
    def _shared(self, t: int, size: int) -> float:
        """Return what remains of 1 if each layer goes where its share is least."""
        times = self._layer_us(t, size)
        whole = np.maximum(times.sum(axis=1, keepdims=True), 1e-9)
        return float((times / whole).min(axis=0).sum())

    @cached_method
    def _chain(self, t: int, size: int) -> float:
        """Every layer and the head where they are fastest."""
        heads = [self._cost.head_us(node, t, size) for node, _ in self._kinds(t, size)]
        return float(self._layer_us(t, size).min(axis=0).sum() + min(heads))

    @cached_method
    def _hop(self, t: int, size: int) -> float:
        """The cheapest hop between any two groups."""
        cost = self._cost
        if self._pairs and len(cost.nodes) > _MANY_NODES:
            return 0.0
        groups = groups_of(cost, t, size)
        nodes = [i for i, several in enumerate(groups) if several]
        if not self._pairs:  # then two nodes of a kind speak for all of them
            kinds = nodes_by_kind(cost, t, size)
            nodes = [i for several in kinds for i in [*dict.fromkeys(several)][:2]]
        ways = [
            cost.hop_us(sender, receiver, t, size, t)
            for sender in nodes
            for receiver in nodes
            if groups[receiver] > (sender == receiver)
        ]
        return float(cost.costs.schedule.interleave * min(ways, default=0))

    def _lightest_run(self, x: int) -> int:
        """Where the run of x layers with the fewest parameters starts."""
        sums = self._sums
        return int((sums[x:] - sums[: len(sums) - x]).argmin())

    def _room_of(self, node: int, shape: Shape) -> list[int]:
        """The most layers that memory allows at each position."""
        t, replicas, stages, size, n = shape[:5]
        cost = self._cost
        divided = cost.costs.updates.zero
        return [
            self._most(node, t, size, n, stages, j, replicas if divided else 1)
            for j in range(stages)
        ]

    def _most(
        self, node: int, t: int, size: int, n: int, stages: int, j: int, replicas: int
    ) -> int:
        cost = self._cost
        if cost.table.profile.weighs or not cost.instance.model.alike:
            return self._layers  # memory tells layers apart: no run is the lightest
        runs = cost.costs.schedule.interleave
        if cost.table.weighing is not None and not cost.table.even:
            return self._layers  # fewer parameters may keep more for backward passes

        def is_too_many(layers: int) -> bool:
            count = max(layers, runs)
            first = self._lightest[min(count, self._layers)]
            slot = Slot(node, t, first, first + count)
            need = cost.need_mib(size, n, stages, j, slot, replicas)
            return need > cost.room[node]

        return bisect_left(range(1, self._layers + 1), True, key=is_too_many)

    def _whole(self, shape: Shape, tau: float) -> float:
        """Iteration time with a bottleneck of at least `tau`."""
        t, _, stages, size, n = shape[:5]
        cost = self._cost
        chain = self._chain(t, size) + (stages - 1) * self._hop(t, size)
        runs = cost.costs.schedule.interleave
        pipeline = n * tau + max(0.0, chain - tau) / runs
        whole = float(cost.pipeline_factor) * pipeline
        whole += float(cost.sync_factor) * self._sync_us(shape)
        whole += self._updated(t, stages, shape[1] if cost.costs.updates.zero else 1)
        return float(np.floor(whole * _ROUNDING)) + cost.table.overhead_us

    def _sync_us(self, shape: Shape) -> float:
        """Return the least that a stage with its share of the layers synchronises."""
        cost = self._cost
        t, replicas, stages, size, _ = shape[:5]
        costs, updates = cost.costs, cost.costs.updates
        # Of groups of ZeRO little is between nodes.
        if replicas == 1 or updates.sync_overlap != "none" or updates.zero_groups > 1:
            return 0.0
        if updates.sync != "ring":
            return 0.0
        x = -(-self._layers // stages)
        first = self._lightest[x]
        # Experts that are divided have fewer replicas: left out.
        parameters = float(self._sums[first + x] - self._sums[first])
        divided = cost.table.divided(cost.table.exchanged)
        parameters = max(0.0, parameters - sum(divided))
        chunk = cost.costs.memory.gradient_bytes * parameters / t / replicas
        rate, most = self._links(t, size)
        near = min(replicas, most) - 1
        seconds = near * chunk / rate[0] if near else 0.0
        seconds += (replicas - 1 - near) * chunk / rate[1] if rate[1] else 0.0
        times = rounds(costs, [(shape.micro_batches, stages)])
        return times * cost.costs.updates.sync_passes * seconds * 1e6

    @cached_method
    def _updated(self, t: int, stages: int, replicas: int) -> int:
        cost = self._cost
        trained = cost.table.trained
        held = sum(trained.layers) + (trained.end or 0)
        routed = sum(cost.table.divided(trained))
        e = cost.costs.compute.expert_parallel
        each = Fraction(held - routed, t) + Fraction(routed, max(t, e))
        share = [(each / stages, replicas if e == 1 else replicas * max(1, t // e))]
        speakers = {node.gpu: node.name for node in cost.nodes}.values()
        return min(cost.table.update_us(name, share, t) for name in speakers)

    @cached_method
    def _links(self, t: int, size: int) -> tuple[tuple[float, float], int]:
        """Bytes/s within a node and between nodes, at the most; groups of a node."""
        cost, cluster = self._cost, self._cost.instance.planned_cluster
        groups = groups_of(cost, t, size)
        rates = [cost.table.node_class[name].intra for name in cost.names]
        within = max((float(link[1]) for link in rates if link), default=inf)
        between = max((rate for rate, _ in cluster.links.rates), default=0.0) * 1e9
        # A stage's replicas are near each other where that is the faster way.
        return (max(within, between), between), max(groups)


def _held(most: _Floats, counts: NDArray[np.int64], replicas: int) -> float:
    """Layers that the stages hold at the most; `most` by kind and position."""
    most = np.maximum(most, 0)
    order = np.argsort(-most.sum(axis=1))
    rows = np.maximum.accumulate(most[order][::-1], axis=0)[::-1]
    behind = np.cumsum(counts[order])
    total = float(rows[-1].sum())
    for i in range(len(rows) - 1):
        stages = int(behind[i]) // replicas
        gains = np.sort(rows[i] - rows[i + 1])[::-1]
        total += float(gains[:stages].sum())
    return total
