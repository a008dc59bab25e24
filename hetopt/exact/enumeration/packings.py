"""Packings of columns that use no GPU twice and may do the batch in time."""

from collections.abc import Callable, Iterator, Sequence
from itertools import permutations, product

import numpy as np

from .columns import Column
from .stages import Matrix, StageTables

Used = tuple[int, ...]


def most_together(gpus: Used, found: Sequence[tuple[Used, int]]) -> dict[Used, int]:
    """Return the most samples that columns take together, by GPUs of each pool."""
    best: dict[Used, int] = {}
    for used, samples in found:
        best[used] = max(best.get(used, 0), samples)
    most: dict[Used, int] = {}
    for free in product(*(range(g + 1) for g in gpus)):  # ascending, so parts are known
        most[free] = max(
            (
                samples + most[left]
                for used, samples in best.items()
                if min(left := _left(free, used)) >= 0
            ),
            default=0,
        )
    return most


def useful(
    tables: StageTables, columns: Sequence[Column], samples: Sequence[int]
) -> list[tuple[Column, int]]:
    """Return columns that a packing of the batch may hold, with their least shares."""
    pairs = [(column.used, s) for column, s in zip(columns, samples, strict=True)]
    most = most_together(tables.gpus, pairs)
    found = []
    for column, most_here in zip(columns, samples, strict=True):
        share = tables.batch - most[_left(tables.gpus, column.used)]
        if most_here and most_here >= share:
            found.append((column, share))
    return found


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
        most = [column.tight_samples(us) for column in left]
        pairs = useful(tables, left, most)
        if len(pairs) == len(left):
            return left, most
        left = [column for column, _ in pairs]


def _left(free: Used, used: Used) -> Used:
    return tuple(f - u for f, u in zip(free, used, strict=True))


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
        pairs = [(column.used, s) for column, s in order]
        self._most = most_together(tables.gpus, pairs)
        self._open: dict[Used, tuple[Matrix, Matrix]] = {}

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
            left = _left(free, self._columns[k].used)
            more = rest - int(self._samples[k])
            yield from self._extend((*chosen, k), left, more, k)

    def _fitting(self, free: Used) -> tuple[Matrix, Matrix]:
        """Return columns on the free GPUs, and the most samples with all after them."""
        if free not in self._open:
            pairs = [
                (k, int(self._samples[k]) + self._most[left])
                for k, column in enumerate(self._columns)
                if min(left := _left(free, column.used)) >= 0
            ]
            both = np.array(pairs, dtype=np.int64).reshape(-1, 2)
            self._open[free] = both[:, 0], both[:, 1]
        return self._open[free]

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
