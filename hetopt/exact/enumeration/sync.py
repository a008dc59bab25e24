"""Synchronisation of a packing, before and after the layers are cut."""

from collections.abc import Sequence
from functools import cached_property
from itertools import product

import numpy as np

from .columns import Column
from .stages import Matrix, StageTables


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
        each = self.table.reshape(len(self.table), -1).min(1)
        total = int(each[self._tables.size_of].sum()) + self.embedding + self.head
        return max(starts, -(-total // fewest))

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
