"""Samples of a micro-batch to the replicas of one stage, balanced exactly.

Replicas of a class of nodes may take the numbers of samples that fit, each at its
time; measured times may fall as samples grow, and some may be missing.
"""

from bisect import bisect_left
from collections.abc import Sequence
from functools import partial

from .cluster_tables import BIG

Times = Sequence[Sequence[int]]  # by class: us of 1, 2, ... samples; BIG where none


def least_us(times: Times, replicas: Sequence[int], b: int, most: int) -> int:
    """Least time of the slowest replica, none of which takes more than `most`.

    `replicas` by class take `b` samples together, each at least one. BIG where they
    cannot.
    """
    used = [row[:most] for row, m in zip(times, replicas, strict=True) if m]
    counts = [m for m in replicas if m]
    events = sorted({us for row in used for us in row if us < BIG})
    enough = partial(_enough, used, counts, b)
    return [*events, BIG][bisect_left(events, True, key=enough)]


def _enough(times: Times, counts: Sequence[int], b: int, limit: int) -> bool:
    """Tell whether `b` samples can be shared so that no replica exceeds the limit."""
    allowed = [[s + 1 for s, us in enumerate(row) if us <= limit] for row in times]
    if not all(allowed):
        return False
    if all(row[-1] == len(row) for row in allowed):  # 1, 2, ... without a gap
        most = sum(m * row[-1] for m, row in zip(counts, allowed, strict=True))
        return sum(counts) <= b <= most
    reached = sums(allowed, counts, b)
    return bool(reached[-1] >> b & 1)


def sums(allowed: Sequence[Sequence[int]], counts: Sequence[int], b: int) -> list[int]:
    """Sums of the first 0, 1, 2, ... of those that take an allowed number each.

    Of each row so many do. Bit s is set where s, up to `b`, is such a sum.
    """
    found, within = [1], (1 << b + 1) - 1
    for row, m in zip(allowed, counts, strict=True):
        for _ in range(m):
            grown = 0
            for s in row:
                grown |= found[-1] << s
            found.append(grown & within)
    return found


def shared(
    times: Times, replicas: Sequence[int], b: int, most: int, limit: int
) -> list[list[int]]:
    """Samples of each replica, by class, within a limit that `least_us` found."""
    allowed = [
        [s + 1 for s, us in enumerate(row[:most]) if us <= limit] for row in times
    ]
    reached = sums(allowed, replicas, b)
    found: list[list[int]] = [[] for _ in replicas]
    left, place = b, len(reached) - 1
    for c in reversed(range(len(replicas))):
        for _ in range(replicas[c]):
            place -= 1
            # The nearest to an equal share that leaves a sum of the others.
            fair = left / (place + 1)
            ways = [
                s for s in allowed[c] if s <= left and reached[place] >> left - s & 1
            ]
            chosen = min(ways, key=lambda s: (abs(s - fair), s))
            found[c].append(chosen)
            left -= chosen
    return found
