"""Completion bounds: which columns may be part of a packing, before they are listed.

Columns are listed from the last stage to the first one. The layers before a suffix of
stages go on the GPUs that it leaves, pool by pool. So a dynamic program over (GPUs,
layers, the pool of the next stage) says what these layers take at the least, as sums of
stages none of which is slower than an interval [m, m'] of the slowest stage allows:

    F(v, q, l) = min over stages s of runs k to l - 1 on GPUs u(s) <= v:
                     F(v - u(s), pool(s), k) + t_s(k, l) + transfer(s, q)

A column on GPUs u takes no more than b (1 + floor((T' - F(u)) / m)) sequences. A
(max, +) knapsack of that tells what all others take on the GPUs that are left, and with
it what a column on u takes at the least: the batch without the others. Intervals in
which no column takes that are dropped, the others divided, and the knapsack is asked
again, as long as that helps. What is left says how long the stages of a suffix may take
together: one number for each suffix, so that none is begun that cannot be completed.

Pools are named nodes, or equal nodes of one GPU; so a node is never used twice. Stages
count with the least memory that they may need, and replicas share samples as is best
for any stage on the same GPUs. The grid of intervals depends on stages alone: tables
serve for every target time and every box.
"""

from collections.abc import Callable, Mapping, Sequence
from functools import cached_property, lru_cache
from math import prod
from typing import NamedTuple

import numpy as np

from ...caching import cached_method
from ..pipelines.arcs import least_cover
from ..pipelines.kernels import States, compiled, most_taken
from .stages import NEVER, Matrix, Replica, Stage, StageTables, TooMany, lies_in

BIG = 1 << 60  # us, sequences: more than any number of a plan

_RATIO = 1.05  # of the slowest stages of one interval, at first
_HALVINGS = 5  # of an interval, at the most
_INTERVALS = 160  # of all sizes together, beyond which none is divided
_BYTES = 400_000_000  # of tables of one size of micro-batches
_STATES = 1_200  # numbers of GPUs by pool


class _Moves(NamedTuple):
    """The least times of stages on the same GPUs, in the same pool or in several.

    `us` is by [move, first layer, one past the last]; `hops` by [move, pool of the next
    stage], the last column for a stage in several pools; `used` are GPUs by pool,
    `need` the same as the number of a state, `pool` where the stage lies.
    """

    us: Matrix
    hops: Matrix
    used: Matrix
    need: Matrix
    pool: Matrix


def states_of(gpus: Sequence[int]) -> States:
    """Number the states of GPUs by pool; `TooMany` where they are."""
    if prod(n + 1 for n in gpus) > _STATES:
        raise TooMany
    return States.of(gpus)


class _Interval(NamedTuple):
    """Slowest stages `low` to `high`, with what columns take at the most, by state."""

    low: int
    high: int
    taken: Matrix


