"""Statements of device grouping share this: units, reachable values, plans."""

from bisect import bisect_right
from collections import Counter
from collections.abc import Iterable, Mapping
from fractions import Fraction
from functools import lru_cache
from heapq import heapreplace
from itertools import pairwise
from math import ceil, floor, gcd
from typing import NamedTuple

from hetopt.plans import Group, Grouping
from hetopt.problems.device_grouping import Data

MOST_SUMS = 200_000  # beyond, every integer counts as a reachable sum


class Case(NamedTuple):
    """The plans of `data.groups` groups whose least has `least` or more, in units."""

    data: Data
    least: Fraction

    @property
    def groups(self) -> int:
        """D; a case is of one number of groups."""
        assert self.data.groups is not None
        return self.data.groups


def cases_of(data: Data) -> list[Case]:
    """The problem for each number of groups that is not out of the question.

    A plan of D groups is no better than the best that is built at once, for any D, unless
    the value of its least group is at least D-th of that.
    """
    of = {d: data.model_copy(update={"groups": d}) for d in possible_groups(data)}
    built = max((d * built_at_once(of[d], d) for d in of), default=Fraction(0))
    return [Case(of[d], built / d) for d in of]


def unit(data: Data) -> int:
    """Return the greatest common divisor of all strengths, in GFLOP/s."""
    return gcd(*(gpu.gflops for gpu in data.gpus))


def memory_of(data: Data) -> tuple[dict[str, int], int]:
    """Memory by type and the floor, in units of the greatest common divisor of memories.

    A sum of memories is so many units: it reaches the floor where it reaches the next one.
    """
    mib = gcd(*(gpu.memory_mib for gpu in data.gpus))
    return {gpu.type: gpu.memory_mib // mib for gpu in data.gpus}, -(-data.minimum_memory_mib // mib)


def possible_groups(data: Data) -> list[int]:
    """Return the numbers of groups that devices, batch and total memory allow."""
    memory = sum(gpu.memory_mib * gpu.count for gpu in data.gpus)
    asked = range(1, data.devices + 1) if data.groups is None else [data.groups]
    return [
        d
        for d in asked
        if d <= data.devices and data.micro_batches_of(d) >= 1 and d * data.minimum_memory_mib <= memory
    ]


def built_at_once(data: Data, D: int) -> Fraction:
    """The least value of a plan, the strongest device always to the weakest group; else 0."""
    K = data.micro_batches_of(D)
    devices = [gpu for gpu in data.gpus for _ in range(gpu.count)]
    groups = [(0.0, j, 0, 0, 0) for j in range(D)]  # the weakest first; rounding only orders them
    for gpu in sorted(devices, key=lambda gpu: -gpu.gflops):
        _, j, size, strength, memory = groups[0]
        strength += gpu.gflops // unit(data)
        heapreplace(groups, (strength / (K + size), j, size + 1, strength, memory + gpu.memory_mib))
    if any(memory < data.minimum_memory_mib for *_, memory in groups):
        return Fraction(0)
    return min(Fraction(K * strength, K + size - 1) for _, _, size, strength, _ in groups)


def most_of_least(case: Case) -> Fraction:
    """No plan's least  sum g / (K + P - 1)  is more: D of them are in all the sum of g."""
    data, d = case.data, case.groups
    strength = sum(gpu.count * (gpu.gflops // unit(data)) for gpu in data.gpus)
    return Fraction(strength, data.devices + d * (data.micro_batches_of(d) - 1))


@lru_cache(maxsize=64)
def apart(case: Case) -> int:
    """The least whole factor at which values of the least group are a whole number apart.

    That is, those  sum g / (K + P - 1)  in units that are no more than the least group of
    any plan has, and no less than it has in a plan of the case, nor than the next value
    below. Without the sums of g it is q (q - 1), as values have denominators up to
    q = K + N - D.
    """
    data, groups = case.data, case.groups
    k, n = data.micro_batches_of(groups), data.devices
    q = k + n - groups
    if (sums := _sums(data)) is None:
        return max(1, q * (q - 1))
    most = most_of_least(case)
    least = case.least / k
    values = {Fraction(s, k + p - 1) for p in range(1, n - groups + 2) for s in sums[p]}
    below = max((v for v in values if v < least), default=Fraction(0))
    some = sorted(v for v in values if below <= v <= most)
    gaps = (after - before for before, after in pairwise(some))
    return max(1, ceil(1 / min(gaps, default=Fraction(1))))


def reachable(data: Data, groups: int, most: Fraction) -> Fraction:
    """The largest  D (sum g) K / (K + P - 1) <= `most`  that a group can have; else 0.

    A group has P <= N - D + 1 devices. The objective of every plan of D groups is such
    a value, so a bound may be lowered to the next one.
    """
    k, best = data.micro_batches_of(groups), Fraction(0)
    for p in range(1, data.devices - groups + 2):
        worth = Fraction(groups * k * unit(data), k + p - 1)
        strength = floor(most / worth)
        sums = _sums(data)
        if sums is not None:
            place = bisect_right(sums[p], strength)
            strength = sums[p][place - 1] if place else 0
        best = max(best, strength * worth)
    return best


@lru_cache(maxsize=16)
def _sums(data: Data) -> tuple[list[int], ...] | None:
    """Return by number of devices the sums of strengths, in units, that they can have."""
    by_size: list[set[int]] = [{0}]
    for gpu in data.gpus:
        strength = gpu.gflops // unit(data)
        grown: list[set[int]] = [set() for _ in range(len(by_size) + gpu.count)]
        for size, sums in enumerate(by_size):
            for n in range(gpu.count + 1):
                grown[size + n] |= {s + n * strength for s in sums}
        if sum(map(len, grown)) > MOST_SUMS:
            return None
        by_size = grown
    return tuple(sorted(sums) for sums in by_size)


def plan_of(groups: Iterable[Mapping[str, int]]) -> Grouping:
    """Return a plan of groups by counts of each type; equal groups become copies."""
    alike = Counter(tuple(sorted(group.items())) for group in groups)
    return Grouping(
        groups=tuple(
            Group(gpus={t: n for t, n in counts if n}, copies=copies) for counts, copies in alike.items()
        )
    )


def groups_of(plan: Grouping) -> list[dict[str, int]]:
    """Return the groups of a plan one by one, the largest first."""
    every = [group.gpus for group in plan.groups for _ in range(group.copies)]
    return sorted(every, key=lambda gpus: -sum(gpus.values()))
