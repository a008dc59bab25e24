"""The module sums up many solves: means, quantiles and integrals.

Every function counts what is missing as missing: it is left out of no count.
"""

import math
import statistics
from collections.abc import Iterable
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
