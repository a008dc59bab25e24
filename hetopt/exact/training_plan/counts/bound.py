"""Can whole pipelines that are possible within a time take the whole batch together?

Let the stages of a pipeline with micro-batches of b sequences take the sum S, and the
slowest of them M. Within the time T it takes 1 + (T - S) / M micro-batches or fewer,
rounded down. For a range of M the least S is known for all GPUs at once (`rows`).

The replicas of a layer cross nodes unless all of them are in one. Then every pipeline
uses GPUs of that node: which kinds have such nodes, and how many, is told apart
(`homes`).

One pipeline has batch / b micro-batches and all GPUs: from the largest M that there
is time for downwards, each least S says up to which smaller M there is no time for
it. Several pipelines are put together by the GPUs that they use: the most sequences
of one, two and more of them in these GPUs are sums of the most of each.
"""

from collections import OrderedDict
from collections.abc import Callable, Iterator, Sequence
from copy import copy
from itertools import combinations, product
from math import inf, prod
from typing import NamedTuple

import numpy as np

from .... import capability
from ....stages import StageTable
from .exchanged import layer_weights, spread_us, within_us
from .homes import Homes, Parts, in_parts, numbered
from .in_places import RowsInPlaces
from .kinds import Array, Kind, together
from .on_nodes import RowsOnNodes
from .replicas import Memory, Replicas, Runs, Whole
from .rows import Laid
from .stages import Senders, StageTables
from .sums import FINEST, Kept, Sums

MOST_STATES = 8_000  # numbers of GPUs by kind
_FEW_STATES = 750  # that take less long than prices
# Of a table of spread stages; and where homes are kinds of their own.
_MOST_ENTRIES, _FEW_ENTRIES = 20_000_000, 4_000_000
# Between intervals of the slowest stage of several pipelines.
RATIOS = tuple(FINEST**steps for steps in (512, 128, 32, 8, 1))
_AT_ONCE = 3  # of them, for which nodes of all kinds are looked at together
_FEW_KINDS = 2  # of nodes, whose subsets are looked at one by one at any size
_WORTH = 4  # times what ranges lose: where more is unknown, finer ones gain little
_SEVERAL = 4  # micro-batches: pipelines with fewer need less memory
_NEVER = 1 << 60  # sequences
# Stages that follow others, which are told apart: others have the memory of fewer.
# Where GPUs are few, all; and where they are many, if stages are few, times numbers of
# GPUs. And replicas whose number is told.
_SMALL = 100  # numbers of GPUs by kind
_BEHIND, _FEW_BEHIND = tuple(range(12)), (0, 1, 2, 4, 8)
_MANY_BEHIND, _MOST_WORK = tuple(range(48)), 2_000_000_000
_MANY = 2  # times as many replicas fit near the end as far from it, where GPUs are many
_NUMBERED, _FEW_NUMBERED = 4, 2
_TOLD = 2 * len(_BEHIND)  # tables of stages that are kept,
_FEW_KEPT = 3  # and rows in their places
SURE = 1e-9  # relative, for what was rounded: times are less, and sequences more


class Synchronising(NamedTuple):
    """Stages take up to `most_us` for it, and a pipeline `spent_us` or more.

    That is beside its bottlenecks, where backward passes hide what stages synchronise
    while the pipeline fills.
    """

    most_us: float = inf
    spent_us: float = 0.0


#: Sequences that a pipeline takes at the least, by the GPUs that it may use.
Wanted = dict[Homes, Whole]


class Range(NamedTuple):
    """Plans of some settings: how many pipelines, of which sizes, by their numbers.

    Their layers have `replicas` at the least. A pipeline is of one of some kinds of
    `synchronising`, and of one of `finer` ones, if any. Of what the plans synchronise
    `unknown_us` are not told: with that much less time it is worth the while to ask
    again. `wanted` was told of a wider range and no less time: of no other homes is
    anything to be asked.
    """

    fewest: int
    most: int
    replicas: int
    sizes: range
    synchronising: tuple[Synchronising, ...]
    finer: tuple[Synchronising, ...] = ()
    unknown_us: float = 0.0
    wanted: Wanted | None = None


class Verdict(NamedTuple):
    """How finely the slowest stage is told apart where there is no plan in a range.

    None where there may be one. Then so many sequences are `wanted` of its pipelines:
    with the others they take all of the batch.
    """

    ratio: float | None
    wanted: Wanted | None = None


