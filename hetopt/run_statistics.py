"""The module sums up many solves: means and quantiles.

Every function counts what is missing as missing: it is left out of no count.
"""

import math
import statistics
from collections.abc import Iterable

#: Seconds by which times are shifted in their geometric means: what takes much less
#: than that counts as alike, as in comparisons of solvers.
SHIFT_S = 1.0


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
