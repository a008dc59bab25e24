"""Columns: sequences of stages, and how many samples each takes within a time.

A column whose layers are not yet cut takes, for `n` micro-batches, at least

    min over mu of  f(mu) + (n - 1) mu,    f(mu) = least sum of stages none above mu

which is exact where the sum and the maximum decide (`pipeline: critical`), and a lower
bound in lockstep. Memory depends on n: micro-batches are cut into ranges, each with
the memory of its least n. A first bound takes the least sum and the least maximum by
themselves; the whole function is computed for the columns that are left then, and
their stages share the layers in all ways (`cuts_within`).
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from .stages import NEVER, Matrix, Stage, StageTables, TooMany

_POINTS = 64  # of f; where there are more, f is bounded from below between them
_BLOCK = 1 << 20  # entries of a matrix that is made at a time
_ROWS = 1 << 21  # more cuts of one column are too many


@dataclass(frozen=True)
class Range:
    """A range of micro-batches, with the least sum and maximum of stages in it."""

    least: int
    most: int
    total: int
    slowest: int


@dataclass(eq=False)
class Column:
    """A column is a sequence of stages for micro-batches of `size` samples."""

    tables: StageTables
    size: int
    stages: tuple[Stage, ...]
    used: tuple[int, ...]
    ranges: list[Range]

    def __post_init__(self) -> None:
        """Bound samples by the least sum and the least maximum, until `tighten`."""
        self._lines = [
            (part, np.array([part.slowest]), np.array([part.total]))
            for part in self.ranges
        ]

    def samples(self, us: int) -> int:
        """Return the most samples that may pass within `us`; 0 where none do."""
        each = (_micro_batches(*line, us) for line in self._lines)
        return self.size * max(each, default=0)

    def tighten(self, us: int, samples: int) -> None:
        """Compute f for the slowest stages with which `samples` can pass in `us`."""
        wanted = max(1, -(-samples // self.size))
        self._lines = []
        for part in self.ranges:
            if part.most < wanted or part.total > us:
                continue
            n = max(wanted, part.least)
            high = (us - part.total) // (n - 1) if n > 1 else us
            self._lines.append((part, *self._points(part, min(high, us))))

    def _points(self, part: Range, high: int) -> tuple[Matrix, Matrix]:
        tables = [self.times(j, part.least) for j in range(len(self.stages))]
        values = np.unique(np.concatenate([t.ravel() for t in tables]))
        values = values[(values >= part.slowest) & (values <= high)]
        low = values
        if len(values) > _POINTS:
            edges = np.linspace(0, len(values), _POINTS + 1).astype(int)
            low, values = values[edges[:-1]], values[edges[1:] - 1]
        below = np.full((len(values), self.tables.layers + 1), NEVER)
        below[:, -1] = 0
        for times in reversed(tables):
            open_ = np.where(times[None] <= values[:, None, None], times, NEVER)
            below = np.minimum((open_ + below[:, None, :]).min(axis=2), NEVER)
        return low, below[:, 0]

    def times(self, j: int, n: int) -> Matrix:
        """Return times of stage `j` over runs that fit with `n` micro-batches."""
        fits = self.most(j) >= n
        return np.where(fits, self.stage_us[j], NEVER)

    def most(self, j: int) -> Matrix:
        """Return the most micro-batches with which each run fits stage `j`."""
        behind = len(self.stages) - 1 - j
        return np.asarray(self.tables.most(self.stages[j], behind))

    @cached_property
    def groups(self) -> list[list[tuple[int, int]]]:
        """Return pool and GPUs of the replicas of each stage."""
        return [
            [(replica.pool, replica.t) for replica in stage] for stage in self.stages
        ]

    @cached_property
    def stage_us(self) -> list[Matrix]:
        """Return times of each stage over each run of layers, with its transfer."""
        tables = self.tables
        hops = [*(tables.hop_us(*pair) for pair in pairwise(self.stages)), 0]
        each = map(tables.compute_us, self.stages)
        return [us + hop for us, hop in zip(each, hops, strict=True)]


def _micro_batches(part: Range, slowest: Matrix, total: Matrix, us: int) -> int:
    open_ = total <= us
    if not open_.any():
        return 0
    slowest, total = slowest[open_], total[open_]
    if slowest.min() == 0:
        return part.most
    n = int(((us - total) // slowest).max()) + 1
    return min(n, part.most) if n >= part.least else 0


@dataclass(frozen=True)
class Cuts:
    """The cuts of one column: the first layer of each stage, then the number of all."""

    column: Column
    cuts: Matrix

    @cached_property
    def _taus(self) -> Matrix:
        return np.stack(
            [
                self.column.stage_us[j][self.cuts[:, j], self.cuts[:, j + 1]]
                for j in range(len(self.column.stages))
            ],
            axis=1,
        )

    @cached_property
    def slowest(self) -> Matrix:
        """Return the slowest stage of each cut, in us."""
        return np.asarray(self._taus.max(axis=1))

    @cached_property
    def first_us(self) -> Matrix:
        """Return pipeline times of 1, 2, ... micro-batches, as many as stages."""
        taus, count = self._taus, len(self.column.stages)
        if self.column.tables.costs.schedule.pipeline == "critical":
            more = np.arange(count)[None] * self.slowest[:, None]
            return np.asarray(taus.sum(axis=1)[:, None] + more)
        return np.stack([_lockstep(taus, n) for n in range(1, count + 1)], axis=1)

    @cached_property
    def most(self) -> Matrix:
        """Return the most micro-batches that memory and the batch allow."""
        fitting = [
            self.column.most(j)[self.cuts[:, j], self.cuts[:, j + 1]]
            for j in range(len(self.column.stages))
        ]
        limit = self.column.tables.batch // self.column.size
        return np.asarray(np.minimum(np.min(fitting, axis=0), limit))

    @cached_property
    def stage_of(self) -> NDArray[np.int16]:
        """Return the stage of each layer, by cut."""
        layers = np.arange(self.column.tables.layers)
        inner = self.cuts[:, 1:-1]
        found = np.zeros((len(self.cuts), len(layers)), dtype=np.int16)
        for j in range(inner.shape[1]):
            found += layers[None] >= inner[:, j : j + 1]
        return found

    @cached_property
    def hidden(self) -> Matrix:
        """Return backward times of the stages before each, which hide its sync."""
        found = np.zeros(self._taus.shape, dtype=np.int64)
        if self.column.tables.costs.updates.sync_overlap == "backward":
            for j, stage in enumerate(self.column.stages[:-1]):
                behind = self.column.tables.backward_us(stage)
                taken = behind[self.cuts[:, j], self.cuts[:, j + 1]]
                found[:, j + 1] = found[:, j] + taken
        return found

    def samples(self, rows: Matrix | slice, us: Matrix) -> Matrix:
        """Return the most samples that can pass within `us`, for some of the cuts.

        `us` is one time for all of them, or one for each.
        """
        first, slowest = self.first_us[rows], self.slowest[rows]
        n = (first <= us[:, None]).sum(axis=1)
        full = n == first.shape[1]
        more = (us - first[:, -1]) // np.maximum(slowest, 1)
        more[slowest == 0] = NEVER
        n = np.where(full, n + np.maximum(more, 0), n)
        return np.asarray(np.minimum(n, self.most[rows]) * self.column.size)


def _lockstep(taus: Matrix, n: int) -> Matrix:
    """Return the sum over time slots of the slowest stage that is active in each."""
    count = taus.shape[1]
    slots = [
        taus[:, max(0, slot - n + 1) : slot + 1].max(axis=1)
        for slot in range(count + n - 1)
    ]
    return np.asarray(np.sum(slots, axis=0))


def cuts_within(
    column: Column,
    n: int,
    us: int,
    allowed: Sequence[NDArray[np.bool_]],
    check: Callable[[], None],
) -> Cuts:
    """Return every cut with which `n` micro-batches pass within `us`.

    `allowed` says for each stage which runs of layers are of interest. In lockstep
    some cuts may take longer than `us`, none that does not is left out. `TooMany`
    where there are more than memory should hold.
    """
    tables = [
        np.where(mask, column.times(j, n), NEVER) for j, mask in enumerate(allowed)
    ]
    width = column.tables.layers + 1
    sums = [np.full(width, NEVER) for _ in range(len(tables) + 1)]
    sums[-1][-1] = 0
    maxima = [row.copy() for row in sums]
    for j in range(len(tables) - 1, -1, -1):
        sums[j] = np.minimum((tables[j] + sums[j + 1][None]).min(axis=1), NEVER)
        maxima[j] = np.maximum(tables[j], maxima[j + 1][None]).min(axis=1)
    cuts = np.zeros((1, 1), dtype=np.int64)
    total = top = np.zeros(1, dtype=np.int64)
    for j, table in enumerate(tables):
        parts = []
        step = max(1, _BLOCK // width)
        for start in range(0, max(1, len(cuts)), step):
            check()
            block = slice(start, start + step)
            tau = table[cuts[block, -1]]
            least = total[block, None] + tau + sums[j + 1][None]
            slow = np.maximum(np.maximum(top[block, None], tau), maxima[j + 1][None])
            within = (least + (n - 1) * slow <= us) & (slow < NEVER) & (least < NEVER)
            row, last = np.nonzero(within)
            parts.append((row + start, last, tau[row, last]))
        rows, last, taus = map(np.concatenate, zip(*parts, strict=True))
        if len(rows) > _ROWS:
            raise TooMany
        cuts = np.concatenate([cuts[rows], last[:, None]], axis=1)
        total, top = total[rows] + taus, np.maximum(top[rows], taus)
    return Cuts(column, cuts)
