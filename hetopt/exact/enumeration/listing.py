"""Listing: all columns that a plan better than a given time may have.

Suffixes of columns grow from the last stage to the first; all stages are put in front
of a suffix at once.
"""

from collections.abc import Callable, Iterator, Sequence
from functools import cached_property
from itertools import islice
from math import inf
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from .columns import Column, Range
from .completion import Limits
from .extensions import Extensions, extended
from .stages import (
    NEVER,
    Counts,
    Floats,
    Matrix,
    Stage,
    StageTables,
    TooMany,
    lies_in,
)

_MOST_STAGES = 25_000  # of one size of micro-batches
_MOST_ABLE = 2_500  # of them, which a better plan may have
_MOST_TRIED = 1_500_000  # stages put before suffixes, each in some us
_AT_ONCE = 1 << 20  # numbers in a table

Numbers = NDArray[np.intp]


def columns(
    tables: StageTables,
    size: int,
    replicas: int,
    us: int,
    check: Callable[[], None],
    *,
    patient: bool,
) -> list[Column]:
    """Return every column that a plan may have whose pipelines end within `us`.

    Left out are columns without a cut that fits, and columns that use their GPUs so
    badly that all others together cannot make up for it. `TooMany` where that takes
    long, unless one is `patient`.
    """
    stages = tables.stages(size, replicas, check)
    some = [*islice(stages, None if patient else _MOST_STAGES + 1)]
    if not patient and len(some) > _MOST_STAGES:
        raise TooMany
    return [*Lister(tables, size, us, check, patient=patient).columns(some)]


class _Suffix(NamedTuple):
    """A suffix of a column: its stages, and tables by range and first layer."""

    stages: tuple[Stage, ...]
    sums: Matrix  # the least
    maxima: Matrix  # the least maxima


