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

from ..pipelines.kernels import States, compiled
from .columns import Column, Range
from .completion import Completion, Limits, limits, states_of
from .stages import (
    NEVER,
    Counts,
    Matrix,
    Stage,
    StageTables,
    TooMany,
    lies_in,
)

_AT_ONCE = 1 << 20  # numbers in a table

Numbers = NDArray[np.intp]
Used = tuple[Stage, tuple[int, ...]]  # a stage, and the GPUs of each pool


class Listing:
    """The listing finds all columns that packings of an instance may hold."""

    def __init__(
        self,
        tables: StageTables,
        check: Callable[[], None],
        most_stages: int | None = None,
    ) -> None:
        """Put at most so many stages of one size of micro-batches into columns."""
        self._tables, self._check, self._most = tables, check, most_stages
        self._staged: dict[tuple[int, int], list[Used]] = {}
        self._completed: dict[tuple[int, int], Completion] = {}

    @cached_property
    def _states(self) -> States:
        return states_of(self._tables.gpus)

    def columns(
        self,
        replicas: Mapping[int, int],
        us: int,
        counts: tuple[int, int],
        most_tried: float = inf,
    ) -> Iterator[Column]:
        """Yield columns of packings of the batch that end within `us`.

        Their stages have at most so many `replicas`, by size of micro-batches; packings
        have so many columns, fewest and most. Raises `TooMany` where stages or their
        numbers of GPUs are, or where more than `most_tried` of one size are put
        before suffixes.
        """
        # Of large micro-batches it is soon known that there are too many.
        sizes = sorted(replicas, reverse=True)
        stages = {size: self._stages(size, replicas[size]) for size in sizes}
        each = {b: self._completion(b, replicas[b]) for b in sizes if stages[b]}
        batch = self._tables.batch
        for size, most in limits(each, batch, us, counts, self._check).items():
            lister = Lister(self._tables, size, most, self._check, most_tried)
            yield from lister.columns(stages[size])

    def _stages(self, size: int, replicas: int) -> list[Used]:
        """Return stages of so many replicas or fewer."""
        key, most = (size, replicas), self._most
        if key not in self._staged:
            every = self._tables.stages(size, replicas, self._check)
            found = [*islice(every, None if most is None else most + 1)]
            if most is not None and len(found) > most:
                raise TooMany
            self._staged[key] = found  # from here on, and not where they are too many
        return self._staged[key]

    def _completion(self, size: int, replicas: int) -> Completion:
        """Return what layers take at the least."""
        key = size, replicas
        if key not in self._completed:
            given = self._tables, size, self._staged[key], self._states
            self._completed[key] = Completion(*given)
        return self._completed[key]


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
        limits: Limits,
        check: Callable[[], None],
        most_tried: float = inf,
    ) -> None:
        """List them, or raise `TooMany` where more stages are put before suffixes."""
        self._limits, self._most_tried = limits, most_tried
        self._tables, self._size, self._check = tables, size, check
        self._tried = 0
        self._ends = _ends(tables, size)
        self._some = max(1, _AT_ONCE // (len(self._ends) * (tables.layers + 1) ** 2))

    def columns(self, stages: Sequence[Used]) -> Iterator[Column]:
        """Yield the columns of some stages, each given with the GPUs that it uses."""
        start = np.full((len(self._ends), self._tables.layers + 1), NEVER)
        start[:, -1] = 0
        every = Stages(self._tables, stages, np.array(self._ends))
        free = np.array(self._tables.gpus)
        yield from self._grow(every, _Suffix((), start, start), free)

    def _grow(
        self, stages: "Stages", behind: _Suffix, free: Matrix
    ) -> Iterator[Column]:
        """Put every stage that the `free` GPUs have room for in front of a suffix."""
        room = np.flatnonzero((stages.used <= free).all(axis=1))
        for start in range(0, len(room), self._some):
            self._check()
            some = room[start : start + self._some]
            self._tried += len(some)
            if self._tried > self._most_tried:
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
        limits, layers = self._limits, np.arange(1, sums.shape[2])
        states = (np.array(self._tables.gpus) - left) @ limits.strides
        found = []
        for k, (stage, state) in enumerate(zip(some, states.tolist(), strict=True)):
            most = limits.suffix(state)[:, stages.pool[stage]]
            at = np.searchsorted(limits.highs, maxima[k, :, 1:])
            if (sums[k, :, 1:] <= most[at, layers]).any():
                found.append(k)
        return np.array(found, np.intp)


class Stages:
    """Stages with the GPUs of each pool that they use, and tables of them."""

    def __init__(
        self,
        tables: StageTables,
        stages: Sequence[Used],
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
        hops = self._hops(some, behind.stages)
        extensions = Extensions(self._us, hops, self._fits[replica], self._rank)
        return extended(some, extensions, behind.sums, behind.maxima)

    def _fitting(self, behind: int, *, first: bool) -> Counts:
        """Return in how many ranges each run fits; where more fit, fewer do, too."""
        most = self._tables.each_most(self.stages, behind)
        most = most[:, :1] if first else most
        found = np.zeros(most.shape, np.int8)
        for n in self._least:
            found += most >= n
        return found

    @cached_property
    def _us(self) -> Matrix:
        return self._tables.each_us(self.stages)

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


class Extensions(NamedTuple):
    """Stages that can be put in front of a suffix.

    `us` [stage, first layer, one past the last] are their times without `hops` [stage]
    to the next, and `fits` says in how many ranges of micro-batches a run of layers
    fits, of first layers as many as are asked for; `rank` [range] how many it takes.
    """

    us: Matrix
    hops: Matrix
    fits: Counts
    rank: Matrix


def extended(
    some: Matrix, extensions: Extensions, sums: Matrix, maxima: Matrix
) -> tuple[Matrix, Matrix]:
    """Return least sums and maxima from each layer on, by stage and range.

    Of `some` stages, by number; `sums` and `maxima` [range, layer] are of the suffix
    behind. NEVER where no cut fits.
    """
    shape = len(some), len(extensions.rank), extensions.fits.shape[1]
    total, top = np.empty((2, *shape), np.int64)
    compiled("extended", some, extensions, sums, maxima, total, top)
    return total, top
