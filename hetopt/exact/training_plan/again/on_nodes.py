"""Whether a pipeline of micro-batches of one sequence is within a time, node by node.

Its stages have one replica each, so that nothing synchronises. They are laid from the
last one to the first, in every way but those that are alike: with equal nodes in other
places, or no shorter in sum and slowest stage. What cannot be within the time with the
least that its other layers take on the GPUs left, wherever these are, is dropped. The
method (`one_pipeline`) halves ranges of the slowest stage, with prices of GPUs.
"""

import math
from bisect import bisect_left
from collections.abc import Iterator, Sequence
from functools import cached_property
from itertools import accumulate, pairwise, product
from typing import NamedTuple

import numpy as np

from ....costs import CostTable
from ....errors import Unsupported
from ....schema import Instance
from .stages import MORE, Array

_RANGES = 128  # of the slowest stage, for what layers take at the least
_NARROW = 0.5  # of the longest that a slowest stage can be, where ranges begin
_MOST_STATES = 1_500  # numbers of GPUs by group of kinds
_MOST_LAID = 5_000_000  # stages

_Free = tuple[int, ...]  # GPUs of each node that are left


class _Row(NamedTuple):
    """Stages from a layer on: the node and degree of the first, and what they take."""

    node: int  # -1 before there is one
    degree: int
    stages: int
    free: _Free
    sum_us: int
    slowest_us: int


