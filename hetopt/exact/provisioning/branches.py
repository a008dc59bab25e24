"""Partial allocations and their bounds, for problems with too many to list.

A branch fixes the degree, the number of stages P and how many of them the first types
take. With loads free to be fractions and memory apart, an allocation n of P stages
takes at least  mu L + exposed,  mu the root of

    sum_t n_t phi_t(mu) = K - 1,      phi_t(mu) = max(0, mu / w_t - 1)

(the dual of: least sum w x + (K - 1) max w x over shares x of the L layers). So to
last no longer than mu_2 L + exposed the stages must have phi(mu_2) of K - 1 together:
the stages still to choose cost at least the lower convex hull of the remaining types'
(phi, c) says. On a grid of mu each interval gives a least time (its lower end) and a
least price (at its upper end); a branch is bounded by its best interval. Times are
those that are expected on the machines fixed so far.
"""

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from .goals import Goal
from .tables import NEVER, Degree, Floats, Ints

_GRID = 128
# Floats only prune here, and by a margin far above their error.
_MARGIN = 1 - 1e-9


@dataclass(frozen=True)
class Branch:
    """Partial allocations of `stages` stages; `counts` has a column a fixed type."""

    degree: Degree
    stages: int
    counts: Ints

    @property
    def complete(self) -> bool:
        """Return whether every type is fixed."""
        return bool(self.counts.shape[1] == len(self.degree.w))


def roots(degree: Degree, goal: Goal) -> Iterator[tuple[int, Branch]]:
    """One branch for every number of stages, with its key."""
    most = min(degree.stages, int(degree.quota.sum()))
    for stages in range(1, most + 1):
        counts = np.zeros((1, 0), dtype=np.int64)
        key = float(_keys(degree, stages, counts, goal)[0])
        if np.isfinite(key) and _hold(degree, counts, stages)[0]:
            yield int(key), Branch(degree, stages, counts)


def children(branch: Branch, goal: Goal) -> tuple[Ints, Floats]:
    """The next type fixed in every way that may be worth having, best bound first."""
    degree, level = branch.degree, branch.counts.shape[1]
    left = branch.stages - branch.counts.sum(axis=1)
    later = int(degree.quota[level + 1 :].sum())
    least = np.maximum(left - later, 0)
    number = np.maximum(np.minimum(left, degree.quota[level]) - least + 1, 0)
    again = np.repeat(np.arange(len(left)), number)
    first = np.cumsum(number) - number
    n = np.arange(len(again)) - first[again] + least[again]
    counts = np.concatenate([branch.counts[again], n[:, None]], axis=1)
    counts = counts[_hold(degree, counts, branch.stages)]
    keys = _keys(degree, branch.stages, counts, goal)
    best_first = np.argsort(keys, kind="stable")
    best_first = best_first[np.isfinite(keys[best_first])]
    return counts[best_first], keys[best_first]


def _hold(degree: Degree, counts: Ints, stages: int) -> npt.NDArray[np.bool_]:
    """Tell whether memory may hold the layers."""
    level = counts.shape[1]
    held = np.zeros(len(counts), dtype=np.int64)
    for t in range(level):
        held += np.cumsum(degree.cap[t] * (np.arange(degree.stages + 1) > 0))[
            counts[:, t]
        ]
    free = stages - counts.sum(axis=1)
    held += free * int(degree.cap[level:, 1].max(initial=0))
    return held >= degree.layers


def _keys(degree: Degree, stages: int, counts: Ints, goal: Goal) -> Floats:
    """Least key of each partial allocation; infinite where it is not worth having."""
    keys = np.full(len(counts), np.inf)
    if not len(counts):
        return keys
    level, waiting = counts.shape[1], float(degree.micro_batches - 1)
    free = (stages - counts.sum(axis=1)).astype(float)
    price = (counts @ degree.c[:level]).astype(float)
    stretch = degree.least_stretches(counts)
    exposed = exposed_least(degree, stages)
    shortest, grid = _grid(degree, stages)
    for lower, upper in zip([shortest, *grid[:-1]], grid, strict=True):
        phi = _phi(degree, upper)
        # Not `counts @ phi`, which is rounded as the processor likes: keys decide.
        met = sum(phi[k] * counts[:, k] for k in range(level))
        short = np.maximum(waiting - met, 0.0) * _MARGIN
        rest = _rest_price(phi[level:], degree.c[level:].astype(float), short, free)
        time = (lower * degree.layers + exposed) * _MARGIN * stretch
        reached = np.isfinite(rest)
        found = goal.bound(time, (price + np.where(reached, rest, 0.0)) * _MARGIN)
        keys = np.where(reached, np.minimum(keys, found), keys)
    return keys


def exposed_least(degree: Degree, stages: int) -> int:
    """Synchronisation that any pipeline of so many stages leaves uncovered."""
    if not degree.s.any():
        return 0
    table = degree.need(int(degree.b.max()), int(degree.s.min()))
    if table.shape[0] == 1:
        return int(table[0, 0, degree.layers])
    return int(table[degree.layers, stages, degree.layers])


def _phi(degree: Degree, mu: float) -> Floats:
    return np.maximum(mu / np.maximum(degree.w, 1) - 1.0, 0.0)


def _grid(degree: Degree, stages: int) -> tuple[float, list[float]]:
    """The least mu of any allocation, and the upper ends of the intervals."""
    stretch = (degree.micro_batches - 1 + stages) / stages
    fastest, slowest = int(degree.w.min()), max(1, int(degree.w.max()))
    # A type without time has no phi; the range then starts at nothing.
    low = fastest * stretch * _MARGIN
    high = slowest * stretch / _MARGIN
    ends = np.geomspace(max(low, high * 1e-6), high, _GRID + 1)[1:]
    return low, [float(end) for end in ends]


def _rest_price(phi: Floats, c: Floats, short: Floats, free: Floats) -> Floats:
    """Least price of `free` stages that have `short` phi together; inf if none."""
    if not len(c):
        return np.where(short <= 0.0, 0.0, np.inf)
    x, y = _hull(phi, c)
    each = short / np.maximum(free, 1.0)
    price = np.interp(each, x, y) * free
    reach = free * x[-1] >= short
    return np.where(reach, price, np.inf)


def _hull(phi: Floats, c: Floats) -> tuple[Floats, Floats]:
    """Least price of having at least phi, convex and rising, as a polyline."""
    points: list[tuple[float, float]] = []
    order = np.lexsort((phi, -c))[::-1]  # ascending price, largest phi first
    for i in order:
        p, q = float(phi[i]), float(c[i])
        if points and p <= points[-1][0]:
            continue
        while len(points) > 1 and _above(points[-2], points[-1], (p, q)):
            points.pop()
        points.append((p, q))
    return np.array([p for p, _ in points]), np.array([q for _, q in points])


def _above(
    a: tuple[float, float], b: tuple[float, float], z: tuple[float, float]
) -> bool:
    """Tell whether `b` lies on or above the line from `a` to `z`."""
    return (b[1] - a[1]) * (z[0] - a[0]) >= (z[1] - a[1]) * (b[0] - a[0])


def how_many(degree: Degree) -> int:
    """Allocations of the degree, at most `NEVER`."""
    ways = [1] + [0] * degree.stages
    for quota in degree.quota.tolist():
        ways = [
            sum(ways[p - n] for n in range(min(quota, p) + 1))
            for p in range(degree.stages + 1)
        ]
    return min(sum(ways) - 1, NEVER)
