"""Statements of device grouping share this: units, reachable values, plans."""

from bisect import bisect_right
from collections import Counter
from collections.abc import Iterable, Mapping
from fractions import Fraction
from functools import lru_cache
from math import floor, gcd

from hetopt.plans import Group, Grouping
from hetopt.problems.device_grouping import Data

MOST_SUMS = 200_000  # beyond, every integer counts as a reachable sum


def unit(data: Data) -> int:
    """Return the greatest common divisor of all strengths, in GFLOP/s."""
    return gcd(*(gpu.gflops for gpu in data.gpus))


def possible_groups(data: Data) -> list[int]:
    """Return the numbers of groups that devices, batch and total memory allow."""
    memory = sum(gpu.memory_mib * gpu.count for gpu in data.gpus)
    asked = range(1, data.devices + 1) if data.groups is None else [data.groups]
    return [
        d
        for d in asked
        if d <= data.devices and data.micro_batches_of(d) >= 1 and d * data.minimum_memory_mib <= memory
    ]


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
