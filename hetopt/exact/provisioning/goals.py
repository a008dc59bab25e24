"""Goals of a search over allocations: cheapest, fastest, or every trade-off.

Prices are micro-USD an hour of all that is rented, times the expected ones of one
iteration in parts of a us (`Losses`), costs their product; all integers. A goal says
how long an iteration of an allocation of some price may last to be worth having
(`cut`), so that one search serves all three.
"""

from bisect import bisect_right
from collections.abc import Callable
from dataclasses import dataclass, field
from fractions import Fraction
from math import floor
from typing import Any

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


@dataclass
class Goal:
    """A question to the search: what is worth having, within limits of time and cost.

    `most` None is no limit of the cost.
    """

    longest: int = LONGEST
    most: int | None = None

    def cut(self, price: int) -> int:
        """Return the longest iteration at `price` within the limits; -1 for none."""
        if self.most is None:
            return self.longest
        if self.most < 0:
            return -1
        return min(self.longest, self.most // price) if price else self.longest

    def key(self, time: int, cost: int) -> int:
        """Return the objective of a bound (time, cost): smaller is searched first."""
        raise NotImplementedError

    def take(self, found: Found) -> None:
        """Keep a plan that passed `cut`."""
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
        if price == 0:
            return longest if self.best.cost else -1
        return min(longest, (self.best.cost - 1) // price)

    def key(self, time: int, cost: int) -> int:
        """The time or the cost."""
        return time if self.of_time else cost

    def take(self, found: Found) -> None:
        """Keep the best."""
        if found.time <= self.cut(found.price):
            self.best = found
            self.tell(found.plan)


@dataclass
class Tradeoffs(Goal):
    """Every plan that no other beats in both time and cost."""

    points: list[Found] = field(default_factory=list)  # ascending time, falling cost

    def cut(self, price: int) -> int:
        """Within the limits, and not reached by any point in both time and cost."""
        longest = super().cut(price)
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
    """The key of `Least` as the objective of `data`."""
    return us(data, key) if data.minimises_time else usd(data, key)
