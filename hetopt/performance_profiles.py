"""What many solves add up to: quantiles, performance profiles, growth.

Every function counts what is missing as missing: a method that failed on an instance
stays in the denominator of its profile, and is left out of no count.
"""

import math
from bisect import bisect_right
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

Costs = Mapping[str, Mapping[str, float | None]]


def quantile(values: Iterable[float], share: float) -> float | None:
    """The least value that `share` of all values do not exceed (nearest rank)."""
    ordered = sorted(values)
    if not ordered:
        return None
    return ordered[max(0, math.ceil(share * len(ordered) - 1e-9) - 1)]


@dataclass(frozen=True)
class Profile:
    """A performance profile of one method, by Dolan and Moré (2002).

    `ratios` holds, sorted, its cost over the least cost of any method, one for each of
    the instances that it solved; `instances` counts those that any method solved.
    """

    ratios: tuple[float, ...]
    instances: int

    def share(self, factor: float) -> float:
        """The share of instances whose cost is within `factor` of the least."""
        if not self.instances:
            return 0.0
        return bisect_right(self.ratios, factor) / self.instances


def profiles(costs: Costs) -> dict[str, Profile]:
    """The profile of each method from costs by method and instance, None for failed.

    Costs are positive, and the smaller the better. A method without an entry for an
    instance was not asked, which counts as failed too: compare only methods that were
    asked the same.
    """
    best: dict[str, float] = {}
    for mine in costs.values():
        for instance, cost in mine.items():
            if cost is not None:
                best[instance] = min(cost, best.get(instance, math.inf))
    return {
        method: Profile(
            tuple(
                sorted(
                    cost / best[instance]
                    for instance, cost in mine.items()
                    if cost is not None
                )
            ),
            len(best),
        )
        for method, mine in costs.items()
    }


@dataclass(frozen=True)
class Growth:
    """A power law: seconds = factor * size ** exponent."""

    exponent: float
    factor: float

    def at(self, size: float) -> float:
        """Seconds at a size."""
        return float(self.factor * size**self.exponent)


def growth(points: Sequence[tuple[float, float]]) -> Growth | None:
    """The power law of (size, seconds) by least squares of the logarithms.

    None where fewer than three different sizes were measured.
    """
    there = [(math.log(x), math.log(y)) for x, y in points if x > 0 and y > 0]
    if len({x for x, _ in there}) < 3:
        return None
    mean_x = sum(x for x, _ in there) / len(there)
    mean_y = sum(y for _, y in there) / len(there)
    over = sum((x - mean_x) * (y - mean_y) for x, y in there)
    slope = over / sum((x - mean_x) ** 2 for x, _ in there)
    return Growth(slope, math.exp(mean_y - slope * mean_x))
