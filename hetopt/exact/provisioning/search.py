"""Best-first search over allocations; each is placed exactly, or shown to be too slow.

The queue holds, by their bound, batches of allocations and branches of partial ones.
A degree with few allocations is listed at once; another starts from its branches. A
batch is placed with the time that its goal leaves at its price as a cut-off; what is
left in the queue when the search stops bounds every plan that was not seen.
"""

import heapq
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from itertools import count

import numpy as np

from ...plans import Provisioning, RentedStage
from .bounds import by_beta, least_times, spans
from .branches import Branch, children, how_many, roots
from .goals import Found, Goal
from .placement import Jobs, Stages, place
from .tables import Degree, Ints

_FIRST, _LARGEST = 4, 256  # allocations of a batch that are placed together
_BEAM, _QUICK_BATCHES = 16, 6
_LISTED = 100_000  # allocations of a degree that are listed at once
_SLICE = 2048  # partial allocations of a branch
_DIVES, _DIVE_ROWS = 3, 64
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
        self.queue: list[tuple[int, int, Batch | Branch]] = []
        self._pending = list(degrees)
        self._number = count()
        self._size = _FIRST
        self._batches = 0

    def run(self, report: Callable[[int], object] = id) -> None:
        """Search until nothing is left; `check` may leave by an exception.

        `report` takes a key below which nothing is left.
        """
        while self._pending:
            self.check()
            self._start(self._pending[-1])
            self._pending.pop()
        while self.queue:
            key, _, node = self.queue[0]
            report(key)
            self.check()
            if isinstance(node, Batch):
                self._place(node.pick(slice(self._size)))
                follow: list[tuple[int, Batch | Branch]] = []
                if (
                    rest := self._wanted(node.pick(slice(self._size, None)))
                ) is not None:
                    follow.append(rest)
                self._size = min(2 * self._size, _LARGEST)
            else:
                follow = self._open(node)
            # Only now: what a limit cuts short stays in the queue.
            heapq.heappop(self.queue)
            for entry in follow:
                self._push(*entry)

    def may_beat(self, found: Found) -> bool:
        """Tell whether what is left may reach `found` in both time and cost."""
        return bool(self._pending) or any(
            isinstance(node, Branch)
            or any(
                time <= found.time and time * price <= found.cost
                for time, price in node.expected()
            )
            for _, _, node in self.queue
        )

    def _push(self, key: int, node: Batch | Branch) -> None:
        heapq.heappush(self.queue, (key, next(self._number), node))

    def _start(self, degree: Degree) -> None:
        """Put a degree into the queue, whole or not at all."""
        if how_many(degree) <= _LISTED:
            entry = self._batch(degree, allocations(degree))
            if entry is not None:
                self._push(*entry)
            return
        branches = sorted(roots(degree, self.goal), key=lambda entry: entry[0])
        for _, branch in branches[:_DIVES]:
            self._dive(branch)
        for branch_entry in branches:
            self._push(*branch_entry)

    def _dive(self, branch: Branch) -> None:
        """A first plan: only the best few partial allocations are followed."""
        while not branch.complete:
            self.check()
            counts, _ = children(branch, self.goal)
            branch = Branch(branch.degree, branch.stages, counts[:_DIVE_ROWS])
        entry = self._batch(branch.degree, branch.counts)
        if entry is not None:
            self._place_within(entry[1].pick(slice(_FIRST)), _BEAM)

    def _open(self, branch: Branch) -> list[tuple[int, Batch | Branch]]:
        """Return what follows a branch."""
        degree = branch.degree
        counts, keys = children(branch, self.goal)
        follow: list[tuple[int, Batch | Branch]] = []
        for first, end in spans(len(counts), _SLICE):
            child = Branch(degree, branch.stages, counts[first:end])
            if not child.complete:
                follow.append((int(keys[first]), child))
            elif (entry := self._batch(degree, child.counts)) is not None:
                follow.append(entry)
        return follow

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
