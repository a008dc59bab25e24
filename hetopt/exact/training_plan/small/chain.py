"""Rows of stages on a small cluster, and how many samples each can do in a time.

A row whose layers are not yet cut takes, for `n` micro-batches, at least

    min over mu of  f(mu) + (n - 1) mu,    f(mu) = least sum of stages none above mu

which is exact where the sum and the maximum decide (`pipeline: critical`), and a lower
bound in lockstep. Memory depends on n: micro-batches are cut into ranges, each with
the memory of its least n. A first bound takes the least sum and the least maximum by
themselves; the whole function is computed for the rows that are still of interest.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from functools import cached_property
from itertools import islice
from math import inf

import numpy as np

from .stages import NEVER, Matrix, Stage, StageTables, TooMany

_MOST_STAGES = 5_000  # of one size of micro-batches
_MOST_TRIED = 1_500_000  # stages put before rows, each in some us
_POINTS = 64  # of f; where there are more, f is bounded from below between them


@dataclass(frozen=True)
class Range:
    """Micro-batches `least` to `most`, and the least sum and maximum of the row."""

    least: int
    most: int
    total: int
    slowest: int


@dataclass(eq=False)
class Chain:
    """A row of stages for micro-batches of `size` samples."""

    tables: StageTables
    size: int
    stages: tuple[Stage, ...]
    used: tuple[int, ...]
    ranges: list[Range]
    lines: list[tuple[Range, Matrix, Matrix]] = field(default_factory=list)

    def samples(self, us: int) -> int:
        """No more samples than this pass within `us`; 0 where none."""
        best = 0
        for part in self.ranges:
            total, slowest = np.array([part.total]), np.array([part.slowest])
            best = max(best, _micro_batches(part, slowest, total, us))
        return best * self.size

    def samples_sharp(self, us: int) -> int:
        """The same, sharper; only after `sharpen`."""
        return self.size * max(
            (_micro_batches(*line, us) for line in self.lines), default=0
        )

    def sharpen(self, us: int, samples: int) -> None:
        """Compute f for the slowest stages with which `samples` can pass in `us`."""
        wanted = max(1, -(-samples // self.size))
        self.lines = []
        for part in self.ranges:
            if part.most < wanted or part.total > us:
                continue
            n = max(wanted, part.least)
            high = (us - part.total) // (n - 1) if n > 1 else us
            self.lines.append((part, *self._points(part, min(high, us))))

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
        """Time of stage `j` over each run of layers that fits with `n` in the batch."""
        fits = self.most(j) >= n
        return np.where(fits, self.stage_us[j], NEVER)

    def most(self, j: int) -> Matrix:
        """Most micro-batches for which each run of layers fits on stage `j`."""
        behind = len(self.stages) - 1 - j
        return self.tables.most(self.stages[j], j == 0, behind)

    @cached_property
    def groups(self) -> list[list[tuple[int, int]]]:
        """Pool and GPUs of the replicas of each stage."""
        return [[(place.pool, place.t) for place in stage] for stage in self.stages]

    @cached_property
    def stage_us(self) -> list[Matrix]:
        """Time of each stage over each run of layers, with its hop."""
        return [
            _with_hop(self.tables, stage, self.stages[j + 1 : j + 2])
            for j, stage in enumerate(self.stages)
        ]


def _micro_batches(part: Range, slowest: Matrix, total: Matrix, us: int) -> int:
    open_ = total <= us
    if not open_.any():
        return 0
    slowest, total = slowest[open_], total[open_]
    if slowest.min() == 0:
        return part.most
    n = int(((us - total) // slowest).max()) + 1
    return min(n, part.most) if n >= part.least else 0


def _with_hop(tables: StageTables, stage: Stage, behind: tuple[Stage, ...]) -> Matrix:
    times = tables.compute_us(stage, not behind)
    return np.asarray(times + tables.hop_us(stage, behind[0]) if behind else times)


def chains(
    tables: StageTables,
    size: int,
    replicas: int,
    us: int,
    check: Callable[[], None],
    patient: bool = True,
) -> list[Chain]:
    """Every row of stages that may be part of a plan whose pipelines end within `us`.

    Left out are rows without a cut that fits, and rows that use their GPUs so badly
    that all others together cannot make up for it. `TooMany` where that takes long,
    unless one is `patient`.
    """
    stages = tables.stages(size, replicas, check)
    some = [*islice(stages, None if patient else _MOST_STAGES + 1)]
    if not patient and len(some) > _MOST_STAGES:
        raise TooMany
    most = inf if patient else _MOST_TRIED
    return [*_Lister(tables, size, some, us, check, most).grow((), tables.gpus)]


class _Lister:
    """Lists rows of stages from the last stage to the first."""

    def __init__(
        self,
        tables: StageTables,
        size: int,
        stages: list[tuple[Stage, tuple[int, ...]]],
        us: int,
        check: Callable[[], None],
        most: float,
    ) -> None:
        self._tables, self._size, self._us, self._check = tables, size, us, check
        self._stages, self._most, self._tried = stages, most, 0
        self._ends = _ends(tables, size)
        self._least = np.array(self._ends)[:, None, None]
        self._fluid = tables.fluid
        start = np.full(tables.layers + 1, NEVER)
        start[-1] = 0
        self._start = np.repeat(start[None], len(self._ends), axis=0)

    def grow(
        self,
        behind: tuple[Stage, ...],
        free: tuple[int, ...],
        least: tuple[Matrix, Matrix] | None = None,
    ) -> Iterator[Chain]:
        """Put every stage in front of `behind`, of `least` sums and maxima."""
        self._check()
        self._tried += len(self._stages)
        if self._tried > self._most:
            raise TooMany
        tables, before = self._tables, least or (self._start, self._start)
        for stage, used in self._stages:
            left = tuple(f - u for f, u in zip(free, used, strict=True))
            if min(left) < 0:
                continue
            row = (stage, *behind)
            us = _with_hop(tables, stage, behind[:1])
            total, top = self._fronted(stage, us, len(behind), before, first=True)
            if self._promising(total[:, :1], top[:, :1], left, slice(1)):
                gpus = tuple(g - f for g, f in zip(tables.gpus, left, strict=True))
                limit = list(
                    _ranges(tables, self._size, self._ends, len(row), total, top)
                )
                if limit:
                    yield Chain(tables, self._size, row, gpus, limit)
            if len(row) < tables.layers and any(left):
                both = self._fronted(stage, us, len(behind), before, first=False)
                ahead = slice(1, None)
                if self._promising(both[0][:, 1:], both[1][:, 1:], left, ahead):
                    yield from self.grow(row, left, both)

    def _fronted(
        self,
        stage: Stage,
        us: Matrix,
        behind: int,
        before: tuple[Matrix, Matrix],
        first: bool,
    ) -> tuple[Matrix, Matrix]:
        """Least sums and maxima over the layers from each on, with one more stage."""
        fits = np.where(
            self._tables.most(stage, first, behind)[None] >= self._least, us, NEVER
        )
        sums, tops = before
        total = np.minimum((fits + sums[:, None, :]).min(axis=2), NEVER)
        return total, np.maximum(fits, tops[:, None, :]).min(axis=2)

    def _promising(
        self, total: Matrix, top: Matrix, left: tuple[int, ...], starts: slice
    ) -> bool:
        """Whether the batch can be done with stages in front, on what GPUs are left.

        The rows begin with the layers that `starts` says. n samples through one cost
        the GPUs left at least the share of the layers in front; what then remains of
        their time does the other samples.
        """
        open_ = total <= self._us
        if self._fluid is None or not open_.any():
            return bool(open_.any())
        rates, shares = self._fluid[0].tolist(), self._fluid[1][starts]
        limit = self._tables.batch // self._size
        n = np.minimum((self._us - total) // np.maximum(top, 1) + 1, limit)
        n = np.where(top == 0, limit, n) * self._size
        mine = np.where(open_, n * (1 - shares[None]), -np.inf).max()
        rest = sum(
            count * rate * self._us for count, rate in zip(left, rates, strict=True)
        )
        # Floats: a little more is allowed than the bound says.
        return bool(mine + rest >= self._tables.batch * (1 - 1e-9))


def _ends(tables: StageTables, size: int) -> list[int]:
    """The least n of each range of micro-batches, but for the rows' own lengths."""
    costs = tables.costs
    if costs.in_flight == "one" or costs.activations == "checkpoint":
        return [1]
    if costs.in_flight == "1f1b":
        return [sum(tables.gpus), 1]
    return [1 << k for k in range((tables.batch // size).bit_length())]


def _ranges(
    tables: StageTables,
    size: int,
    ends: list[int],
    length: int,
    total: Matrix,
    top: Matrix,
) -> Iterator[Range]:
    limit = tables.batch // size
    for k, least in enumerate(ends):
        if tables.costs.in_flight == "gpipe" and len(ends) > 1:
            most = min(limit, 2 * least - 1)
        elif len(ends) == 1:
            most = limit
        else:  # as many in flight as stages, or fewer
            least, most = (length, limit) if least > 1 else (1, length - 1)
            most = min(most, limit)
        if least <= most and total[k, 0] < NEVER:
            yield Range(least, most, int(total[k, 0]), int(top[k, 0]))
