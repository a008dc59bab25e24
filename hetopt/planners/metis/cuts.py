"""Layers to stages in their order: by capacity, or by trying all in effect."""

from bisect import bisect_right
from collections.abc import Callable, Sequence
from itertools import accumulate, pairwise

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.int64]

NEVER = 1 << 50  # us of a stage that does not fit


def proportional(
    load: Sequence[int], end: int, capacity: Sequence[float], most: Sequence[int]
) -> list[int] | None:
    """Cuts that give each stage layers in proportion to its capacity.

    `load` are the layers' times, `end` that of the head, which the last stage has;
    `most` the layers that a stage takes at the most.
    Where a stage cannot take its part, the others take it in proportion. None where
    the stages cannot take all layers, one each at least.
    """
    layers, stages = len(load), len(capacity)
    if layers < stages or sum(most) < layers or min(most) < 1:
        return None
    part = _parts(layers, capacity, most)
    before = list(accumulate(load, initial=0))
    # The layer at a border goes where the larger half of it lies.
    middles = [(a + z) / 2 for a, z in pairwise(before)]
    open_part, open_room = sum(part), sum(most)
    cuts = [0]
    for j in range(stages):
        first = cuts[-1]
        open_room -= most[j]
        wanted = (before[-1] - before[first] + end) * part[j] / open_part
        open_part = max(open_part - part[j], 1e-12)
        last = bisect_right(middles, before[first] + wanted)
        last = min(last, first + most[j], layers - (stages - j - 1))
        cuts.append(max(last, first + 1, layers - open_room))
    return cuts


def _parts(layers: int, capacity: Sequence[float], most: Sequence[int]) -> list[float]:
    """Capacities, where none has a larger part than its layers are of all."""
    whole = sum(capacity)
    part = [one / whole for one in capacity]
    if min(most) >= layers:
        return part
    held: set[int] = set()
    while True:
        over = [
            j
            for j, one in enumerate(part)
            if j not in held and one * layers > most[j] and len(held) < len(part) - 1
        ]
        if not over:
            return part
        held.update(over)
        for j in over:
            part[j] = most[j] / layers
        free = [j for j in range(len(part)) if j not in held]
        rest = 1 - sum(part[j] for j in held)
        if not free or rest <= 0:
            return part
        open_capacity = sum(capacity[j] for j in free)
        for j in free:
            part[j] = rest * capacity[j] / open_capacity


def best(
    stages: int,
    layers: int,
    n: int,
    tau: Callable[[int, int, int], int],
    check: Callable[[], None] = lambda: None,
) -> list[int] | None:
    """Cuts of the least sum of stage times and (n - 1) times the slowest.

    `tau(j, first, last)` is a stage's time, `NEVER` where it does not fit. None where
    no cuts fit. The limit on the slowest stage falls until nothing fits below it;
    `check()` is called each time, and may raise.
    """
    if layers < stages:
        return None
    times = np.full((stages, layers + 1, layers + 1), NEVER, np.int64)
    for j in range(stages):
        for first in range(j, layers - stages + j + 1):
            lasts = range(first + 1, layers - stages + j + 2)
            for last in lasts if j < stages - 1 else (layers,):
                times[j, first, last] = tau(j, first, last)
    found: tuple[int, list[int]] | None = None
    limit = NEVER - 1
    while (cuts := _cheapest(times, limit)) is not None:
        check()
        rows = [int(times[j, cuts[j], cuts[j + 1]]) for j in range(stages)]
        value = sum(rows) + (n - 1) * max(rows)
        if found is None or value < found[0]:
            found = value, cuts
        limit = max(rows) - 1
        if sum(rows) + (n - 1) * int(times.min()) >= found[0]:
            break  # lower limits only lengthen the sum
    return None if found is None else found[1]


def _cheapest(times: Array, limit: int) -> list[int] | None:
    """Cuts of the least sum where no stage takes longer than the limit."""
    stages, side, _ = times.shape
    allowed = np.where(times <= limit, times, NEVER)
    sums = np.full(side, NEVER, np.int64)
    sums[0] = 0
    steps = []
    for j in range(stages):
        reached = sums[:, None] + allowed[j]
        steps.append(reached.argmin(axis=0))
        sums = np.minimum(reached.min(axis=0), NEVER)
    if sums[-1] >= NEVER:
        return None
    cuts = [side - 1]
    for step in reversed(steps):
        cuts.append(int(step[cuts[-1]]))
    return cuts[::-1]