class Lister:
    """The lister finds columns of micro-batches of `size` that end within `us`."""

    def __init__(
        self,
        tables: StageTables,
        size: int,
        us: int,
        check: Callable[[], None],
        *,
        patient: bool,
        limits: Limits | None = None,
        most_tried: int = _MOST_TRIED,
    ) -> None:
        """List whatever there is if `patient`, or raise `TooMany` after a while.

        With `limits` those columns alone that are within them.
        """
        self._limits = limits
        self._tables, self._size, self._us, self._check = tables, size, us, check
        self._most_able: float = inf if patient else _MOST_ABLE
        self._most_tried: float = inf if patient else most_tried
        self.tried = 0
        self._ends = _ends(tables, size)
        self._rates: Floats | None = None
        self._shares = np.zeros((tables.layers + 1,) * 2)
        if tables.work_bound is not None:
            self._rates, ahead = tables.work_bound
            self._shares = ahead[None, :] - ahead[:, None]
        self._some = max(1, _AT_ONCE // (len(self._ends) * (tables.layers + 1) ** 2))

    def columns(
        self, stages: Sequence[tuple[Stage, tuple[int, ...]]]
    ) -> Iterator[Column]:
        """Yield the columns of some stages, each given with the GPUs that it uses."""
        able = [*stages] if self._limits else [stages[k] for k in self._able(stages)]
        if len(able) > self._most_able:
            raise TooMany
        start = np.full((len(self._ends), self._tables.layers + 1), NEVER)
        start[:, -1] = 0
        if able:
            every = Stages(self._tables, able, np.array(self._ends))
            free = np.array(self._tables.gpus)
            yield from self._grow(every, _Suffix((), start, start), free)

    def _able(self, stages: Sequence[tuple[Stage, tuple[int, ...]]]) -> list[int]:
        """Return stages that leave enough to the others, wherever they stand."""
        able: list[int] = []
        for start in range(0, len(stages), self._some):
            self._check()
            some, used = zip(*stages[start : start + self._some], strict=True)
            us = self._tables.each_us(some, final=False)
            left = np.array(self._tables.gpus) - np.array(used)
            able += (start + self._enough(us, us, left, self._shares)).tolist()
        return able

    def _grow(
        self, stages: "Stages", behind: _Suffix, free: Matrix
    ) -> Iterator[Column]:
        """Put every stage that the `free` GPUs have room for in front of a suffix."""
        room = np.flatnonzero((stages.used <= free).all(axis=1))
        for start in range(0, len(room), self._some):
            self._check()
            some = room[start : start + self._some]
            self.tried += len(some)
            if self.tried > self._most_tried:
                raise TooMany
            yield from self._whole(stages, some, behind, free)
            # Nothing is left for a stage in front where all GPUs are used.
            more = some[(stages.used[some] < free).any(axis=1)]
            if len(behind.stages) + 1 < self._tables.layers and len(more):
                sums, maxima = stages.before(more, behind, first=False)
                left = free - stages.used[more]
                for k in self._completed(stages, more, sums, maxima, left).tolist():
                    longer = (stages.stages[more[k]], *behind.stages)
                    suffix = _Suffix(longer, sums[k], maxima[k])
                    yield from self._grow(stages, suffix, left[k])

    def _whole(
        self, stages: "Stages", some: Numbers, behind: _Suffix, free: Matrix
    ) -> Iterator[Column]:
        """Yield columns whose first stage is one of some."""
        tables = self._tables
        total, top = stages.before(some, behind, first=True)
        left = free - stages.used[some]
        for k in self._within(total, top, left).tolist():
            row = (stages.stages[some[k]], *behind.stages)
            both = total[k, :, 0], top[k, :, 0]
            limit = [*_ranges(tables, self._size, self._ends, len(row), *both)]
            if limit:
                gpus = tuple((np.array(tables.gpus) - left[k]).tolist())
                yield Column(tables, self._size, row, gpus, limit)

    def _within(self, total: Matrix, top: Matrix, left: Matrix) -> Numbers:
        """Return the numbers of whole columns that are of use."""
        if self._limits is None:
            return self._enough(total, top, left, self._shares[:1, -1])
        state = (np.array(self._tables.gpus) - left) @ self._limits.strides
        at = np.searchsorted(self._limits.highs, top[..., 0])
        most = self._limits.whole[at, state[:, None]]
        return np.flatnonzero((total[..., 0] <= most).any(axis=1))

    def _completed(
        self,
        stages: "Stages",
        some: Numbers,
        sums: Matrix,
        maxima: Matrix,
        left: Matrix,
    ) -> Numbers:
        """Return the numbers of those of `some` with which a suffix can be completed.

        `left` are the GPUs for the layers before.
        """
        if self._limits is None:
            ahead = sums[..., 1:], maxima[..., 1:]
            return self._enough(*ahead, left, self._shares[1:, -1])
        limits, layers = self._limits, np.arange(1, sums.shape[2])
        states = (np.array(self._tables.gpus) - left) @ limits.strides
        found = []
        for k, (stage, state) in enumerate(zip(some, states.tolist(), strict=True)):
            most = limits.suffix(state)[:, stages.pool[stage]]
            at = np.searchsorted(limits.highs, maxima[k, :, 1:])
            if (sums[k, :, 1:] <= most[at, layers]).any():
                found.append(k)
        return np.array(found, np.intp)

    def _enough(
        self, total: Matrix, top: Matrix, left: Matrix, shares: Floats
    ) -> Numbers:
        """Return the numbers of those beside which the GPUs left can take the rest.

        n samples through stages of so much time, with such `shares` of the layers,
        leave the other layers, and the samples that are not theirs, to what is left.
        """
        open_ = total <= self._us
        within = tuple(range(1, total.ndim))
        if self._rates is None:
            return np.flatnonzero(open_.any(axis=within))
        limit = self._tables.batch // self._size
        n = np.minimum((self._us - total) // np.maximum(top, 1) + 1, limit)
        n = np.where(top == 0, limit, n) * self._size
        mine = np.where(open_, n * shares, -np.inf).max(axis=within)
        rest = left @ self._rates * self._us
        # Floats: a little more is allowed than the bound says.
        return np.flatnonzero(mine + rest >= self._tables.batch * (1 - 1e-9))


class Stages:
    """Stages with the GPUs of each pool that they use, and tables of them."""

    def __init__(
        self,
        tables: StageTables,
        stages: Sequence[tuple[Stage, tuple[int, ...]]],
        least: Matrix,
    ) -> None:
        """`least` micro-batches are in a batch of each range."""
        self._tables, self._least = tables, least
        self._rank = (least[:, None] >= least).sum(axis=1)
        self.stages = [stage for stage, _ in stages]
        self.used = np.array([used for _, used in stages])
        #: Where each stage lies; one past the last pool where in several.
        self.pool = [lies_in(tables, stage) for stage in self.stages]
        self._fits: dict[tuple[bool, int], Counts] = {}
        # What a stage hands on depends on little of it.
        senders = [
            (max(p.samples for p in stage), frozenset(p.pool for p in stage))
            for stage in self.stages
        ]
        by_sender = dict(zip(senders, self.stages, strict=True))
        self._representatives = [*by_sender.values()]
        numbers = {sender: i for i, sender in enumerate(by_sender)}
        self._sender = np.array([numbers[sender] for sender in senders])

    def before(
        self, some: Numbers, behind: _Suffix, *, first: bool
    ) -> tuple[Matrix, Matrix]:
        """Return least sums and maxima from each layer on, with one more stage.

        By stage, range of micro-batches, and layer: the first alone, where nothing is
        in front.
        """
        replica = first, len(behind.stages)
        if replica not in self._fits:
            self._fits[replica] = self._fitting(len(behind.stages), first=first)
        us = self._us if behind.stages else self._final_us
        hops = self._hops(some, behind.stages)
        extensions = Extensions(us, hops, self._fits[replica], self._rank)
        return extended(some, extensions, behind.sums, behind.maxima)

    def _fitting(self, behind: int, *, first: bool) -> Counts:
        """Return in how many ranges each run fits; where more fit, fewer do, too."""
        most = self._tables.each_most(self.stages, behind, first=first)
        most = most[:, :1] if first else most
        found = np.zeros(most.shape, np.int8)
        for n in self._least:
            found += most >= n
        return found

    @cached_property
    def _us(self) -> Matrix:
        return self._tables.each_us(self.stages, final=False)

    @cached_property
    def _final_us(self) -> Matrix:
        return self._tables.each_us(self.stages, final=True)

    def _hops(self, some: Numbers, behind: tuple[Stage, ...]) -> Matrix:
        """Return transfers from some stages to the first one behind, 0 without one."""
        each = np.zeros(len(self._representatives), np.int64)
        if behind:
            for k in np.unique(self._sender[some]):
                each[k] = self._tables.hop_us(self._representatives[k], behind[0])
        return np.asarray(each[self._sender])


def _ends(tables: StageTables, size: int) -> list[int]:
    """Return the least n of each range of micro-batches, whatever a column's length."""
    costs = tables.costs
    if costs.schedule.in_flight == "one" or costs.memory.activations == "checkpoint":
        return [1]
    if costs.schedule.in_flight == "1f1b":
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
        if tables.costs.schedule.in_flight == "gpipe" and len(ends) > 1:
            most = min(limit, 2 * least - 1)
        elif len(ends) == 1:
            most = limit
        else:  # as many in flight as stages, or fewer
            least, most = (length, limit) if least > 1 else (1, length - 1)
            most = min(most, limit)
        if least <= most and total[k] < NEVER:
            yield Range(least, most, int(total[k]), int(top[k]))
