"""The module sums up many solves: means, quantiles, integrals, growth.

Every function counts what is missing as missing: it is left out of no count.
"""

import math
import statistics
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from fractions import Fraction

#: Seconds by which times are shifted in their geometric means: what takes much less
#: than that counts as alike, as in comparisons of solvers.
SHIFT_S = 1.0
Value = Fraction | int | None


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