def prepared(
    table: StageTable, check: Callable[[], None] = lambda: None
) -> "CountBound | None":
    """The bound of an instance; None where it has other rows of stages, or too many.

    `check()` is called before what takes long, and may raise.
    """
    if not capability.carries("proof counts", table.instance):
        return None
    # So few kinds of nodes that GPUs can be counted; None where one is too many.
    most = min(MOST_STATES, _MOST_ENTRIES // _entries(table))
    found = together(table, lambda found: _states(found) <= most)
    return None if found is None else CountBound(table, found, check)


def _states(kinds: Sequence[Kind]) -> int:
    """Numbers of GPUs that a plan may use, by kind."""
    return prod(kind.total + 1 for kind in kinds)


def _entries(table: StageTable) -> int:
    """Of a table of spread stages, for each number of GPUs."""
    largest = table.sizes[-1] + 1
    return len(Runs.of(table.layers)) * (largest if largest > 2 else 1)


class CountBound:
    """Refutes iteration times of one instance, whose stage of ZeRO is fixed."""

    def __init__(
        self,
        table: StageTable,
        kinds: list[Kind],
        check: Callable[[], None],
    ) -> None:
        """As `prepared` makes it."""
        self.instance, self.table, self._check = table.instance, table, check
        #: Sequences of micro-batches, in ascending order.
        self.sizes = table.sizes
        self.kinds = kinds
        self._batch = table.batch
        self._all_wait = table.instance.workload.costs.sync == "bottleneck"
        self._gpus = [kind.total for kind in self.kinds]
        #: Numbers of GPUs that a plan may use, by kind.
        self.states = _states(kinds)
        self._most_in_parts = min(_FEW_STATES, _FEW_ENTRIES // _entries(table))
        self._weights = layer_weights(table.costs)
        #: What one GPU takes to synchronise an average layer with other nodes.
        self.spread_us = spread_us(table.costs)
        self._within = [within_us(table.costs, kind) for kind in self.kinds]
        self._memory = Memory(table.costs)
        self._stages: dict[tuple[int, int], StageTables] = {}
        self._told: OrderedDict[tuple[object, ...], StageTables] = OrderedDict()
        self._alone_in_places: OrderedDict[object, RowsInPlaces | None] = OrderedDict()
        self._sums = Kept(self._gpus, inf, check)
        self._in_parts: dict[Homes, tuple[CountBound, Parts]] = {}

    def within(self, most_us: float, check: Callable[[], None]) -> "CountBound":
        """The same, with its stages, for pipelines that take up to `most_us`."""
        other = copy(self)
        other._check, other._sums = check, Kept(self._gpus, most_us, check)
        other._in_parts = {}
        return other

    def _of_parts(self, homes: Homes) -> tuple["CountBound", Parts]:
        """The same, where exactly some nodes are homes."""
        if homes not in self._in_parts:
            each, other = in_parts(self.kinds, homes), copy(self)
            other.kinds, other._gpus = each.kinds, [x.total for x in each.kinds]
            other.states = _states(each.kinds)
            other._within = [self._within[c] for c in each.of]
            other._stages, other._told = {}, OrderedDict()
            other._sums = Kept(other._gpus, self._sums.most_us, self._check)
            self._in_parts[homes] = other, each
        return self._in_parts[homes]

    @property
    def apart(self) -> bool:
        """Whether no kinds are looked at as one."""
        return len(self.kinds) == len(self.table.classes)

    @property
    def together(self) -> tuple[tuple[str, ...], ...]:
        """Nodes of kinds that are looked at as one, one node of each kind."""
        return tuple(kind.speakers for kind in self.kinds if len(kind.speakers) > 1)

    @property
    def few(self) -> bool:
        """Whether kinds are apart, and numbers of GPUs few enough to go first."""
        return self.apart and self.states <= _FEW_STATES

    def left_us(self, time_us: float) -> float:
        """What an iteration leaves for pipelines that need not synchronise."""
        costs = self.instance.workload.costs
        left = time_us - float(costs.iteration_overhead_us)
        return left / float(costs.pipeline_factor)

    def single(self, time_us: float, check: Callable[[], None]) -> bool:
        """Whether one pipeline may have an iteration of at most `time_us`.

        `check()` is called before what takes long, and may raise.
        """
        every = range(len(self.sizes))
        alone = Range(1, 1, 1, every, (Synchronising(),))
        bound = self.within(time_us, check)
        return bound.refuted(alone, self.left_us(time_us)).ratio is None

    def refuted(self, some: Range, left_us: float) -> Verdict:
        """Whether no plan in a range takes `left_us` or less for its pipelines."""
        if left_us < 0:
            return Verdict(RATIOS[0])
        if some.most == 1:
            ways = product(some.sizes, some.finer or some.synchronising)
            alone = all(self._alone(size, by, left_us) for size, by in ways)
            return Verdict(RATIOS[0] if alone else None)
        return self._together(some, left_us)

    def _senders(
        self, sync_us: float, others: int, replicas: int, near: frozenset[int]
    ) -> Senders:
        """What a time for synchronisation lets replicas hold."""
        every = [self.spread_us, *self._within]
        away, *within = [sync_us / us if us else np.inf for us in every]
        fastest = tuple(max(away, rate) for rate in within)
        return Senders(away, fastest, others, replicas, self._all_wait, near)

    def _alone_senders(self, sync_us: float) -> Senders:
        return self._senders(sync_us, 0, 1, frozenset())

    def _sums_of(self, size: int, micro_batches: int, senders: Senders) -> Sums:
        self._check()
        tables = self._tables(size, micro_batches)
        asked = size, micro_batches, senders
        return self._sums.of(asked, lambda: tables.stages(senders), tables.runs)

    def _placed(
        self, which: tuple[int, int], stages_behind: tuple[int, ...]
    ) -> StageTables:
        """Stages of a size and a number of micro-batches, in places that are told."""
        key = (*which, stages_behind)
        if key not in self._told:
            if len(self._told) >= _TOLD:
                self._told.popitem(last=False)
            self._told[key] = self._made(*which, stages_behind)
        self._told.move_to_end(key)
        return self._told[key]

    def _tables(self, size: int, micro_batches: int) -> StageTables:
        """Stages of a size where pipelines have so many micro-batches, or more."""
        key = size, micro_batches
        if key not in self._stages:
            self._stages[key] = self._made(size, micro_batches)
        return self._stages[key]

    def _made(
        self, size: int, micro_batches: int, stages_behind: tuple[int, ...] = ()
    ) -> StageTables:
        b = self.sizes[size]
        told = self._memory, self.kinds, b, micro_batches, self._check, stages_behind
        numbered = _NUMBERED if self.states <= _SMALL else _FEW_NUMBERED
        if not self._all_wait:
            numbered = 0
        return StageTables(Replicas(*told), self.kinds, self._weights, b, numbered)

    # -- one pipeline --------------------------------------------------------------

    def _alone(self, size: int, by: Synchronising, left_us: float) -> bool:
        """Whether one pipeline of this size of micro-batches takes longer."""
        n, rest = divmod(self._batch, self.sizes[size])
        if rest:
            return True
        sums = self._sums_of(size, n, self._alone_senders(by.most_us))

        def least(slowest_us: float) -> float:
            self._check()
            return max(float(sums.least(slowest_us).flat[-1]), by.spent_us)

        slowest = _slowest(sums.times, least, n, left_us, left_us / n)
        if not slowest:
            return True
        placed = self._in_places(size, n, by.most_us, sums.work(slowest))
        if placed is None:
            return False

        def in_places(slowest_us: float) -> float:
            self._check()
            return max(placed.least_us(slowest_us, left_us), by.spent_us)

        return not _slowest(placed.times, in_places, n, left_us, slowest)

    def _in_places(
        self, size: int, n: int, sync_us: float, work: int
    ) -> RowsInPlaces | None:
        """Rows of one pipeline of n micro-batches; None where places are all alike.

        Or where there is too much to look at: `work` without places.
        """
        layers = self.table.layers
        many = self.states > _FEW_STATES
        told = _BEHIND if self.states <= _SMALL else _FEW_BEHIND
        if many:
            told = _MANY_BEHIND
        places = min(1 + told[-1], n, layers, sum(self._gpus))
        if places < 2 or (many and work * places > _MOST_WORK):
            return None
        key = size, n, sync_us
        if key not in self._alone_in_places:
            told = tuple(k for k in told if k < places)

            def behind(k: int) -> StageTables:
                return self._placed((size, n), (k,) * (layers + 1))

            found = None
            near, far = behind(0), behind(told[-1])
            if _MANY * far.fitting <= near.fitting if many else near.less_than(far):
                senders = self._alone_senders(sync_us)
                each = {k: behind(k).stages(senders) for k in told}
                stages = [each[max(x for x in told if x <= k)] for k in range(places)]
                found = RowsInPlaces(stages, behind(0).runs, self._gpus)
            if len(self._alone_in_places) >= _FEW_KEPT:
                self._alone_in_places.popitem(last=False)
            self._alone_in_places[key] = found
        return self._alone_in_places[key]

    def row(
        self, size: int, sync_us: float, stages_behind: Sequence[int], most_us: float
    ) -> tuple[float, list[Laid]]:
        """About the least that one pipeline takes that finds nodes, and its stages.

        None where it would take `most_us`. Stages synchronise up to a time, and have
        the memory of a place that so many stages follow, by the layers before these.
        """
        b = self.sizes[size]
        n = self._batch // b
        tables = self._placed((size, n), tuple(stages_behind))
        stages = tables.stages(self._alone_senders(sync_us))
        sums = Sums(RowsOnNodes(stages, tables.runs, self._gpus), most_us)
        best, slowest = most_us, 0.0
        for low, high in sums.ranges(RATIOS[2]):
            self._check()
            left = best - (n - 1) * low
            if left <= 0:
                break
            us = float(sums.least(high, np.full(sums.sides, left)).flat[-1])
            if us < left:
                best, slowest = us + (n - 1) * low, high
        return best, sums.row(slowest) if slowest else []

    # -- several -------------------------------------------------------------------

    def _together(self, some: Range, left_us: float) -> Verdict:
        """Of pipelines that take less than the batch, whatever GPUs each uses."""
        every, *each = self._homes(some)
        nothing = np.zeros([g + 1 for g in self._gpus], np.int64)
        told = some.wanted or dict.fromkeys((every, *each), nothing)
        wanted = {every: told.get(every, nothing)}
        # All may be refuted at once, where finer ranges are what makes the difference.
        ratio = self._at_home(
            some, left_us, every, wanted, RATIOS[: _AT_ONCE if each else None]
        )
        if ratio is not None or not each:
            return Verdict(ratio, wanted)
        wanted |= {
            homes: np.maximum(table, self._in_part(wanted[every], homes))
            for homes, table in told.items()
            if homes.nodes and homes.kinds <= every.kinds
        }
        left, ratios = [homes for homes in wanted if homes != every], list[float]()
        while left:
            homes = left.pop(0)
            ratio = self._at_home(some, left_us, homes, wanted, RATIOS)
            finer = []
            if ratio is None:
                finer = [*numbered(self.kinds, homes, self._few_parts)]
                if not finer:
                    return Verdict(None, wanted)
            else:
                ratios.append(ratio)
            of_all = wanted.pop(homes)
            wanted |= {part: self._in_part(of_all, part) for part in finer}
            left = finer + left
        return Verdict(min(ratios, default=RATIOS[0]))

    def _few_parts(self, kinds: Sequence[Kind]) -> bool:
        return _states(kinds) <= self._most_in_parts

    def _in_part(self, table: Whole, homes: Homes) -> Whole:
        """A table by GPUs of each kind, by those that are homes and others."""
        return self._of_parts(homes)[1].lifted(table) if homes.exactly else table

    def _homes(self, some: Range) -> Iterator[Homes]:
        """Nodes that may hold all replicas of a layer: all at once, then by kind."""
        replicas = max(some.replicas, some.fewest)
        able = [c for c, kind in enumerate(self.kinds) if kind.gpus >= replicas]
        yield Homes(frozenset(able), ())
        if some.fewest > 1 and able and (self.few or len(able) <= _FEW_KINDS):
            for number in range(len(able) + 1):
                for kinds in map(frozenset, combinations(able, number)):
                    some_of = tuple(int(c in kinds) for c in range(len(self.kinds)))
                    yield Homes(kinds, some_of)

    def _at_home(
        self,
        some: Range,
        left_us: float,
        homes: Homes,
        wanted: Wanted,
        ratios: Sequence[float],
    ) -> float | None:
        """Ranges that refute plans with such nodes; None where these do not.

        Then so many sequences are `wanted` as is found out.
        """
        bound, near, used = self, homes.kinds, homes.nodes
        if homes.exactly:
            bound, each = self._of_parts(homes)
            near, used = each.near, each.used
        finer = some.finer or some.synchronising
        for level, ratio in enumerate(ratios):
            if level and _WORTH * (ratio - 1) * left_us < some.unknown_us:
                break
            kinds = finer if level else some.synchronising
            one = np.zeros_like(wanted[homes])
            for size, by in product(some.sizes, kinds):
                rest = some.fewest - 1, some.replicas
                senders = bound._senders(by.most_us, *rest, near)
                times = left_us, by.spent_us
                more = bound._sequences(size, senders, times, ratio, wanted[homes])
                np.maximum(one, more, out=one)
            for kind, gpus in enumerate(used):
                one.swapaxes(0, kind)[:gpus] = 0
            taken, others = packed(one, some.fewest, some.most)
            if taken < self._batch:
                return ratio
            # Pipelines that leave more of the batch than others take are in no plan.
            wanted[homes] = self._batch - np.flip(others)
            if kinds == finer and taken > ratio * self._batch:
                break  # ranges are not what makes the difference
        return None

    def _sequences(
        self,
        size: int,
        senders: Senders,
        times: tuple[float, float],
        ratio: float,
        wanted: Whole,
    ) -> Whole:
        """The most sequences of one pipeline by the GPUs that it may use.

        `times` are what is left, and what a pipeline spends beside its bottlenecks.
        Fewer may be told than there are where they are less than is `wanted`.
        """
        b = self.sizes[size]
        fewest = -(-wanted // b)

        def taken(least: int, most: int) -> Whole:
            sums = self._sums_of(size, least, senders)
            return self._micro_batches(sums, *times, ratio, (fewest, most))

        most = taken(_SEVERAL, self._batch)
        if self._tables(size, 1).less_than(self._tables(size, _SEVERAL)):
            most = np.maximum(most, taken(1, _SEVERAL - 1))
        return np.minimum(b * most, self._batch)

    def _micro_batches(
        self,
        sums: Sums,
        left_us: float,
        spent_us: float,
        ratio: float,
        wanted: tuple[Whole, int],
    ) -> Whole:
        """The same, as if stages had as much memory as these need.

        Between a least number `wanted` and a most.
        """
        fewest, highest = wanted

        def most_us(low: float) -> Array:
            """Of a row of stages that takes as many as are wanted."""
            spare = left_us - np.maximum(0, fewest - 1) * low * (1 - 2 * SURE)
            return np.where(fewest > highest, -1.0, spare + SURE * left_us)

        def taken(low: float, least: Array) -> Whole:
            spare = left_us - np.maximum(least, spent_us)
            # Stages of no time are no limit to their number.
            found = np.full_like(spare, self._batch)
            if low > 0:
                found = np.maximum(spare, 0) / low * (1 + SURE) + SURE
            able = 1 + np.minimum(found, self._batch).astype(np.int64)
            return np.where(spare >= 0, np.minimum(able, highest), 0)

        most = np.zeros([g + 1 for g in self._gpus], np.int64)
        # What is known says which ranges may take more than those before them.
        ranges = [
            (taken(low, sums.known(high)), low, high)
            for low, high in sums.ranges(ratio)
        ]
        for known, low, high in sorted(ranges, key=lambda x: -int(x[0].sum())):
            self._check()
            if ((known > most) & (known >= fewest)).any():
                least = sums.least(high, most_us(low))
                np.maximum(most, taken(low, least), out=most)
        return most


def _slowest(
    times: Array,
    least: Callable[[float], float],
    n: int,
    left_us: float,
    most_us: float,
) -> float:
    """Up to which time the slowest stage of n micro-batches may be; 0 for none.

    That is `most_us` or less. `least` sums of stages take `left_us` together with n - 1
    times of the slowest, which is no less than one of the `times`.
    """
    limit = most_us
    while True:
        times = times[times <= limit * (1 + SURE)]
        if not len(times):
            return 0.0
        slowest = float(times[-1])
        spare = left_us - least(slowest)
        if spare < 0:
            return 0.0
        if spare >= (n - 1) * slowest * (1 - SURE):
            return limit
        limit = spare / (n - 1)


def packed(one: Whole, fewest: int, most: int) -> tuple[int, Whole]:
    """The most sequences of `fewest` to `most` pipelines that use all GPUs.

    `one` is of one pipeline, by GPUs at most of each kind; where it takes none there
    is none. And the most of one pipeline less, by GPUs; below 0 where there is none.
    """
    best = np.zeros_like(one)
    others = np.full_like(one, 0 if fewest == 1 else -_NEVER)
    exactly = one
    for parts in range(1, most + 1):
        if parts >= fewest:
            more = np.maximum(best, exactly)
            if parts > fewest and np.array_equal(more, best):
                break
            best = more
        if fewest - 1 <= parts < most:
            np.maximum(others, np.where(exactly > 0, exactly, -_NEVER), out=others)
        if parts < most:
            exactly = _one_more(exactly, one)
    return int(best.flat[-1]), others


def _one_more(best: Whole, one: Whole) -> Whole:
    found = np.zeros_like(best)
    for use in np.argwhere(one > 0).tolist():
        into = tuple(slice(u, None) for u in use)
        rest = tuple(slice(0, side - u) for side, u in zip(one.shape, use, strict=True))
        both = np.where(best[rest] > 0, best[rest] + one[tuple(use)], 0)
        np.maximum(found[into], both, out=found[into])
    return found
