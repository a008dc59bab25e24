"""Listing: all columns that a plan within a given time may have.

Suffixes of columns grow from the last stage to the first; all stages are put in front
of a suffix at once.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import cached_property
from itertools import islice
from math import inf
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from ...caching import cached_method
from ..pipelines.kernels import States, compiled
from .columns import Column, Range
from .completion import Completion, Limits, limits, states_of
from .stages import NEVER, Counts, Matrix, Stage, StageTables, TooMany, lies_in

_AT_ONCE = 1 << 20  # numbers in a table

Numbers = NDArray[np.intp]
Used = tuple[Stage, tuple[int, ...]]  # a stage, and the GPUs of each pool


class Listing:
    """The listing finds all columns that packings of an instance may hold."""

    def __init__(
        self,
        tables: StageTables,
        check: Callable[[], None],
        most_stages: int,
        within_us: int | None = None,
    ) -> None:
        """Put at most so many stages of one size of micro-batches into columns.

        Where columns will be asked for `within_us` or less, stages are left out beside
        which no others take the batch in time.
        """
        self._tables, self._check, self._most = tables, check, most_stages
        self._within_us = within_us

    @cached_property
    def _states(self) -> States:
        return states_of(self._tables.gpus)

    def columns(
        self,
        replicas: Mapping[int, int],
        us: int,
        counts: tuple[int, int],
        most_tried: int,
    ) -> Iterator[Column]:
        """Yield columns of packings of the batch that end within `us`.

        Their stages have at most so many `replicas`, by size of micro-batches; packings
        have so many columns, fewest and most. Raises `TooMany` where stages or their
        numbers of GPUs are, or where more than `most_tried` of one size are put
        before suffixes.
        """
        # Of large micro-batches it is soon known that there are too many.
        sizes = sorted(replicas.items(), reverse=True)
        stages = {size: self._stages(size, most) for size, most in sizes}
        each = {b: self._completion(b, most) for b, most in sizes if stages[b]}
        batch = self._tables.batch
        for size, most in limits(each, batch, us, counts, self._check).items():
            given = self._tables, size, stages[size], most, self._check, most_tried
            yield from Lister(*given).columns()

    @cached_method
    def _stages(self, size: int, replicas: int) -> list[Used]:
        every = self._tables.stages(size, replicas, self._check)
        found = [*islice(every, self._most + 1)]
        if len(found) > self._most:
            raise TooMany
        return self._able(found, size)

    def _able(self, stages: list[Used], size: int) -> list[Used]:
        """Return stages that leave enough to the others, wherever they stand.

        n samples through a stage leave the other layers, and the samples that are not
        theirs, to the GPUs left, by the work that these do in the time.
        """
        tables, us, able = self._tables, self._within_us, list[Used]()
        if us is None or tables.work_bound is None:
            return stages
        rates, ahead = tables.work_bound
        shares, limit = ahead[None, :] - ahead[:, None], tables.batch // size
        some = max(1, _AT_ONCE // (tables.layers + 1) ** 2)
        for start in range(0, len(stages), some):
            self._check()
            part = stages[start : start + some]
            each = tables.each_us([stage for stage, _ in part])
            n = np.minimum((us - each) // np.maximum(each, 1) + 1, limit)
            n = np.where(each == 0, limit, n) * size
            mine = np.where(each <= us, n * shares, -np.inf).max(axis=(1, 2))
            rest = (np.array(tables.gpus) - [used for _, used in part]) @ rates * us
            # Floats: a little more is allowed than the bound says.
            kept = np.flatnonzero(mine + rest >= tables.batch * (1 - 1e-9))
            able += [part[k] for k in kept.tolist()]
        return able

    @cached_method
    def _completion(self, size: int, replicas: int) -> Completion:
        stages = self._stages(size, replicas)
        return Completion(self._tables, size, stages, self._states)


class _Suffix(NamedTuple):
    """A suffix of a column: its stages, and tables by range and first layer."""

    stages: tuple[Stage, ...]
    sums: Matrix  # the least
    maxima: Matrix  # the least maxima


class Lister:
    """The lister finds columns of micro-batches of `size` that are within limits."""

    def __init__(
        self,
        tables: StageTables,
        size: int,
        stages: Sequence[Used],
        limits: Limits,
        check: Callable[[], None],
        most_tried: float = inf,
    ) -> None:
        """Read stages, one or more, each with the GPUs of each pool that it uses."""
        self._limits, self._check, self._untried = limits, check, most_tried
        self._tables, self._size, self._ends = tables, size, _ends(tables, size)
        self._some = max(1, _AT_ONCE // (len(self._ends) * (tables.layers + 1) ** 2))
        self._gpus = np.array(tables.gpus)
        self._stages = [stage for stage, _ in stages]
        self._used = np.array([used for _, used in stages])
        self._pool = [lies_in(tables, stage) for stage in self._stages]
        self._us = tables.each_us(self._stages)
        #: In how many ranges of micro-batches runs fit; how many a range takes.
        self._fits: dict[tuple[bool, int], Counts] = {}
        least = np.array(self._ends)
        self._rank = (least[:, None] >= least).sum(axis=1)
        # What a stage hands on depends on little of it.
        senders = [
            (max(p.samples for p in stage), frozenset(p.pool for p in stage))
            for stage in self._stages
        ]
        by_sender = dict(zip(senders, self._stages, strict=True))
        self._representatives = [*by_sender.values()]
        numbers = {sender: i for i, sender in enumerate(by_sender)}
        self._sender = np.array([numbers[sender] for sender in senders])

    def columns(self) -> Iterator[Column]:
        """Yield the columns; `TooMany` where too many stages are tried."""
        start = np.full((len(self._ends), self._tables.layers + 1), NEVER)
        start[:, -1] = 0
        yield from self._grow(_Suffix((), start, start), self._gpus)

    def _grow(self, behind: _Suffix, free: Matrix) -> Iterator[Column]:
        """Put every stage that the `free` GPUs have room for in front of a suffix."""
        room = np.flatnonzero((self._used <= free).all(axis=1))
        for start in range(0, len(room), self._some):
            self._check()
            some = room[start : start + self._some]
            self._untried -= len(some)
            if self._untried < 0:
                raise TooMany
            yield from self._whole(some, behind, free)
            # Nothing is left for a stage in front where all GPUs are used.
            more = some[(self._used[some] < free).any(axis=1)]
            if len(behind.stages) + 1 < self._tables.layers and len(more):
                sums, maxima = self._before(more, behind, first=False)
                left = free - self._used[more]
                for k in self._completed(more, sums, maxima, left):
                    longer = (self._stages[more[k]], *behind.stages)
                    yield from self._grow(_Suffix(longer, sums[k], maxima[k]), left[k])

    def _whole(self, some: Numbers, behind: _Suffix, free: Matrix) -> Iterator[Column]:
        """Yield columns of use whose first stage is one of some."""
        total, top = (x[..., 0] for x in self._before(some, behind, first=True))
        used = self._gpus - free + self._used[some]
        at = np.searchsorted(self._limits.highs, top)
        most = self._limits.whole[at, (used @ self._limits.strides)[:, None]]
        for k in np.flatnonzero((total <= most).any(axis=1)).tolist():
            row = (self._stages[some[k]], *behind.stages)
            if limit := [*self._ranges(len(row), total[k], top[k])]:
                gpus = tuple(used[k].tolist())
                yield Column(self._tables, self._size, row, gpus, limit)

    def _completed(
        self, some: Numbers, sums: Matrix, maxima: Matrix, left: Matrix
    ) -> Iterator[int]:
        """Yield the numbers of those of `some` with which a suffix can be completed.

        `left` are the GPUs for the layers before.
        """
        limits, layers = self._limits, np.arange(1, sums.shape[2])
        states = (self._gpus - left) @ limits.strides
        for k, (stage, state) in enumerate(zip(some, states.tolist(), strict=True)):
            most = limits.suffix(state)[:, self._pool[stage]]
            at = np.searchsorted(limits.highs, maxima[k, :, 1:])
            if (sums[k, :, 1:] <= most[at, layers]).any():
                yield k

    def _before(
        self, some: Numbers, behind: _Suffix, *, first: bool
    ) -> tuple[Matrix, Matrix]:
        """Return least sums and maxima from each layer on, with one more stage.

        By stage, range of micro-batches, and layer: the first alone, where nothing is
        in front. NEVER where no cut fits.
        """
        place = first, len(behind.stages)
        if place not in self._fits:
            most = self._tables.each_most(self._stages, len(behind.stages))
            most = most[:, :1] if first else most
            self._fits[place] = found = np.zeros(most.shape, np.int8)
            for n in self._ends:
                found += most >= n
        each = np.zeros(len(self._representatives), np.int64)
        if behind.stages:
            for k in np.unique(self._sender[some]):
                sender = self._representatives[k]
                each[k] = self._tables.hop_us(sender, behind.stages[0])
        given = self._us, each[self._sender], self._fits[place], self._rank
        shape = len(some), len(self._rank), self._fits[place].shape[1]
        total, top = np.empty((2, *shape), np.int64)
        compiled("extended", some, given, behind[1:], total, top)
        return total, top

    def _ranges(self, length: int, total: Matrix, top: Matrix) -> Iterator[Range]:
        limit, ends = self._tables.batch // self._size, self._ends
        for k, least in enumerate(ends):
            most = limit
            if len(ends) > 1 and self._tables.costs.schedule.in_flight == "gpipe":
                most = min(limit, 2 * least - 1)
            elif len(ends) > 1:  # as many in flight as stages, or fewer
                least, most = (length, limit) if least > 1 else (1, length - 1)
                most = min(most, limit)
            if least <= most and total[k] < NEVER:
                yield Range(least, most, int(total[k]), int(top[k]))


def _ends(tables: StageTables, size: int) -> list[int]:
    """Return the least n of each range of micro-batches, whatever a column's length."""
    costs = tables.costs
    if costs.schedule.in_flight == "one" or costs.memory.activations == "checkpoint":
        return [1]
    if costs.schedule.in_flight == "1f1b":
        return [sum(tables.gpus), 1]
    return [1 << k for k in range((tables.batch // size).bit_length())]
