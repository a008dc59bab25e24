"""Best-first search over allocations; each is placed exactly, or shown to be too slow.

The queue holds batches of allocations by their bound, to begin with all of a degree.
A batch is placed with the time that its goal leaves at its price as a cut-off; what is
left in the queue when the search stops bounds every plan that was not seen.
"""

import heapq
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from itertools import count

import numpy as np

from ...plans import Provisioning, RentedStage
from ...result import Stop
from ...solving.run import Halt
from .bounds import by_beta, least_times
from .goals import Found, Goal
from .placement import Jobs, Stages, place
from .tables import NEVER, Degree, Ints

_FIRST, _LARGEST = 4, 256  # allocations of a batch that are placed together
_BEAM, _QUICK_BATCHES = 16, 6
MOST_LISTED = 1_000_000  # allocations of a degree that are listed
_MOST = 2**60  # us of an iteration, above every one that the tables allow


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

    def run(self, report: Callable[[int], object] = id) -> None:
        """Search until nothing is left; `check` may leave by an exception.

        `report` takes a key below which nothing is left. Raises `Halt` where a degree
        has more than `MOST_LISTED` allocations.
        """
        while self._pending:
            self.check()
            degree = self._pending[-1]
            if how_many(degree) > MOST_LISTED:
                raise Halt(Stop.MEMORY)
            self._push(self._batch(degree, allocations(degree)))
            self._pending.pop()
        while self.queue:
            key, _, batch = self.queue[0]
            report(key)
            self.check()
            self._place(batch.pick(slice(self._size)))
            rest = self._wanted(batch.pick(slice(self._size, None)))
            self._size = min(2 * self._size, _LARGEST)
            # Only now: what a limit cuts short stays in the queue.
            heapq.heappop(self.queue)
            self._push(rest)

    def may_beat(self, found: Found) -> bool:
        """Tell whether what is left may reach `found` in both time and cost."""
        return bool(self._pending) or any(
            time <= found.time and time * price <= found.cost
            for _, _, batch in self.queue
            for time, price in batch.expected()
        )

    def _push(self, entry: tuple[int, Batch] | None) -> None:
        if entry is not None:
            heapq.heappush(self.queue, (entry[0], next(self._number), entry[1]))

    def _batch(self, degree: Degree, counts: Ints) -> tuple[int, Batch] | None:
        """Allocations with their bounds, in order, those worth having."""
        time = least_times(degree, counts)
        price = degree.prices(counts)
        batch = Batch(degree, counts, time, price, degree.stretches(counts))
        keys = [self._key(*pair) for pair in batch.expected()]
        order = sorted(range(len(price)), key=keys.__getitem__)
        return self._wanted(batch.pick(order))

    def _wanted(self, batch: Batch) -> tuple[int, Batch] | None:
        """Return what may still be worth having of an ordered batch, with its key."""
        cuts: dict[int, int] = {}
        keep = []
        for i, (time, price) in enumerate(batch.expected()):
            if price not in cuts:
                cuts[price] = self.goal.cut(price)
            if time <= cuts[price]:
                keep.append(i)
        if not keep:
            return None
        kept = batch.pick(keep)
        return self._key(*next(kept.expected())), kept

    def _key(self, time: int, price: int) -> int:
        return self.goal.key(time, time * price)

    def _place(self, batch: Batch) -> None:
        if self._batches < _QUICK_BATCHES:
            self._place_within(batch, _BEAM)
        self._batches += 1
        self._place_within(batch, None)

    def _place_within(self, batch: Batch, beam: int | None) -> None:
        degree = batch.degree
        cuts = [
            min(self.goal.cut(price) // stretch, _MOST)
            for price, stretch in zip(batch.price, batch.stretch, strict=True)
        ]
        cut = np.array(cuts, dtype=np.int64)
        least = by_beta(degree, batch.counts)
        row, beta = np.nonzero(least <= cut[:, None])
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
