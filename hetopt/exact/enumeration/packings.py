"""Packings of columns that use no GPU twice and may do the batch in time.

What a packing synchronises is known before the layers are cut, and after.
"""

from collections.abc import Callable, Iterator, Sequence
from functools import cached_property
from itertools import permutations, product

import numpy as np

from ...caching import cached_method
from ..pipelines.kernels import States, most_taken
from .columns import Column
from .stages import Matrix, StageTables

Used = tuple[int, ...]


def most_together(states: States, used: Matrix, samples: Matrix) -> Matrix:
    """Return the most samples that columns take together, by the number of a state."""
    one = np.zeros(len(states.use), np.int64)
    np.maximum.at(one, used @ states.strides, samples)
    exactly, _ = most_taken(one, states, 1, int(states.gpus.sum()))
    return np.asarray(exactly.max(0))


def useful(
    tables: StageTables, columns: Sequence[Column], samples: Sequence[int]
) -> list[tuple[Column, int]]:
    """Return columns that a packing of the batch may hold, with their least shares."""
    states, used = States.of(tables.gpus), _used(tables, columns)
    most = most_together(states, used, np.array(samples, np.int64))
    # GPUs that a column leaves are numbered from the end.
    share = tables.batch - most[::-1][used @ states.strides]
    rows = zip(columns, samples, share.tolist(), strict=True)
    return [(column, least) for column, s, least in rows if s and s >= least]


def _used(tables: StageTables, columns: Sequence[Column]) -> Matrix:
    """Return the GPUs of columns, by [column, pool]."""
    used = [column.used for column in columns]
    return np.array(used, np.int64).reshape(-1, len(tables.gpus))


def tightened(
    tables: StageTables, columns: Sequence[Column], us: int, check: Callable[[], None]
) -> list[Column]:
    """Return columns that are of use within `us`, with sharper bounds of samples."""
    pairs = useful(tables, columns, [column.samples(us) for column in columns])
    for column, share in pairs:
        check()
        column.tighten(us, share)
    return [column for column, _ in pairs]


def lasting(
    tables: StageTables, columns: Sequence[Column], us: int
) -> tuple[list[Column], list[int]]:
    """Return tightened columns that are of use together, and their most samples."""
    left = [*columns]
    while True:
        most = [column.samples(us) for column in left]
        pairs = useful(tables, left, most)
        if len(pairs) == len(left):
            return left, most
        left = [column for column, _ in pairs]


def is_enough(tables: StageTables, chosen: Sequence[Column], us: int) -> bool:
    """Tell whether columns may take the batch together within a time."""
    each = [column.samples(us) for column in chosen]
    return us >= 0 and min(each) > 0 and sum(each) >= tables.batch


class Packings:
    """Packings of columns, one of those that differ by names of equal nodes only."""

    def __init__(
        self,
        tables: StageTables,
        columns: Sequence[Column],
        samples: Sequence[int],
        check: Callable[[], None],
        count: int | None = None,
    ) -> None:
        """Put columns together, each of which takes `samples` in time at the most.

        With a `count` packings have so many columns.
        """
        self._tables, self._check, self._count = tables, check, count
        self._renamings = list(_renamings(tables))
        keys = {id(column): self._least_key((column,)) for column in columns}
        order = sorted(
            zip(columns, samples, strict=True),
            key=lambda pair: (-pair[1], keys[id(pair[0])], _key(pair[0])),
        )
        self._columns = [column for column, _ in order]
        self._samples = np.array([s for _, s in order], dtype=np.int64)
        # Some renaming makes the first column of a packing the least of its kind.
        self._leads = np.array(
            [keys[id(column)] == (_key(column),) for column in self._columns],
            dtype=bool,
        )
        self._states, self._used = States.of(tables.gpus), _used(tables, self._columns)
        self._most = most_together(self._states, self._used, self._samples)

    def __iter__(self) -> Iterator[tuple[Column, ...]]:
        seen = set()
        for chosen in self._extend((), self._tables.gpus, self._tables.batch, 0):
            columns = tuple(self._columns[k] for k in chosen)
            gpus = sum(sum(column.used) for column in columns)
            if gpus == 1 and self._tables.table.is_paced:
                continue  # a plan on one GPU, which takes another time
            if len(self._renamings) > 1:
                key = self._least_key(columns)
                if key in seen:
                    continue
                seen.add(key)
            yield columns

    def _extend(
        self, chosen: tuple[int, ...], free: Used, rest: int, start: int
    ) -> Iterator[tuple[int, ...]]:
        self._check()
        full = self._count == len(chosen)
        if rest <= 0 and (full or self._count is None):
            yield chosen
        if full:
            return
        numbers, potential = self._fitting(free)
        fit = numbers[(potential >= rest) & (numbers >= start)]
        if not chosen:
            fit = fit[self._leads[fit]]
        for k in fit.tolist():
            left = tuple((np.array(free) - self._used[k]).tolist())
            more = rest - int(self._samples[k])
            yield from self._extend((*chosen, k), left, more, k)

    @cached_method
    def _fitting(self, free: Used) -> tuple[Matrix, Matrix]:
        """Return columns on the free GPUs, and the most samples with all after them."""
        left = np.array(free) - self._used
        numbers = np.flatnonzero((left >= 0).all(1))
        most = self._most[left[numbers] @ self._states.strides]
        return numbers, self._samples[numbers] + most

    def _least_key(self, columns: Sequence[Column]) -> object:
        return min(
            tuple(sorted(_key(column, names) for column in columns))
            for names in self._renamings
        )


def _key(column: Column, names: Sequence[int] | None = None) -> tuple[object, ...]:
    if names is None:
        return (column.size, column.stages)
    stages = tuple(
        tuple(sorted(replica._replace(pool=names[replica.pool]) for replica in stage))
        for stage in column.stages
    )
    return (column.size, stages)


def _renamings(tables: StageTables) -> Iterator[list[int]]:
    """Yield every exchange of pools that are alike, the unchanged one first."""
    for orders in product(*(permutations(group) for group in tables.alike)):
        names = list(range(len(tables.pools)))
        for group, order in zip(tables.alike, orders, strict=True):
            for old, new in zip(group, order, strict=True):
                names[old] = new
        yield names


class SyncTimes:
    """Times to synchronise a layer, by its size and its stage in each column."""

    def __init__(
        self, tables: StageTables, columns: Sequence[Column], kept: dict[object, int]
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