class Completion:
    """The least that layers take, for one size of micro-batches."""

    def __init__(
        self,
        tables: StageTables,
        size: int,
        stages: Sequence[tuple[Stage, tuple[int, ...]]],
        states: States,
    ) -> None:
        """Read the stages, each with the GPUs of each pool that it uses."""
        self.size, self.states, self.layers = size, states, tables.layers
        self.most = tables.batch // size * size
        self._moves = _moves(tables, stages, states)
        side = (len(tables.pools) + 1) * (tables.layers + 1)
        #: How many tables are kept.
        self.kept = max(1, _BYTES // (8 * side * len(states.use)))
        # lru_cache on a bound method of this object only: it dies with the object.
        self.sums = lru_cache(self.kept)(self._sums)

    @cached_property
    def _times(self) -> Matrix:
        """All times of stages, ascending, without their transfers."""
        every = np.unique(self._moves.us)
        return every[every < NEVER]

    @cached_property
    def grid(self) -> list[tuple[int, int]]:
        """Intervals that cover slowest stages of columns with the least transfers."""
        moves = self._moves
        if (low := least_cover(moves.us.min(0), self._times.tolist())) is None:
            return []
        hops = moves.hops
        most = int(self._times[-1] + hops[hops < NEVER].max(initial=0))
        found = []
        while low <= most:
            high = max(low, int(low * _RATIO))
            found.append((low, high))
            low = high + 1
        return found

    def _sums(self, high: int) -> tuple[Matrix, Matrix]:
        """Return least sums up to each layer, [state, pool, layer], and of columns.

        No stage takes longer than `high`.
        """
        moves, states = self._moves, self.states
        shape = len(states.use), moves.hops.shape[1], moves.us.shape[1]
        least, whole = np.empty(shape, np.int64), np.empty(shape[0], np.int64)
        given = states.use, states.strides, high, least, whole
        compiled("completed", moves, *given)
        return least, whole

    def interval(self, low: int, high: int, us: int) -> _Interval:
        """Return what columns of such slowest stages take within `us`, by state."""
        _, whole = self.sums(high)
        if low:
            n = np.where(whole <= us, 1 + (us - whole) // low, 0)
            taken = np.minimum(self.size * n, self.most)
        else:  # in no time a pipeline takes any number
            taken = np.where(whole <= us, self.most, 0)
        return _Interval(low, high, taken)

    def divided(self, whole: _Interval, us: int) -> list[_Interval]:
        """Return the halves of an interval."""
        middle = (whole.low + whole.high) // 2
        halves = (whole.low, middle), (middle + 1, whole.high)
        return [self.interval(*half, us) for half in halves]


class Limits:
    """How long suffixes of columns may take, for one size and one target time."""

    def __init__(
        self, of: Completion, intervals: Sequence[_Interval], wanted: Matrix, us: int
    ) -> None:
        """Read what a column takes at the least, by state: `wanted`, 1 or more."""
        self._of, self.strides = of, of.states.strides
        some = sorted(intervals, key=lambda x: x.high)
        self.highs = np.array([x.high for x in some], np.int64)
        n = -(-wanted // of.size)
        rows = [np.where(x.taken >= wanted, us - x.low * (n - 1), -1) for x in some]
        self._left = np.array(rows, np.int64).reshape(len(some), -1)
        #: The longest sums of whole columns, by interval of the slowest stage, or one
        #: beyond it, and state; negative where there is none.
        self.whole = np.full((len(some) + 1, self._left.shape[1]), -1, np.int64)
        self.whole[:-1] = np.maximum.accumulate(self._left[::-1])[::-1]
        sums = [of.sums(x.high)[0] for x in some]
        self._sums = np.array(sums) if sums else np.zeros((0, 1, 1, 1), np.int64)

    @cached_method
    def suffix(self, state: int) -> Matrix:
        """Return the longest sums of suffixes that use so many GPUs.

        By [interval of the slowest stage, or one beyond it; pool of the first stage;
        first layer].
        """
        found = np.full((len(self.highs) + 1, *self._sums.shape[2:]), -1, np.int64)
        if len(self.highs):
            given = self._left, self._sums, self._of.states.use, state, found
            compiled("longest", *given)
            found[:-1] = np.maximum.accumulate(found[-2::-1])[::-1]
        return found


def limits(
    each: Mapping[int, Completion],
    batch: int,
    us: int,
    counts: tuple[int, int],
    check: Callable[[], None],
) -> dict[int, Limits]:
    """Return limits on columns of each size that takes part in a packing of the batch.

    Packings are of so many pipelines, fewest and most, that end within `us`. Sizes
    without such a column are left out: all of them where no packing takes the batch.
    """
    fewest, most = counts
    known: list[tuple[int, int, _Interval]] = []  # size, halvings, interval
    many = min([_INTERVALS, *(of.kept // 2 for of in each.values())])
    for size, of in each.items():
        # Other transfers may make a stage slower than all that the grid has.
        beyond = max((high for _, high in of.grid), default=us) + 1
        for low, high in [*of.grid, (beyond, us)]:
            if low <= min(high, us):
                check()
                known.append((size, 0, of.interval(low, high, us)))
    wanted: Matrix | None = None
    while known:
        one = np.max([x.taken for *_, x in known], axis=0)
        if wanted is not None:
            one = np.where(one >= wanted, one, 0)
        states = next(iter(each.values())).states
        check()
        exactly, others = most_taken(one, states, fewest, most)
        if exactly[fewest:, -1].max(initial=-1) < batch:
            return {}
        wanted = np.where(others < 0, BIG, np.maximum(1, batch - others))[::-1]
        wanted = np.where(one >= wanted, wanted, BIG)
        known = [row for row in known if (row[2].taken >= wanted).any()]
        able = [row[1] < _HALVINGS and row[2].high > row[2].low for row in known]
        if len(known) > many or not any(able):
            break
        finer = []
        for (size, halvings, x), divides in zip(known, able, strict=True):
            check()
            parts = each[size].divided(x, us) if divides else [x]
            finer += [(size, halvings + divides, part) for part in parts]
        known = finer
    found = {}
    for size in {row[0] for row in known}:
        mine = [x for other, _, x in known if other == size]
        assert wanted is not None
        found[size] = Limits(each[size], mine, wanted, us)
    return found


def _moves(
    tables: StageTables, stages: Sequence[tuple[Stage, tuple[int, ...]]], states: States
) -> _Moves:
    pools, side = len(tables.pools), tables.layers + 1
    groups: dict[tuple[tuple[int, ...], int], list[Stage]] = {}
    for stage, used in stages:
        groups.setdefault((used, lies_in(tables, stage)), []).append(stage)
    us = np.full((len(groups), side, side), NEVER, np.int64)
    hops = np.full((len(groups), pools + 1), NEVER, np.int64)
    known: dict[tuple[int, object], list[int]] = {}
    for i, members in enumerate(groups.values()):
        fits = tables.each_most(members, 1) > 0
        fits[..., -1] = tables.each_most(members, 0)[..., -1] > 0
        us[i] = np.where(fits, tables.each_us(members), NEVER).min(0)
        for stage in members:
            pairs = tuple(sorted((x.pool, x.t) for x in stage))
            sender = max(x.samples for x in stage), pairs
            if sender not in known:
                row = [_hop_us(tables, stage, pool) for pool in range(pools)]
                known[sender] = [*row, min(row)]
            np.minimum(hops[i], known[sender], out=hops[i])
    gpus = np.array([used for used, _ in groups], np.int64).reshape(-1, pools)
    where = np.array([pool for _, pool in groups], np.int64)
    return _Moves(us, hops, gpus, gpus @ states.strides, where)


def _hop_us(tables: StageTables, stage: Stage, pool: int) -> int:
    each = tables.pools[pool].each
    most = min(each, tables.gpus[pool] - tables.used(stage)[pool])
    degrees = range(1, most + 1)
    hops = (tables.hop_us(stage, (Replica(pool, t, 1),)) for t in degrees)
    return min(hops, default=NEVER)
