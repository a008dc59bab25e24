"""One micro-batch size: boxes of slowest stage and slowest sync, bounded and searched.

Every pipeline lies in one box. A box is bounded by the least sum of stage times that
its largest maxima allow, with its smallest maxima; it is searched where few stages
are left, and halved otherwise.
"""

from bisect import bisect_left
from collections.abc import Callable
from dataclasses import dataclass
from fractions import Fraction

import numpy as np

from .cluster_tables import BIG, Array, ClusterTables
from .completion import Least, LeastByCount, LeastByPrice
from .kinds import Kinds
from .options import Builder
from .prices import Path, Prices
from .search import Box, BoxSearch, Goal, Search
from .stages import Stages

_STALE = 4  # changes of prices in a row that may raise the bound by less than
_MUCH = 0.003  # of the limit
_ENDLESS = 1 << 50  # us of a slowest stage, of a sync; a limit cuts it down
_DIVE = 200  # partial pipelines of a dive
_BEYOND = 0.05  # of the limit, by which prices aim above it
_LEVEL = 25  # a box this much narrower than its bound says where the level is
_FINE = 0.5  # of what a box may gain; narrower ones are searched,
_THIN = 8  # and those this much narrower than the limit
_FEW = 300  # options; boxes with as many or fewer are searched, however wide
_PARTS = 20_000  # partial pipelines looked at before a box is halved instead


@dataclass(frozen=True)
class OpenBox:
    """A box that may hold a pipeline of `bound` or more, with prices to start from.

    `options` are those that some pipeline below `limit` may have; None for all. A
    settled box is narrow, and its bound its own.
    """

    bound: int
    box: Box
    prices: tuple[int, ...]
    options: Array | None = None
    limit: int = 0
    settled: bool = False


