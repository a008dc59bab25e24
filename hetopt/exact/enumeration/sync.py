"""Synchronisation of a packing, before and after the layers are cut."""

from collections.abc import Sequence
from functools import cached_property, lru_cache
from itertools import product

import numpy as np

from .columns import Column
from .stages import NEVER, Matrix, StageTables


class SyncTimes:
    """Times to synchronise a layer, by its size and its stage in each column."""

    def __init__(
        self,
        tables: StageTables,
        columns: Sequence[Column],
        kept: dict[object, int],
    ) -> None:
        """Keep what is computed in `kept`, which all packings of a run share."""
        self._tables, self._columns, self._kept = tables, columns, kept
        self._groups = [column.groups for column in columns]
        shape = tuple(len(column.stages) for column in columns)
        sizes = tables.sizes
        self.table = np.zeros((len(sizes), *shape), dtype=np.int64)
        for where in product(*map(range, shape)):
            for c, parameters in enumerate(sizes):
                self.table[(c, *where)] = self._one(parameters, where)
        self.embedding = self.head = 0
        if (end := tables.table.exchanged.end) is not None:
            self.embedding = self._one(end, (0,) * len(shape))
            self.head = self._one(end, tuple(n - 1 for n in shape))
        self.overlap = tables.costs.updates.sync_overlap == "backward"

    def _one(self, parameters: int, where: tuple[int, ...]) -> int:
        groups: list[tuple[int, int]] = []
        for rows, j in zip(self._groups, where, strict=True):
            groups += rows[j]
        key = (parameters, *sorted(groups))
        found = self._kept.get(key)
        if found is None:
            found = self._kept[key] = self._tables.sync_us(parameters, groups)
        return found

    @cached_property
    def least(self) -> int:
        """Return a lower bound on the synchronisation, whatever the cuts."""
        first = self.table[(self._tables.size_of[0], *[0] * len(self._columns))]
        starts = int(first) + self.embedding
        if self.overlap:
            return starts
        # The stages of a column hold all layers between them.
        fewest = min(len(column.stages) for column in self._columns)
        total = self._least_total() + self.embedding + self.head
        return max(starts, -(-total // fewest))

    def _least_total(self) -> int:
        """Return the least sum over layers, stages in order in each column."""
        shape = self.table.shape[1:]
        moves = _moves(shape)
        flat = self.table.reshape(self.table.shape[0], -1)
        reached = np.full(len(moves), NEVER)
        reached[0] = flat[self._tables.size_of[0], 0]
        if len(flat) == 1:
            return self._equal_layers(reached, moves + flat)
        for size in self._tables.size_of[1:]:
            reached = (reached[:, None] + moves).min(axis=0) + flat[size]
            reached = np.minimum(reached, NEVER)
        return int(reached[-1])

    def _equal_layers(self, reached: Matrix, step: Matrix) -> int:
        """Return the least sum of equal layers, by powers of one step."""
        left = self._tables.layers - 1
        while left:
            if left & 1:
                reached = np.minimum((reached[:, None] + step).min(axis=0), NEVER)
            left >>= 1
            if left:
                twice = (step[:, :, None] + step[None, :, :]).min(axis=1)
                step = np.minimum(twice, NEVER)
        return int(reached[-1])

    def runs_of(self, i: int) -> list[Matrix]:
        """Return least synchronisations of runs of layers on each stage of column `i`.

        What backward passes hide is unknown, and so nothing is left of later stages.
        """
        others = tuple(k + 1 for k in range(len(self._columns)) if k != i)
        least = self.table.min(axis=others)
        found = []
        for j in range(least.shape[1]):
            each = least[self._tables.size_of, j]
            ahead = np.cumsum([0, *each], dtype=np.int64)
            runs = ahead[None, :] - ahead[:, None]
            runs = runs + (self.embedding if j == 0 else 0)
            runs = runs + (self.head if j == least.shape[1] - 1 else 0)
            found.append(np.zeros_like(runs) if self.overlap and j else runs)
        return found

    def least_of_first(self, count: int) -> Matrix:
        """Return least times by size and joint stage of the first `count` columns."""
        rest = tuple(range(count + 1, self.table.ndim))
        least = self.table.min(axis=rest) if rest else self.table
        return np.asarray(least.reshape(least.shape[0], -1))


@lru_cache(maxsize=1_000)
def _moves(shape: tuple[int, ...]) -> Matrix:
    """Return 0 between joint stages of neighbouring layers, NEVER elsewhere."""
    states = np.array(list(product(*map(range, shape))))
    step = states[None, :, :] - states[:, None, :]
    return np.where(((step >= 0) & (step <= 1)).all(axis=2), 0, NEVER)
