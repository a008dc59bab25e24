"""Whale's two balances: whole shares in proportion, and layers in proportion.

Both make the largest load relative to compute as small as whole numbers and memory
allow: what exceeds the memory of one goes to the others.
"""

from bisect import bisect_left, bisect_right
from collections.abc import Callable, Sequence
from fractions import Fraction
from heapq import heapify, heappop, heappush
from math import gcd, lcm

from ...caching import cached_method

Fits = Callable[[int, int, int], bool]  # stage, first layer, one past the last


def proportional(
    powers: Sequence[Fraction], caps: Sequence[int], total: int
) -> list[int] | None:
    """Shares of `total` in proportion to `powers`, each from 1 to its cap.

    None where there are none. One after the other goes to whom it costs least.
    """
    if total < len(powers) or min(caps) < 1 or sum(caps) < total:
        return None
    shares = [1] * len(powers)
    heap = [(2 / power, i) for i, power in enumerate(powers) if caps[i] > 1]
    heapify(heap)
    for _ in range(total - len(powers)):
        _, i = heappop(heap)
        shares[i] += 1
        if shares[i] < caps[i]:
            heappush(heap, ((shares[i] + 1) / powers[i], i))
    return shares


def cuts(
    work: Sequence[int], powers: Sequence[int], fits: Fits, least: int = 1
) -> list[int] | None:
    """Boundaries of stages whose largest work relative to power is the least.

    `work` is of the layers before each, and of all; `fits` may turn from true to false
    only as a stage grows from `least` layers on, which each has; later ones have few
    rather than earlier ones. None where the layers do not fit.
    """
    stages = _Stages(work, powers, fits, least)
    low, high = 0, stages.whole
    best = stages.ends(high)
    while best is not None and low < high:
        middle = (low + high) // 2
        found = stages.ends(middle)
        if found is None:
            low = middle + 1
        else:
            best, high = found, middle
    return best


class _Stages:
    """Stages that wait for layers, under a limit of work relative to power."""

    def __init__(
        self, work: Sequence[int], powers: Sequence[int], fits: Fits, least: int
    ) -> None:
        # Without common factors, few limits tell cuts apart.
        common, shared = gcd(*work) or 1, gcd(*powers)
        self._work = [amount // common for amount in work]
        self._powers = [power // shared for power in powers]
        self._unit = lcm(*self._powers)
        self._fits, self._least = fits, least
        self._layers = len(work) - 1
        self.whole = self._work[-1] * self._unit // min(self._powers)

    def ends(self, load: int) -> list[int] | None:
        """Boundaries with at most `load` / unit of work a power in every stage."""
        reached = [[0]]
        for j in range(len(self._powers)):
            found: set[int] = set()
            for first in reached[-1]:
                end = self._end(j, first, load)
                found.update(range(first + self._least, end + 1))
            reached.append(sorted(found))
        if self._layers not in reached[-1]:
            return None
        back = [self._layers]
        for j in range(len(self._powers) - 1, -1, -1):
            firsts = (a for a in reversed(reached[j]) if a + self._least <= back[-1])
            back.append(next(a for a in firsts if self._end(j, a, load) >= back[-1]))
        return back[::-1]

    def _end(self, j: int, first: int, load: int) -> int:
        """One past the last layer of stage `j` at the most; `first` for none."""
        most = self._work[first] + load * self._powers[j] // self._unit
        waiting = (len(self._powers) - 1 - j) * self._least  # for the stages behind
        last = min(bisect_right(self._work, most, lo=first) - 1, self._layers - waiting)
        return min(last, self._memory_end(j, first))

    @cached_method
    def _memory_end(self, j: int, first: int) -> int:
        ends = range(first + self._least, self._layers + 1)
        fitting = bisect_left(ends, True, key=lambda z: not self._fits(j, first, z))
        return first + self._least - 1 + fitting
