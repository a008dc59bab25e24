"""Goals of a search over allocations: cheapest, fastest, or every trade-off.

Prices are micro-USD an hour of all that is rented, times the expected ones of one
iteration in parts of a us (`Losses`), costs their product; all integers. A goal says
how long an iteration of an allocation of some price may last to be worth having
(`cut`), so that one search serves all three.
"""

from bisect import bisect_right
from collections.abc import Callable
from dataclasses import dataclass
from fractions import Fraction
from math import floor
from typing import Any, Protocol

from ...problems.provisioning import MICRO, Data
from ...schema import exact
from .tables import Losses

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


class Goal(Protocol):
    """A question to the search."""

    def cut(self, price: int) -> int:
        """The longest iteration at `price` that is worth having; -1 for none."""

    def key(self, time: int, cost: int) -> int:
        """The objective of a bound (time, cost): smaller is searched first."""

    def take(self, found: Found) -> None:
        """Keep a plan that passed `cut`."""


class Cheapest:
    """Least cost, within a time limit."""

    def __init__(self, longest: int, tell: Callable[[object], object] = id) -> None:
        self.longest, self._tell = longest, tell
        self.best: Found | None = None

    def cut(self, price: int) -> int:
        """Within the limit, and cheaper than the best."""
        if self.best is None:
            return self.longest
        if price == 0:
            return self.longest if self.best.cost else -1
        return min(self.longest, (self.best.cost - 1) // price)

    def key(self, time: int, cost: int) -> int:
        """The cost."""
        return cost

    def take(self, found: Found) -> None:
        """Keep the cheapest."""
        if found.time <= self.cut(found.price):
            self.best = found
            self._tell(found.plan)


class Fastest:
    """Least time, within a cost (None: any)."""

    def __init__(self, most: int | None, tell: Callable[[object], object] = id) -> None:
        self.most, self._tell = most, tell
        self.best: Found | None = None

    def cut(self, price: int) -> int:
        """Affordable, and faster than the best."""
        longest = LONGEST if self.best is None else self.best.time - 1
        if self.most is not None and self.most < 0:
            return -1
        if self.most is None or price == 0:
            return longest
        return min(longest, self.most // price)

    def key(self, time: int, cost: int) -> int:
        """The time."""
        return time

    def take(self, found: Found) -> None:
        """Keep the fastest."""
        if found.time <= self.cut(found.price):
            self.best = found
            self._tell(found.plan)


class Tradeoffs:
    """Every plan that no other beats in both time and cost, within limits of both."""

    def __init__(self, longest: int = LONGEST, most: int | None = None) -> None:
        self.longest, self.most = longest, most
        self.points: list[Found] = []  # ascending time, descending cost

    def cut(self, price: int) -> int:
        """Not reached by any point in both time and cost."""
        longest = self.longest
        if self.most is not None and self.most < 0:
            return -1
        if self.most is not None and price:
            longest = min(longest, self.most // price)
        for point in self.points:
            if price == 0:
                reached = point.time if point.cost == 0 else LONGEST + 1
            else:
                reached = max(point.time, -(-point.cost // price))
            longest = min(longest, reached - 1)
        return longest

    def key(self, time: int, cost: int) -> int:
        """Time x cost: the middle of the front first."""
        return time * cost

    def take(self, found: Found) -> None:
        """Keep the point, and drop those that it reaches."""
        if found.time > self.cut(found.price):
            return
        kept = [p for p in self.points if p.time < found.time or p.cost < found.cost]
        at = bisect_right([p.time for p in kept], found.time)
        kept.insert(at, found)
        self.points = kept


def longest_iteration(data: Data) -> int:
    """Time of one iteration that the deadline leaves; `LONGEST` without one."""
    if data.deadline_s is None:
        return LONGEST
    parts = MICRO * Losses.of(data).unit
    return int(exact(data.deadline_s) * parts / data.iterations)


def largest_cost(data: Data) -> int | None:
    """Cost of one iteration that the budget leaves; None without one."""
    if data.budget_usd is None:
        return None
    return floor(
        exact(data.budget_usd) * _PER_USD * Losses.of(data).unit / data.iterations
    )


def us(data: Data, time: int) -> int | Fraction:
    """A time of one iteration as us of all iterations."""
    unit = Losses.of(data).unit
    total = time * data.iterations
    return total if unit == 1 else Fraction(total, unit)


def usd(data: Data, cost: int) -> Fraction:
    """A cost of one iteration as USD of all iterations."""
    per_usd = _PER_USD * Losses.of(data).unit
    return Fraction(cost) * data.iterations / per_usd


def objective(data: Data, key: int) -> int | Fraction:
    """The key of `Cheapest` or `Fastest` as the objective of `data`."""
    return us(data, key) if data.minimises_time else usd(data, key)
