"""A pipeline of micro-batches of one sequence within a time, node by node.

Its stages have one replica each, so that nothing synchronises. They are placed from the
last one to the first, in every way but those that are alike: with equal nodes in other
places, or no shorter in sum and slowest stage. What cannot be within the time with the
least that its other layers take on the GPUs left, wherever these are, is dropped. The
method (`one_pipeline`) halves ranges of the slowest stage, with prices of GPUs.
"""

import math
from bisect import bisect_left
from collections.abc import Iterator, Sequence
from functools import cached_property
from itertools import accumulate, chain, pairwise, product
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from ...caching import cached_method
from ...costs import CostTable, Position, memory
from ...errors import Unsupported
from ...modelling import look
from ...schema import Instance

Array = npt.NDArray[np.int64]

_NEVER = 1 << 60  # us

_RANGES = 128  # of the slowest stage at the most, for what layers take at the least
_LOOKS = 3  # at the ranges, each from where pipelines may be as quick
_MOST_STATES = 40_000  # numbers of GPUs by group of kinds,
_MOST_CELLS = 30_000_000  # and these by layers and ranges
_MOST_LAID = 20_000_000  # stages

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
    """Single pipelines of one instance, looked at one by one."""

    def __init__(self, instance: Instance) -> None:
        """Take the instance's own settings."""
        table = self._table = CostTable(instance)
        self._layers, self._n = table.layers, table.workload.global_batch
        nodes = table.cluster.nodes
        self._names = [node.name for node in nodes]
        self._gpus = [node.count for node in nodes]
        classes = [table.node_class[name] for name in self._names]
        self._kind = [[*dict.fromkeys(classes)].index(each) for each in classes]
        # Nodes stand for each other where links to all others are the same.
        self._pairs = bool(table.cluster.inter.pairs)
        same = [*zip(self._kind, self._gpus, strict=True)]
        self._alike = [i if self._pairs else same.index(x) for i, x in enumerate(same)]
        self._begins: dict[tuple[object, ...], int] = {}
        self._refuted_us = -1

    @property
    def _possible(self) -> bool:
        workload, costs = self._table.workload, self._table.workload.costs
        chosen = (workload.recomputes, workload.zeros, workload.splits)
        return (
            costs.schedule.pipeline == "critical"
            and costs.links.hops == "sender"
            and costs.schedule.interleave
            == costs.compute.context_parallel
            == costs.compute.expert_parallel
            == 1
            and not costs.updates.zero
            and all(len(offers) == 1 for offers in chosen)
        )

    def refute(self, left_us: int) -> bool:
        """Tell whether all take longer than `left_us`, beside factors and overheads.

        Raises `Unsupported` where there are too many to look at.
        """
        if left_us > self._refuted_us and self._possible and not self._within(left_us):
            self._refuted_us = left_us
        return left_us <= self._refuted_us

    def _within(self, left_us: int) -> bool:
        rest, placed = _Rest(self._parts, self._kind, self._gpus, left_us, self._n), 0
        start = _Row(-1, 0, 0, tuple(self._gpus), 0, 0)
        rows = {self._layers: {self._shape(start): [start]}}
        for last in range(self._layers, 0, -1):
            every = chain.from_iterable(rows.pop(last, {}).values())
            longer = (self._longer(row, last, left_us // self._n) for row in every)
            for first, row in chain.from_iterable(longer):
                look()
                placed += 1
                if placed > _MOST_LAID:
                    raise Unsupported(
                        "single pipelines are more than a check can look at: plan "
                        "again to prove the bound"
                    )
                if rest.least_us(first, row) > left_us:
                    continue
                if first == 0:
                    return True
                kept = rows.setdefault(first, {})
                _keep(kept.setdefault(self._shape(row), []), row)
        return False

    def _shape(self, row: _Row) -> tuple[object, ...]:
        """Equal for rows that can go on alike."""
        nodes = zip(self._alike, row.free, strict=True)
        free = sorted((x, left, i == row.node) for i, (x, left) in enumerate(nodes))
        return row.degree, self._flight(row.stages + 1), tuple(free)

    def _flight(self, place: int) -> object:
        """Equal for places from the end that need as much memory."""
        return memory.in_flight(self._table.workload.costs, self._n, place, 0)

    def _longer(self, row: _Row, last: int, most_us: int) -> Iterator[tuple[int, _Row]]:
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
                    if us + hop > most_us:
                        break
                    slowest = max(row.slowest_us, us + hop)
                    times = row.sum_us + us + hop, slowest
                    yield first, _Row(node, t, row.stages + 1, free, *times)

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
        begin = self._begin(node, t, last, place)
        if table.is_paced and t == 1 and last == self._layers:
            begin = max(1, begin)  # a plan on one GPU, which others look at
        for first in range(last - 1, begin - 1, -1):
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
        key = (self._kind[node], t, last, self._flight(place))
        if key not in self._begins:
            self._begins[key] = self._find_begin(self._names[node], t, last, place)
        return self._begins[key]

    def _find_begin(self, name: str, t: int, last: int, place: int) -> int:
        table = self._table

        def fits(first: int) -> bool:
            j = min(1, first)
            run = range(first, last)
            need = table.stage_mib(name, run, (t, 1), Position(self._n, place + j, j))
            return sum(need.values()) <= table.memory_mib(name)

        # What fits fits without its first layers, too.
        found = 1 + bisect_left(range(1, last), True, key=fits)
        return 0 if found == 1 and fits(0) else found

    @cached_method
    def _hop_us(self, node: int, receiver: int, t: int) -> int:
        return self._table.hop_us(self._names[node], self._names[receiver], t, 1)

    @cached_property
    def _parts(self) -> "list[_Part]":
        """Every stage that there can be, with the least hop, by kind and degree."""
        found = []
        for kind in sorted(set(self._kind)):
            alike = (i for i, each in enumerate(self._kind) if each == kind)
            node, hop = max(alike, key=self._gpus.__getitem__), self._least_hop(kind)
            for t in range(1, self._gpus[node] + 1):
                us = np.full((self._layers, self._layers + 1), _NEVER)
                for last in range(1, self._layers + 1):
                    ends = last == self._layers
                    for first, took in self._stages(node, t, last, 1 if ends else 2):
                        us[first, last] = took + (0 if ends else hop)
                found.append(_Part(kind, t, us))
        return found

    def _least_hop(self, kind: int) -> int:
        of_kind = self._kind
        # Where links do not differ by pair, two nodes of a kind represent all.
        nodes = [
            i
            for i, each in enumerate(of_kind)
            if self._pairs or of_kind[:i].count(each) < 2
        ]
        mine = [i for i in nodes if of_kind[i] == kind]
        hops = (
            self._hop_us(i, j, 1)
            for i, j in product(mine, nodes)
            if i != j or self._gpus[i] > 1
        )
        return min(hops, default=0)


class _Part(NamedTuple):
    """A stage on so many GPUs of a kind: its least time by [first, last]."""

    kind: int
    gpus: int
    us: Array


class _Rest:
    """The least that the first layers take, by the GPUs that are left for them.

    In ranges of the slowest stage; kinds with too many numbers of GPUs are one.
    """

    def __init__(
        self,
        parts: Sequence[_Part],
        kinds: Sequence[int],
        gpus: Sequence[int],
        left_us: int,
        n: int,
    ) -> None:
        """`kinds` and `gpus` are of the nodes."""
        self._n = n
        self._of = _groups(parts, kinds, gpus)
        self._of_node = [self._of[kind] for kind in kinds]
        sides = self._left(gpus)
        layers, most = parts[0].us.shape[0], left_us // n
        shape = (layers + 1, *(side + 1 for side in sides))
        ranges = min(_RANGES, max(2, _MOST_CELLS // math.prod(shape)))
        least = most // 2
        for _ in range(_LOOKS):
            ends = np.unique(np.linspace(least, most, ranges, dtype=np.int64))
            self._lows = np.concatenate([[0], ends[:-1] + 1])
            self._sums = np.full((*shape, len(ends)), _NEVER)
            self._sums[0] = 0
            for last in range(1, layers + 1):
                look()
                self._fill(parts, last, ends)
            quick = self._sums[(-1, *sides)] < _NEVER
            if not quick.any():
                break
            # All that are quicker than the first of the ranges are none.
            least = int(ends[max(0, int(quick.argmax()) - 1)])

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

    def _left(self, free: Sequence[int]) -> list[int]:
        found = [0] * (max(self._of) + 1)
        for group, gpus in zip(self._of_node, free, strict=True):
            found[group] += gpus
        return found

    def least_us(self, layers: int, row: _Row) -> int:
        """Return the least of a whole pipeline that ends with a row."""
        slowest = np.maximum(self._lows, row.slowest_us)
        whole = self._sums[(layers, *self._left(row.free))] + (self._n - 1) * slowest
        return row.sum_us + int(whole.min())


def _groups(
    parts: Sequence[_Part], kinds: Sequence[int], gpus: Sequence[int]
) -> list[int]:
    """The group of each kind: those alike in speed, so that numbers are few."""
    whole = [0] * (max(kinds) + 1)
    for kind, count in zip(kinds, gpus, strict=True):
        whole[kind] += count
    speed = [math.inf] * len(whole)
    for kind, t, us in parts:
        speed[kind] = min(speed[kind], float(np.min(us)) * t)
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
