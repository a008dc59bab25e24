"""Cuts: the ways in which the stages of a column may share the layers."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from .columns import Column
from .stages import NEVER, Matrix, TooMany

_BLOCK = 1 << 20  # entries of a matrix that is made at a time
_ROWS = 1 << 21  # more cuts of one column are too many


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

    def samples(self, rows: Matrix, us: Matrix) -> Matrix:
        """Return the most samples that can pass within `us`, for some of the cuts."""
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
