"""The module sums up many solves: means, quantiles, profiles, integrals, growth.

Every function counts what is missing as missing: a method that failed on an instance
stays in the denominator of its profile, and is left out of no count.
"""

import math
import statistics
from bisect import bisect_right
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import TypeVar

#: Seconds by which times are shifted in their geometric means: what takes much less
#: than that counts as alike, as in comparisons of solvers.
SHIFT_S = 1.0
LEAST_S = 0.001  # seconds of a proof: what is sooner is as soon
Costs = Mapping[str, Mapping[str, float | None]]
Value = Fraction | int | None
_R = TypeVar("_R")


@dataclass(frozen=True)
class ScoredRun:
    """A run is what one method made of one instance, with one seed."""

    instance: str
    label: str  # of the method
    seed: int
    series: tuple[str, str]  # the data and the method: runs with other seeds share it
    objective: Value
    best: Value  # of all that is known of the data
    minimise: bool
    proved: bool  # optimal, or that there is no plan
    seconds: float
    trace: Sequence[tuple[float, Value, Value]]  # seconds, best plan and bound by then

    @property
    def case(self) -> str:
        """The instance, and the seed where it is not the first: what is compared."""
        return f"{self.instance}, seed {self.seed}" if self.seed else self.instance


def quantile(values: Iterable[float], share: float) -> float | None:
    """The least value that `share` of all values do not exceed (nearest rank)."""
    ordered = sorted(values)
    if not ordered:
        return None
    return ordered[max(0, math.ceil(share * len(ordered) - 1e-9) - 1)]


def shifted_geometric_mean(
    values: Iterable[float], shift: float = SHIFT_S
) -> float | None:
    """Return the geometric mean of the values plus a shift, less the shift.

    None without a value. Values are not negative.
    """
    shifted = [value + shift for value in values]
    return max(0.0, statistics.geometric_mean(shifted) - shift) if shifted else None


def primal_integral(
    plans: Iterable[tuple[float, Fraction | int]], best: Value, horizon_s: float
) -> float:
    """Return the seconds up to a horizon, each weighted by the primal gap in it.

    `plans` are seconds and objectives that were found, in order. The primal gap is
    |objective - best| over the larger of the two, of the best plan so far, and 1 before
    the first (Berthold, 2013): the less, the sooner good plans were there.
    """
    total, since, weight = 0.0, 0.0, 1.0
    for seconds, objective in plans:
        until = min(max(seconds, since), horizon_s)
        total, since = total + weight * (until - since), until
        weight = min(weight, _primal_gap(objective, best))
    return total + weight * max(0.0, horizon_s - since)


def _primal_gap(objective: Fraction | int, best: Value) -> float:
    if best is None or objective == best:
        return 0.0
    found, least = Fraction(objective), Fraction(best)
    return min(1.0, float(abs(found - least) / max(abs(found), abs(least))))


@dataclass(frozen=True)
class Spread:
    """The spread is what several runs of one method on one instance gave."""

    runs: int
    planned: int  # runs with a plan; the rest is of these
    best: float | None
    mean: float | None
    worst: float | None
    deviation: float | None  # of a sample, over the mean; None below two plans


def spread(objectives: Sequence[Value], *, minimise: bool) -> Spread:
    """Return best, mean, worst and the relative deviation of the objectives."""
    found = [one for one in objectives if one is not None]
    if not found:
        return Spread(len(objectives), 0, None, None, None, None)
    mean = float(sum(map(Fraction, found)) / len(found))
    deviation = None
    if len(found) > 1 and mean:
        deviation = statistics.stdev(map(float, found)) / abs(mean)
    least, most = float(min(found)), float(max(found))
    best, worst = (least, most) if minimise else (most, least)
    return Spread(len(objectives), len(found), best, mean, worst, deviation)


def spreads(
    rows: Iterable[_R], run_of: Callable[[_R], ScoredRun]
) -> list[tuple[list[_R], Spread]]:
    """Return the rows of each method on each instance, and how their runs spread."""
    series: dict[tuple[str, str], list[_R]] = {}
    for row in rows:
        series.setdefault(run_of(row).series, []).append(row)
    found = []
    for mine in series.values():
        runs = [run_of(row) for row in mine]
        minimise = all(run.minimise for run in runs)
        found.append((mine, spread([x.objective for x in runs], minimise=minimise)))
    return found


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


def quality(runs: Iterable[ScoredRun]) -> dict[str, Profile]:
    """How near to the best plan of each instance, as a factor of its objective."""
    costs: dict[str, dict[str, float | None]] = {}
    for run in runs:
        costs.setdefault(run.label, {})[run.case] = _distance(run)
    return profiles(costs)


def _distance(run: ScoredRun) -> float | None:
    """Return the factor, from 1 on; None where either value is absent or 0."""
    if not run.objective or not run.best:
        return None
    factor = Fraction(run.objective) / run.best
    return float(factor if run.minimise else 1 / factor)


def proof(runs: Iterable[ScoredRun]) -> dict[str, Profile]:
    """Time to a proof, as a factor of the least; what proved nothing failed."""
    costs: dict[str, dict[str, float | None]] = {}
    for run in runs:
        cost = max(run.seconds, LEAST_S) if run.proved else None
        costs.setdefault(run.label, {})[run.case] = cost
    return profiles(costs)


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
    law = statistics.linear_regression(*zip(*there, strict=True))
    return Growth(law.slope, math.exp(law.intercept))
