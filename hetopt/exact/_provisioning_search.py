"""Best-first search over allocations; each is placed exactly, or shown to be too slow.

The queue holds batches of allocations by their bound. A batch is placed with the time
that its goal leaves at its price as a cut-off; what is left in the queue when the
search stops bounds every plan that was not seen.
"""

import heapq
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from itertools import count

import numpy as np

from ..plans import Provisioning, RentedStage
from ._provisioning_bounds import by_beta, least_times
from ._provisioning_goals import LONGEST, Found, Goal
from ._provisioning_placement import Jobs, Stages, place
from ._provisioning_tables import Degree, Ints

_FIRST, _LARGEST = 4, 256  # allocations of a batch
_BEAM, _QUICK_BATCHES = 16, 6


@dataclass(order=True)
class Batch:
    """Allocations of one degree in ascending order of their bound."""

    key: int
    order: int
    degree: Degree = field(compare=False)
    counts: Ints = field(compare=False)
    time: Ints = field(compare=False)
    price: list[int] = field(compare=False)


class Search:
    """All allocations of some degrees, searched for a goal."""

    def __init__(
        self, degrees: Iterable[Degree], goal: Goal, check: Callable[[], None]
    ) -> None:
        self.goal, self.check = goal, check
        self.queue: list[Batch] = []
        self._pending = list(degrees)
        self._number = count()
        self._batches = 0

    def run(self, report: Callable[[int], object] = id) -> None:
        """Search until nothing is left; `check` may leave by an exception.

        `report` is told a key below which nothing is left.
        """
        while self._pending:
            self.check()
            self._push_all(self._pending[-1])
            self._pending.pop()
        size = _FIRST
        while self.queue:
            batch = self.queue[0]
            report(batch.key)
            self.check()
            self._place(_head(batch, size))
            heapq.heappop(self.queue)
            if len(batch.time) > size:
                self._push(batch, size)
            self._batches += 1
            size = min(2 * size, _LARGEST)

    def may_beat(self, found: Found) -> bool:
        """Whether what is left may reach `found` in both time and cost."""
        return bool(self._pending) or any(
            time <= found.time and time * price <= found.cost
            for batch in self.queue
            for time, price in zip(batch.time.tolist(), batch.price, strict=True)
        )

    def _push_all(self, degree: Degree) -> None:
        counts = allocations(degree)
        time = least_times(degree, counts)
        price = [int(p) for p in counts @ degree.c]
        cut = np.array([min(self.goal.cut(p), LONGEST) for p in price], dtype=np.int64)
        rows = np.flatnonzero(time <= cut)
        best_first = sorted(rows.tolist(), key=lambda i: self._key(time[i], price[i]))
        rows = np.array(best_first, dtype=np.int64)
        whole = Batch(0, 0, degree, counts[rows], time[rows], [price[i] for i in rows])
        self._push(whole, 0)

    def _push(self, batch: Batch, first: int) -> None:
        """What follows row `first`, as far as it may still be worth having."""
        price, times = batch.price[first:], batch.time[first:]
        keep = [
            i
            for i, (p, t) in enumerate(zip(price, times, strict=True))
            if t <= self.goal.cut(p)
        ]
        if not keep:
            return
        price, times = [price[i] for i in keep], times[keep]
        key = self._key(times[0], price[0])
        heapq.heappush(
            self.queue,
            Batch(
                key,
                next(self._number),
                batch.degree,
                batch.counts[first:][keep],
                times,
                price,
            ),
        )

    def _key(self, time: np.int64, price: int) -> int:
        return self.goal.key(int(time), int(time) * price)

    def _place(self, batch: Batch) -> None:
        if self._batches < _QUICK_BATCHES:
            self._place_within(batch, _BEAM)
        self._place_within(batch, None)

    def _place_within(self, batch: Batch, beam: int | None) -> None:
        degree = batch.degree
        cut = np.array([self.goal.cut(p) for p in batch.price], dtype=np.int64)
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
                self._take(degree, batch.price[row[mine[job]]], found)

    def _take(self, degree: Degree, price: int, stages: Stages) -> None:
        time = iteration(degree, stages)
        if time > self.goal.cut(price):
            return
        plan = Provisioning(
            data_parallel=degree.d,
            stages=tuple(RentedStage(gpu=degree.types[t], layers=x) for t, x in stages),
        )
        self.goal.take(Found(time, price, plan))


def _head(batch: Batch, size: int) -> Batch:
    return Batch(
        batch.key,
        batch.order,
        batch.degree,
        batch.counts[:size],
        batch.time[:size],
        batch.price[:size],
    )


def iteration(degree: Degree, stages: Stages) -> int:
    """us of one iteration of a pipeline."""
    times = [int(degree.w[t]) * x for t, x in stages]
    exposed = before = 0
    for t, x in stages:
        exposed = max(exposed, int(degree.s[t]) * x - before)
        before += int(degree.b[t]) * x
    return sum(times) + (degree.micro_batches - 1) * max(times) + exposed


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