class Size:
    """The pipelines of micro-batches of `b` sequences; `Halt` if too large.

    `check()` is called while they are listed, and may raise.
    """

    def __init__(
        self, cluster: ClusterTables, b: int, check: Callable[[], None]
    ) -> None:
        self.cluster, self.b = cluster, b
        self.n = cluster.instance.workload.global_batch // b
        kinds = Kinds(cluster, b)
        options = Builder(cluster, kinds, self.n).build(check)
        self.prices = Prices(cluster, kinds, options)
        self.search = Search(kinds, self.prices, Stages(cluster, kinds, self.n))

    def whole(self) -> OpenBox:
        """The box of all pipelines."""
        options = self.prices.options
        if not len(options):
            return OpenBox(BIG, Box(0, 0, 0, 0), ())
        # Options are bounds from below: what stages take at most, only a limit says.
        box = Box(int(self.prices.least_us.min()), _ENDLESS, 0, _ENDLESS)
        return OpenBox(0, box, (0,) * len(self.cluster.gpus))

    def work(self, job: OpenBox, goal: Goal, *, search: bool = True) -> list[OpenBox]:
        """Return what remains open of a box; none of it is below its bound."""
        top = goal.limit()
        box = self._cut(job.box, top)
        if box is None:
            return [OpenBox(top, job.box, job.prices)]
        options = job.options
        if options is None or job.limit < top:
            options = np.arange(len(self.prices.options))
        options = self.prices.within(options, box.slow_high, box.sync_high)
        path, prices, options = self._priced(options, box, job.prices, goal)
        bound = max(job.bound, self._bound(path.bound_us, box))
        if bound >= top:  # options were left out that only a plan of `top` can have
            return [OpenBox(top, job.box, prices)]
        if not search and self._width(box) * _LEVEL <= bound:
            return [OpenBox(bound, job.box, prices, settled=True)]
        halves = self._halved(box)
        few = len(options) <= _FEW or self._narrow(box, bound, top)
        if search and (not halves or few):
            done = self._searched(options, box, prices, goal, hurried=bool(halves))
            if done is not None:
                return [OpenBox(max(bound, done), job.box, prices)]
        parts = [OpenBox(bound, half, prices, options, top) for half in halves]
        return parts + [OpenBox(top, rest, prices) for rest in _outside(job.box, box)]

    # --- bounds ------------------------------------------------------------------

    def _bound(self, sum_us: int, box: Box) -> int:
        if sum_us >= BIG:
            return BIG
        return self.search.total(max(sum_us, box.slow_low), box.slow_low, box.sync_low)

    def _cut(self, box: Box, top: int) -> Box | None:
        """The box without maxima that alone reach `top`; None where none is left."""
        slow = _largest(
            box.slow_low,
            box.slow_high,
            lambda us: self.search.total(us, us, box.sync_low) < top,
        )
        sync = _largest(
            box.sync_low,
            box.sync_high,
            lambda us: self.search.total(box.slow_low, box.slow_low, us) < top,
        )
        if slow is None or sync is None:
            return None
        return box._replace(slow_high=slow, sync_high=sync)

    def _room(self, box: Box, top: int) -> int:
        """The largest sum of stage times below `top` in a box."""
        factor, other = self.cluster.cost.pipeline_factor, self.cluster.cost.sync_factor
        sync = -(-other.numerator * box.sync_low // other.denominator)
        over = self.cluster.table.overhead_us
        most = Fraction(top - 1 - over - sync) / factor
        return int(most // 1) - (self.n - 1) * box.slow_low

    def _priced(
        self, options: Array, box: Box, start: tuple[int, ...], goal: Goal
    ) -> tuple[Path, tuple[int, ...], Array]:
        """The best bound over some prices, and the options below `top` that remain."""
        top = goal.limit()
        room = self._room(box, top)
        prices = np.array(start, np.int64)
        best: tuple[Path, Array] | None = None
        stale = 0
        while stale < _STALE:
            goal.check()
            known = -BIG if best is None else best[0].bound_us
            path = Path(self.prices, options, box.slow_high, prices)
            options = path.below(room) if path.bound_us > known else options
            stale += 1
            if best is None or path.bound_us > best[0].bound_us:
                much = best is None or path.bound_us - best[0].bound_us > _MUCH * room
                best, stale = (path, prices), 0 if much else stale
            if path.bound_us > room or top >= BIG:  # nothing to aim at
                break
            excess = path.used() - self.prices.gpus
            excess = np.where((prices == 0) & (excess < 0), 0, excess)
            if not excess.any():
                break
            # Aimed beyond the limit: steps to the limit itself would not pass it.
            step = (room + _BEYOND * top - path.bound_us) / float(excess @ excess)
            moved = np.maximum(prices + np.rint(step * excess).astype(np.int64), 0)
            if (moved == prices).all():
                break
            prices = moved
        assert best is not None
        return best[0], tuple(int(p) for p in best[1]), options

    # --- boxes -------------------------------------------------------------------

    def _width(self, box: Box) -> int:
        """How much the bound of a box can miss for its maxima's sake."""
        slow, sync = box.slow_high - box.slow_low, box.sync_high - box.sync_low
        whole = self.search.total((self.n - 1) * slow, 0, sync)
        return whole - self.cluster.table.overhead_us

    def _narrow(self, box: Box, bound: int, top: int) -> bool:
        """Tell whether searching promises more than halving."""
        width = self._width(box)
        return width <= _FINE * (top - bound) or width * _THIN <= top

    def _halved(self, box: Box) -> list[Box]:
        """The box in two, across the side that matters more; none of a point."""
        slow, sync = box.slow_high - box.slow_low, box.sync_high - box.sync_low
        if slow <= 0 and sync <= 0:
            return []
        if (
            self.search.total((self.n - 1) * slow, 0, 0)
            >= self.search.total(0, 0, sync)
            and slow > 0
        ):
            middle = box.slow_low + slow // 2
            return [box._replace(slow_high=middle), box._replace(slow_low=middle + 1)]
        middle = box.sync_low + sync // 2
        return [box._replace(sync_high=middle), box._replace(sync_low=middle + 1)]

    def _searched(
        self,
        options: Array,
        box: Box,
        prices: tuple[int, ...],
        goal: Goal,
        *,
        hurried: bool,
    ) -> int | None:
        """The box's bound after a search of all of it; None where it took too long."""
        if hurried and not LeastByCount.fits(self.prices, options):
            return None
        rest = self._rest(options, box, np.array(prices, np.int64))
        if (
            isinstance(rest, LeastByCount)
            and self._bound(rest.bound_us, box) >= goal.limit()
        ):
            return goal.limit()
        search = BoxSearch(self.search, options, rest, box, goal)
        return goal.limit() if search.all(_PARTS if hurried else None) else None

    def dive(self, job: OpenBox, rise: float, goal: Goal) -> None:
        """Look for a plan near a box, its largest maxima raised by a factor."""
        slow_low, slow, _, sync = job.box
        box = Box(slow_low, int(slow * rise), 0, int(sync * rise))
        row = np.array(job.prices, np.int64)
        every = np.arange(len(self.prices.options))
        options = self.prices.within(every, box.slow_high, box.sync_high)
        room = self._room(box, goal.limit())
        options = Path(self.prices, options, box.slow_high, row).below(room)
        rest = self._rest(options, box, row)
        BoxSearch(self.search, options, rest, box, goal).dive(_DIVE)

    def _rest(self, options: Array, box: Box, prices: Array) -> Least:
        """Return a bound on layers before a cut, by counts or by prices."""
        if LeastByCount.fits(self.prices, options):
            return LeastByCount(self.prices, options, box.slow_high)
        value = Path(self.prices, options, box.slow_high, prices).value
        return LeastByPrice(value, prices)


def _outside(box: Box, part: Box) -> list[Box]:
    """Return what is left of a box without the part that has its least maxima."""
    left = []
    if part.slow_high < box.slow_high:
        left.append(box._replace(slow_low=part.slow_high + 1))
    if part.sync_high < box.sync_high:
        left.append(box._replace(slow_high=part.slow_high, sync_low=part.sync_high + 1))
    return left


def _largest(low: int, high: int, good: Callable[[int], bool]) -> int | None:
    """The largest number of a range that is good, as are all below it."""
    count = bisect_left(range(low, high + 1), True, key=lambda x: not good(x))
    return low + count - 1 if count else None
