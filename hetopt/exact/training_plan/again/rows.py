"""Least rows of stages from the last layer to the first, for the check of counts.

GPUs that are used of each kind are one number, a *state*, the last kind's changing
fastest. What a stage adds to a state it adds to whole runs of states beside each other.
"""

import math
from collections.abc import Sequence
from functools import lru_cache
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from ....errors import Unsupported
from .stages import Able, Array, Nodes, Packed

Whole = npt.NDArray[np.int64]

_ANY = 0  # way in which rows begin
_MOST_ENTRIES = 60_000_000  # of one table


class _Adding(NamedTuple):
    """What stages do to states: by how much each raises them, and which.

    Stage i raises those of the runs from `first[i]` up to `first[i + 1]`, each of which
    is from `begin` up to `end`. It is laid before rows of the table `before[i]`, and so
    makes rows of the table `into[i]`.
    """

    raised: Whole
    first: Whole
    begin: Whole
    end: Whole
    before: Whole
    into: Whole


class Rows:
    """Rows of stages of all layers on a cluster of some kinds of nodes."""

    def __init__(self, nodes: Sequence[Nodes], layers: int) -> None:
        self.nodes, self.layers = nodes, layers
        self.sides = tuple(kind.total + 1 for kind in nodes)
        self.spreading = lru_cache(None)(self._find_spreading)

    def without(self, use: tuple[int, ...]) -> tuple[slice, ...]:
        """The GPUs that others can have beside those of a stage or pipeline."""
        return tuple(slice(0, n - u) for n, u in zip(self.sides, use, strict=True))

    def times(self, stages: Able) -> Array:
        """All times of stages in us, in ascending order."""
        every = [x for each in stages.packed for x in (each.near, each.away)]
        every += stages.spread
        found: Array = np.unique(np.concatenate([x[np.isfinite(x)] for x in every]))
        return found

    def adding(
        self,
        uses: tuple[tuple[int, ...], ...],
        before: tuple[int, ...],
        into: tuple[int, ...],
    ) -> _Adding:
        """Stages that use so many GPUs of each kind, and the tables of each."""
        states = np.arange(math.prod(self.sides)).reshape(self.sides)
        first, begin, end, raised = [0], list[int](), list[int](), list[int]()
        for use in uses:
            rest = states[self.without(use)]
            if rest.size:
                begin += rest[..., 0].ravel().tolist()
                end += (rest[..., -1] + 1).ravel().tolist()
            first.append(len(begin))
            raised.append(int(states[use]) if rest.size else 0)
        each = (raised, first, begin, end, before, into)
        return _Adding(*(np.array(x, np.int64) for x in each))

    def _find_spreading(
        self, shape: tuple[int, ...], towards: int
    ) -> tuple[tuple[Whole, ...], _Adding]:
        """Spread stages that use less of each kind than `shape`, and their tables.

        Into one for each set of kinds that are used: a bit each.
        """
        uses = [u for u in np.ndindex(shape) if towards < 0 or u[towards]]
        into = tuple(sum(1 << c for c, u in enumerate(use) if u) for use in uses)
        before = (max(towards, _ANY),) * len(uses)
        each = tuple(np.array(uses, np.int64).T)
        return each, self.adding(tuple(uses), before, into)

    def least(self, stages: Able, slowest: Array) -> Array:
        """Least sums of the stages of all layers, [slowest, GPUs at most...]."""
        most = [*map(_told, stages.packed)]
        some = max(1, _MOST_ENTRIES // self.entries(most))
        parts = [
            self._least(stages, slowest[k : k + some], most)
            for k in range(0, max(1, len(slowest)), some)
        ]
        return np.concatenate(parts)

    def entries(self, most: list[list[int]]) -> int:
        """Numbers in a table of rows, for one slowest stage; `most` as `_Rows` has."""
        ways = 1 + sum(sum(each) for each in most)
        return (self.layers + 1) * ways * math.prod(self.sides)

    def _least(self, stages: Able, slowest: Array, most: list[list[int]]) -> Array:
        rows = _Rows(self, slowest, most)
        rows.end()
        rows.lay(stages, rows)
        least: Array = rows.sums[0, _ANY].reshape(len(slowest), *self.sides)
        for axis in range(1, least.ndim):
            least = np.minimum.accumulate(least, axis)
        return least

    def least_in_places(self, places: Sequence[Able], slowest: float) -> float:
        """The least sum of the stages of all layers, each in its place from the end.

        `places` are those of the last stage, of the one before it and so on, the last
        of them of all that are further away.
        """
        most = [
            sorted({c for able in places for c in _told(able.packed[kind])})
            for kind in range(len(self.nodes))
        ]
        limit, least = np.array([slowest]), math.inf
        behind = _Rows(self, limit, most)
        behind.end()
        for place in range(min(self.layers, sum(kind.total for kind in self.nodes))):
            rows = _Rows(self, limit, most)
            rows.lay(places[min(place, len(places) - 1)], behind)
            if not np.isfinite(rows.sums).any():
                break
            least = min(least, float(rows.sums[0, _ANY].min()))
            behind = rows
        return least


def _told(stages: Packed) -> list[int]:
    """The most that stages in a node may use together, where one more is worth more."""
    tables = stages.near, stages.away
    return [
        c
        for c in range(1, len(stages.near))
        if c + 1 == len(stages.near)
        or not all(np.array_equal(us[c, : c + 1], us[c + 1, : c + 1]) for us in tables)
    ]


class _Rows:
    """Least sums of the rows that begin at each layer, while they grow.

    `sums` are by layer, by how a row begins, by the slowest stage and by state. It
    begins in any way, or with stages in one node of a kind that use k of its GPUs so
    far, and no more than c in the end.
    """

    def __init__(self, owner: Rows, slowest: Array, most: list[list[int]]) -> None:
        """`most` are such numbers c, by kind."""
        self._owner, self._slowest, self._most = owner, slowest, most
        self.ways = [
            (kind, k, c)
            for kind, each in enumerate(most)
            for c in each
            for k in range(1, c + 1)
        ]
        self._number = {way: i for i, way in enumerate(self.ways, 1)}
        self._shape = (len(slowest), math.prod(owner.sides))
        layers, ways = owner.layers + 1, len(self._number) + 1
        if len(slowest) * owner.entries(most) > _MOST_ENTRIES:
            raise Unsupported(
                "so many kinds of nodes are more than a check by counts can hold: plan "
                "again to prove the bound"
            )
        self.sums = np.full((layers, ways, *self._shape), np.inf)
        # Rows that begin in a node of a kind where there is room for another stage.
        self._joined = np.full((layers, len(most), *self._shape), np.inf)
        # What stages in a node are, and what is behind them.
        self._packs = [
            ((kind, k + more, c), k, (kind, more, c) if more else None)
            for kind, whole, c in self.ways
            for more in range(whole)
            if (k := whole - more)
        ]
        self._packing = owner.adding(
            tuple(
                tuple(k * (way[0] == kind) for kind in range(len(most)))
                for way, k, _ in self._packs
            ),
            tuple(self._number[way] if way else _ANY for *_, way in self._packs),
            tuple(self._number[way] for way, *_ in self._packs),
        )

    def end(self) -> None:
        """A row may be of no stage, behind the last layer."""
        self.sums[-1, _ANY, :, 0] = 0.0

    def lay(self, stages: Able, behind: "_Rows") -> None:
        """Begin rows with stages before those rows; they may be these, which grow."""
        for first in range(self._owner.layers - 1, -1, -1):
            self._pack(first, stages.packed, behind)
            for towards, table in enumerate(stages.spread, -1):
                self._spread(first, table[..., first, :], towards, behind)
            self._close(first)

    def _pack(self, first: int, stages: Sequence[Packed], rows: "_Rows") -> None:
        """Begin rows with stages in one node: with others behind them there, or not."""
        us = [
            (stages[kind].near if behind else stages[kind].away)[c, k, first]
            for (kind, _, c), k, behind in self._packs
        ]
        out, packing = self.sums[first], self._packing
        run_by_run(out, np.array(us), rows.sums, self._slowest, packing)

    def _spread(self, first: int, us: Array, towards: int, rows: "_Rows") -> None:
        """Begin rows with stages in several nodes, one of which is the next one's.

        That is `towards` nodes of a kind, or any way where it is negative. `us` are by
        GPUs of each kind, and the last layer.
        """
        uses, spreading = self._owner.spreading(us.shape[:-1], towards)
        kinds = range(len(self._most))
        behind = rows.sums if towards < 0 else rows._joined
        began = np.full((1 << len(kinds), *self._shape), np.inf)
        run_by_run(began, us[uses], behind, self._slowest, spreading)
        for kind in (None, *kinds):
            # Rows that use a kind of nodes, among others, or any.
            some = [i for i in range(len(began)) if kind is None or i >> kind & 1]
            best = began[some].min(0)
            ways = [_ANY]
            if kind is not None:
                ways = [self._number[kind, 1, c] for c in self._most[kind] if c > 1]
            for way in ways:
                out = self.sums[first, way]
                np.minimum(out, best, out=out)

    def _close(self, first: int) -> None:
        """All stages that begin at a layer are there."""
        here = self.sums[first]
        np.minimum(here[_ANY], here[1:].min(0), out=here[_ANY])
        for kind, k, c in self.ways:
            if k < c:
                joined = self._joined[first, kind]
                np.minimum(joined, here[self._number[kind, k, c]], out=joined)


def run_by_run(
    out: Array, us: Array, behind: Array, slowest: Array, adding: _Adding
) -> None:
    """Lower `out` by stages before rows behind, by numpy.

    `out` is by table, slowest stage and state, `us` by stage and last layer, `behind`
    by that layer, table, slowest stage and state.
    """
    raised, first, begin, end, before, into = adding
    for stage, last in np.argwhere(us <= slowest[-1]).tolist():
        able = us[stage, last] <= slowest
        for run in range(first[stage], first[stage + 1]):
            low, high = begin[run], end[run]
            found = behind[last, before[stage]][able, low:high] + us[stage, last]
            some = out[into[stage], :, low + raised[stage] : high + raised[stage]]
            some[able] = np.minimum(some[able], found)
