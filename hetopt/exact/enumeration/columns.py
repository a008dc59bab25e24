"""Columns: sequences of stages, and how many samples each takes within a time.

A column whose layers are not yet cut takes, for `n` micro-batches, at least

    min over mu of  f(mu) + (n - 1) mu,    f(mu) = least sum of stages none above mu

which is exact where the sum and the maximum decide (`pipeline: critical`), and a lower
bound in lockstep. Memory depends on n: micro-batches are cut into ranges, each with
the memory of its least n. A first bound takes the least sum and the least maximum by
themselves; the whole function is computed for the columns that are left then.
"""

from dataclasses import dataclass, field
from functools import cached_property
from itertools import pairwise

import numpy as np

from .stages import NEVER, Matrix, Stage, StageTables

_POINTS = 64  # of f; where there are more, f is bounded from below between them


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
    lines: list[tuple[Range, Matrix, Matrix]] = field(default_factory=list)

    def samples(self, us: int) -> int:
        """Return the most samples that may pass within `us`; 0 where none do."""
        best = 0
        for part in self.ranges:
            total, slowest = np.array([part.total]), np.array([part.slowest])
            best = max(best, _micro_batches(part, slowest, total, us))
        return best * self.size

    def tight_samples(self, us: int) -> int:
        """Return a tighter bound than `samples` does; only after `tighten`."""
        return self.size * max(
            (_micro_batches(*line, us) for line in self.lines), default=0
        )

    def tighten(self, us: int, samples: int) -> None:
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
        """Return times of stage `j` over runs that fit with `n` micro-batches."""
        fits = self.most(j) >= n
        return np.where(fits, self.stage_us[j], NEVER)

    def most(self, j: int) -> Matrix:
        """Return the most micro-batches with which each run fits stage `j`."""
        behind = len(self.stages) - 1 - j
        return self.tables.most(self.stages[j], behind)

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