class OnNodes:
    """Single pipelines of one instance."""

    def __init__(self, instance: Instance) -> None:
        """Of the instance's own settings."""
        table = self._table = CostTable(instance)
        self._layers, self._n = table.layers, table.workload.global_batch
        nodes = table.cluster.nodes
        self._names = [node.name for node in nodes]
        self._gpus = [node.count for node in nodes]
        kinds = dict.fromkeys(table.node_class[name] for name in self._names)
        self._kinds = [*kinds]
        self._kind = [self._kinds.index(table.node_class[x]) for x in self._names]
        # Nodes stand for each other where links to all others are the same.
        pairs = bool(table.cluster.inter.pairs)
        same = [*zip(self._kind, self._gpus, strict=True)]
        self._alike = [i if pairs else same.index(x) for i, x in enumerate(same)]
        self._begins: dict[tuple[int, int, int, int], int] = {}
        self._hops: dict[tuple[int, int, int], int] = {}
        self._refuted_us = -math.inf

    @property
    def possible(self) -> bool:
        """Whether pipelines take what is reckoned here."""
        workload, costs = self._table.workload, self._table.workload.costs
        chosen = (workload.recomputes, workload.zeros, workload.splits)
        return (
            costs.pipeline == "critical"
            and costs.hops == "sender"
            and costs.interleave == costs.context_parallel == costs.expert_parallel == 1
            and not costs.zero
            and all(len(offers) == 1 for offers in chosen)
        )

    def refute(self, left_us: float) -> bool:
        """Whether every one takes longer than `left_us`, beside factors and overheads.

        Raises `Unsupported` where there are too many to look at.
        """
        if left_us > self._refuted_us and self.possible and not self._within(left_us):
            self._refuted_us = left_us
        return left_us <= self._refuted_us

    def _within(self, left_us: float) -> bool:
        """Whether one takes `left_us` or less."""
        rest, laid = _Rest(self._parts, self._free(self._gpus), left_us, self._n), 0
        begin = _Row(-1, 0, 0, tuple(self._gpus), 0, 0)
        rows = {self._layers: {self._shape(begin): [begin]}}
        for last in range(self._layers, 0, -1):
            for alike in rows.pop(last, {}).values():
                for row in alike:
                    for first, longer in self._longer(row, last, left_us / self._n):
                        laid += 1
                        if laid > _MOST_LAID:
                            raise Unsupported(
                                "single pipelines are more than a check can look at: "
                                "plan again to prove the bound"
                            )
                        least = rest.least_us(first, self._free(longer.free), longer)
                        if least > left_us * MORE:
                            continue
                        if first == 0:
                            return True
                        kept = rows.setdefault(first, {})
                        _keep(kept.setdefault(self._shape(longer), []), longer)
        return False

    def _shape(self, row: _Row) -> tuple[object, ...]:
        """Equal for rows that can go on alike."""
        nodes = zip(self._alike, row.free, strict=True)
        free = sorted((x, left, i == row.node) for i, (x, left) in enumerate(nodes))
        return row.degree, min(row.stages, self._n), tuple(free)

    def _free(self, free: Sequence[int]) -> tuple[int, ...]:
        """GPUs that are left, by kind."""
        found = [0] * len(self._kinds)
        for kind, gpus in zip(self._kind, free, strict=True):
            found[kind] += gpus
        return tuple(found)

    def _longer(
        self, row: _Row, last: int, most_us: float
    ) -> Iterator[tuple[int, _Row]]:
        """Rows with one stage more, and their first layer."""
        seen = set()
        for node, left in enumerate(row.free):
            place = (self._alike[node], left, node == row.node)
            if place in seen:
                continue
            seen.add(place)
            for t in range(1, left + 1):
                hop = self._hop_us(node, row.node, row.degree) if row.stages else 0
                free = (*row.free[:node], left - t, *row.free[node + 1 :])
                for first, us in self._stages(node, t, last, row.stages + 1):
                    if us + hop > most_us * MORE:
                        break
                    slowest = max(row.slowest_us, us + hop)
                    sum_us = row.sum_us + us + hop
                    yield (
                        first,
                        _Row(node, t, row.stages + 1, free, sum_us, slowest),
                    )

    def _stages(
        self, node: int, t: int, last: int, place: int
    ) -> Iterator[tuple[int, int]]:
        """First layers of stages before `last`, the shortest first, and their times.

        At a place from the end of the pipeline.
        """
        name, table = self._names[node], self._table
        if not table.usable(name, t, 1):
            return
        times = self._times[self._kind[node], t]
        head = table.head_us(name, t, 1) if last == self._layers else 0
        for first in range(last - 1, self._begin(node, t, last, place) - 1, -1):
            yield first, times[last] - times[first] + head

    @cached_property
    def _times(self) -> dict[tuple[int, int], list[int]]:
        """Sums of layer times before each layer, by kind and degree."""
        found = {}
        for name, kind, gpus in zip(self._names, self._kind, self._gpus, strict=True):
            for t in range(1, gpus + 1):
                if (kind, t) not in found and self._table.usable(name, t, 1):
                    each = self._table.layer_us(name, t, 1)
                    found[kind, t] = [*accumulate(each, initial=0)]
        return found

    def _begin(self, node: int, t: int, last: int, place: int) -> int:
        """The first layer of the longest run before `last` that fits."""
        table, name = self._table, self._names[node]
        key = (self._kind[node], t, last, min(place, self._n))
        if key not in self._begins:

            def fits(first: int) -> bool:
                j = min(1, first)
                run = range(first, last)
                need = table.stage_mib(name, run, t, 1, self._n, place + j, j)
                return sum(need.values()) <= table.memory_mib(name)

            # What fits fits without its first layers, too.
            begin = 1 + bisect_left(range(1, last), True, key=fits)
            self._begins[key] = 0 if begin == 1 and fits(0) else begin
        return self._begins[key]

    def _hop_us(self, node: int, receiver: int, t: int) -> int:
        key = (node, receiver, t)
        if key not in self._hops:
            ends = self._names[node], self._names[receiver]
            self._hops[key] = self._table.hop_us(*ends, t, 1)
        return self._hops[key]

    @cached_property
    def _parts(self) -> "list[_Part]":
        """Every stage that there can be, with the least hop, by kind and degree."""
        found = []
        roomy = {k: max(g for x, g in self._pairs if x == k) for k in set(self._kind)}
        for kind, most in roomy.items():
            node = next(i for i, x in enumerate(self._pairs) if x == (kind, most))
            hop = self._least_hop(kind)
            for t in range(1, most + 1):
                us = np.full((self._layers, self._layers + 1), np.inf)
                for last in range(1, self._layers + 1):
                    ends = last == self._layers
                    for first, took in self._stages(node, t, last, 1 if ends else 2):
                        us[first, last] = took + (0 if ends else hop)
                found.append(_Part(kind, t, us))
        return found

    @cached_property
    def _pairs(self) -> list[tuple[int, int]]:
        return [*zip(self._kind, self._gpus, strict=True)]

    def _least_hop(self, kind: int) -> int:
        """No stage on a node of a kind hands on in less time."""
        nodes = [*range(len(self._names))]
        if not self._table.cluster.inter.pairs:  # two of a kind speak for all
            of_kind = [[i for i in nodes if self._kind[i] == k] for k in self._kind]
            nodes = sorted({i for each in of_kind for i in each[:2]})
        mine = [i for i in nodes if self._kind[i] == kind]
        pairs = [(i, j) for i, j in product(mine, nodes) if i != j]
        inside = [
            (i, i) for i, x in enumerate(self._pairs) if x[0] == kind and x[1] > 1
        ]
        hops = (self._hop_us(i, j, 1) for i, j in pairs + inside)
        return min(hops, default=0)


