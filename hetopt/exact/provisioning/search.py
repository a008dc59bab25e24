"""Best-first search over allocations; each is placed exactly, or shown to be too slow.

The queue holds batches of allocations by their bound, to begin with all of a degree.
A batch is placed with the time that its goal leaves at its price as a cut-off; what is
left in the queue when the search stops bounds every plan that was not seen.
"""

import heapq
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from fractions import Fraction
from itertools import count
from math import floor
from typing import Any

import numpy as np

from ...plans import Provisioning, RentedStage
from ...problems.provisioning import MICRO, Data
from ...result import Stop
from ...schema import exact
from ...solving.run import Halt
from .placement import Jobs, Stages, place
from .tables import NEVER, Degree, Ints, Losses, by_beta, least_times

_FIRST, _LARGEST = 4, 256  # allocations of a batch that are placed together
_BEAM, _QUICK_BATCHES = 16, 6  # frontiers of tasks take several times as long without
MOST_LISTED = 1_000_000  # allocations of a degree that are listed
_MOST = 2**60  # us of an iteration, above every one that the tables allow


LONGEST = 2**200  # above every time
_PER_USD = 3600 * MICRO * MICRO  # us x micro-USD an hour


@dataclass(frozen=True)
class Found:
    """A plan with its iteration time and its price."""

    time: int
    price: int
    plan: Any

    @property
    def cost(self) -> int:
        """Time x price."""
        return self.time * self.price


@dataclass
class Goal:
    """What is worth having, within limits of time and cost.

    Prices are micro-USD an hour of all that is rented, times the expected ones of one
    iteration in parts of a us (`Losses`), costs their product; all integers.
    """

    longest: int = LONGEST
    most: int = LONGEST**2

    def cut(self, price: int) -> int:
        """Return the longest iteration at `price` within the limits; -1 for none."""
        return min(self.longest, _within(self.most, price))

    def key(self, time: int, cost: int) -> int:
        """Return the objective of a bound (time, cost): smaller is searched first."""
        raise NotImplementedError

    def take(self, found: Found) -> None:
        """Keep a plan that is within `cut`."""
        raise NotImplementedError


@dataclass
class Least(Goal):
    """The least cost, or the least time."""

    of_time: bool = False
    tell: Callable[[object], object] = id
    best: Found | None = None

    def cut(self, price: int) -> int:
        """Within the limits, and better than the best."""
        longest = super().cut(price)
        if self.best is None:
            return longest
        if self.of_time:
            return min(longest, self.best.time - 1)
        return min(longest, _within(self.best.cost - 1, price))

    def key(self, time: int, cost: int) -> int:
        """The time or the cost."""
        return time if self.of_time else cost

    def take(self, found: Found) -> None:
        """Keep the best."""
        self.best = found
        self.tell(found.plan)


@dataclass
class Tradeoffs(Goal):
    """Every plan that no other beats in both time and cost."""

    points: list[Found] = field(default_factory=list)  # ascending time, falling cost

    def cut(self, price: int) -> int:
        """Within the limits, and not reached by any point in both time and cost."""
        less = (max(p.time - 1, _within(p.cost - 1, price)) for p in self.points)
        return min([super().cut(price), *less])

    def key(self, time: int, cost: int) -> int:
        """Time x cost: the middle of the front first."""
        return time * cost

    def take(self, found: Found) -> None:
        """Keep the point, and drop those that it reaches."""
        kept = [p for p in self.points if p.time < found.time or p.cost < found.cost]
        self.points = sorted([*kept, found], key=lambda point: point.time)