class _Part(NamedTuple):
    """A stage on so many GPUs of a kind: its least time by [first, last]."""

    kind: int
    gpus: int
    us: Array


class _Rest:
    """What the first layers take at the least, by the GPUs that are left for them.

    In ranges of the slowest stage; kinds with too many numbers of GPUs are one.
    """

    def __init__(
        self,
        parts: Sequence[_Part],
        whole: tuple[int, ...],
        left_us: float,
        n: int,
    ) -> None:
        self._n = n
        self._of = _groups(parts, whole)
        sides = [0] * (max(self._of) + 1)
        for kind, gpus in enumerate(whole):
            sides[self._of[kind]] += gpus
        most = left_us / n * MORE
        ends = np.geomspace(_NARROW * most, most, _RANGES)
        self._lows = np.concatenate([[0.0], ends[:-1]])
        layers = parts[0].us.shape[0]
        shape = (layers + 1, *(side + 1 for side in sides), _RANGES)
        self._sums = np.full(shape, np.inf)
        self._sums[0] = 0
        for last in range(1, layers + 1):
            self._fill(parts, last, ends)

    def _fill(self, parts: Sequence[_Part], last: int, ends: Array) -> None:
        into = self._sums[last]
        for kind, gpus, us in parts:
            axis = self._of[kind]
            for first in np.flatnonzero(us[:, last] <= ends[-1]).tolist():
                begin = int(np.searchsorted(ends, us[first, last]))
                some = (slice(None),) * axis
                out = into[(*some, slice(gpus, None))][..., begin:]
                before = self._sums[first][(*some, slice(0, -gpus))][..., begin:]
                np.minimum(out, before + us[first, last], out=out)

    def least_us(self, layers: int, free: tuple[int, ...], row: _Row) -> float:
        """The least of a whole pipeline that ends with a row."""
        left = [0] * (self._sums.ndim - 2)
        for kind, gpus in enumerate(free):
            left[self._of[kind]] += gpus
        slowest = np.maximum(self._lows, row.slowest_us)
        whole = self._sums[(layers, *left)] + (self._n - 1) * slowest
        return row.sum_us + float(whole.min())


def _groups(parts: Sequence[_Part], whole: tuple[int, ...]) -> list[int]:
    """The group of each kind: those alike in speed, so that numbers are few."""
    speed = [math.inf] * len(whole)
    for kind, gpus, us in parts:
        speed[kind] = min(speed[kind], float(np.min(us)) * gpus)
    found = [[kind] for kind in sorted(range(len(whole)), key=lambda k: speed[k])]
    while math.prod(1 + sum(whole[k] for k in x) for x in found) > _MOST_STATES:
        if len(found) == 1:
            break
        apart = [speed[y[0]] / max(speed[x[-1]], 1e-9) for x, y in pairwise(found)]
        i = min(range(len(apart)), key=apart.__getitem__)
        found[i : i + 2] = [found[i] + found[i + 1]]
    return [i for k in range(len(whole)) for i, x in enumerate(found) if k in x]


def _keep(alike: list[_Row], row: _Row) -> None:
    """Keep a row unless an alike one is no longer, and none that is longer."""

    def no_longer(one: _Row, two: _Row) -> bool:
        return one.sum_us <= two.sum_us and one.slowest_us <= two.slowest_us

    if not any(no_longer(one, row) for one in alike):
        alike[:] = [one for one in alike if not no_longer(row, one)]
        alike.append(row)