def _within(cost: int, price: int) -> int:
    """Return the longest iteration that costs no more at a price; -1 for none."""
    if price:
        return max(-1, cost // price)
    return LONGEST if cost >= 0 else -1


def limits_of(data: Data) -> tuple[int, int]:
    """Return the longest iteration, and the largest cost of one, that are allowed."""
    unit = Fraction(Losses.of(data).unit, data.iterations)
    longest, most = LONGEST, LONGEST**2
    if data.deadline_s is not None:
        longest = floor(exact(data.deadline_s) * MICRO * unit)
    if data.budget_usd is not None:
        most = floor(exact(data.budget_usd) * _PER_USD * unit)
    return longest, most


def total(data: Data, key: int, *, of_time: bool) -> int | Fraction:
    """Return a time of one iteration as us of all, or a cost as USD."""
    unit = Losses.of(data).unit * (1 if of_time else _PER_USD)
    return key * data.iterations if unit == 1 else Fraction(key * data.iterations, unit)


@dataclass(frozen=True)
class Batch:
    """Allocations of one degree in ascending order of their bound."""

    degree: Degree
    counts: Ints
    time: Ints
    price: list[int]
    stretch: list[int]  # expected time of each us, in parts of one

    def pick(self, rows: list[int] | slice) -> "Batch":
        """Some of the allocations, in the order of `rows`."""
        if isinstance(rows, slice):
            rows = list(range(*rows.indices(len(self.price))))
        return Batch(
            self.degree,
            self.counts[rows],
            self.time[rows],
            [self.price[row] for row in rows],
            [self.stretch[row] for row in rows],
        )

    def expected(self) -> Iterator[tuple[int, int]]:
        """The bound of the expected time, and the price, of each."""
        rows = zip(self.time.tolist(), self.stretch, self.price, strict=True)
        return ((time * stretch, price) for time, stretch, price in rows)


class Search:
    """All allocations of some degrees, searched for a goal."""

    def __init__(
        self, degrees: Iterable[Degree], goal: Goal, check: Callable[[], None]
    ) -> None:
        self.goal, self.check = goal, check
        self.queue: list[tuple[int, int, Batch]] = []
        self._pending = list(degrees)
        self._number = count()
        self._size = _FIRST
        self._batches = 0
        #: Whether a degree has too many allocations to list.
        self.too_large = any(how_many(x) > MOST_LISTED for x in self._pending)

    def run(self, report: Callable[[int], object] = id) -> None:
        """Search until nothing is left; `check` may leave by an exception.

        `report` takes a key below which nothing is left. Raises `Halt` where a degree
        has more than `MOST_LISTED` allocations.
        """
        if self.too_large:
            raise Halt(Stop.MEMORY)
        while self._pending:
            self.check()
            degree = self._pending[-1]
            self._list(degree, allocations(degree))
            self._pending.pop()
        while self.queue:
            key, _, batch = self.queue[0]
            report(key)
            self.check()
            for beam in (_BEAM, None) if self._batches < _QUICK_BATCHES else (None,):
                self._place(batch.pick(slice(self._size)), beam)
            self._batches += 1
            self._push(batch.pick(slice(self._size, None)))
            # Only now: what a limit cuts short stays in the queue, before the rest.
            heapq.heappop(self.queue)
            self._size = min(2 * self._size, _LARGEST)

    def may_beat(self, found: Found) -> bool:
        """Tell whether what is left may reach `found` in both time and cost."""
        return bool(self._pending) or any(
            time <= found.time and time * price <= found.cost
            for _, _, batch in self.queue
            for time, price in batch.expected()
        )

    def _list(self, degree: Degree, counts: Ints) -> None:
        time, price = least_times(degree, counts), degree.prices(counts)
        batch = Batch(degree, counts, time, price, degree.stretches(counts))
        keys = [self._key(*pair) for pair in batch.expected()]
        self._push(batch.pick(sorted(range(len(price)), key=keys.__getitem__)))

    def _push(self, batch: Batch) -> None:
        cuts = {price: self.goal.cut(price) for price in {*batch.price}}
        pairs = enumerate(batch.expected())
        kept = batch.pick([i for i, (time, price) in pairs if time <= cuts[price]])
        for first in kept.expected():
            entry = self._key(*first), next(self._number), kept
            heapq.heappush(self.queue, entry)
            break

    def _key(self, time: int, price: int) -> int:
        return self.goal.key(time, time * price)

    def _place(self, batch: Batch, beam: int | None) -> None:
        degree = batch.degree
        cuts = [
            min(self.goal.cut(price) // stretch, _MOST)
            for price, stretch in zip(batch.price, batch.stretch, strict=True)
        ]
        cut = np.array(cuts, dtype=np.int64)
        row, beta = np.nonzero(by_beta(degree, batch.counts) <= cut[:, None])
        longest = (degree.micro_batches - 1) * degree.betas
        stages = batch.counts.sum(axis=1)
        for number in np.unique(stages[row]):
            mine = np.flatnonzero(stages[row] == number)
            jobs = Jobs(
                batch.counts[row[mine]],
                beta[mine],
                cut[row[mine]] - longest[beta[mine]],
            )
            for job, found in place(degree, jobs, self.check, beam).items():
                at = row[mine[job]]
                time = iteration(degree, found) * batch.stretch[at]
                self._take(degree, time, batch.price[at], found)

    def _take(self, degree: Degree, time: int, price: int, stages: Stages) -> None:
        if time > self.goal.cut(price):
            return
        plan = Provisioning(
            data_parallel=degree.d,
            stages=tuple(RentedStage(gpu=degree.types[t], layers=x) for t, x in stages),
            **degree.choice,
        )
        self.goal.take(Found(time, price, plan))


def iteration(degree: Degree, stages: Stages) -> int:
    """us of one iteration of a pipeline."""
    times = [int(degree.w[t]) * x for t, x in stages]
    exposed = before = 0
    for t, x in stages:
        exposed = max(exposed, int(degree.s[t]) * x - before)
        before += int(degree.b[t]) * x
    return sum(times) + (degree.micro_batches - 1) * max(times) + exposed


def how_many(degree: Degree) -> int:
    """Allocations of the degree, at most `NEVER`."""
    ways = [1] + [0] * degree.stages
    for quota in degree.quota.tolist():
        ways = [
            sum(ways[p - n] for n in range(min(quota, p) + 1))
            for p in range(degree.stages + 1)
        ]
    return min(sum(ways) - 1, NEVER)


def allocations(degree: Degree) -> Ints:
    """Every choice of numbers of stages by type, within quotas, at least one stage."""
    rows = np.zeros((1, 0), dtype=np.int64)
    for quota in degree.quota:
        n = np.arange(int(quota) + 1)
        wider = np.concatenate(
            [np.repeat(rows, len(n), axis=0), np.tile(n, len(rows))[:, None]], axis=1
        )
        rows = wider[wider.sum(axis=1) <= degree.stages]
    return np.asarray(rows[rows.sum(axis=1) > 0])
