"""Strongest first: device by device to the group that is the weakest so far.

The rule of longest processing time, for machines that want equal loads: devices by
descending compute, each to the group whose effective compute is the least (of equal
ones the first). Groups that still lack memory for the model go before the others once
what is left would not do for them otherwise. Every number of groups is tried (of more
than 128 so many, evenly apart), and the best is kept.

Source: Graham, "Bounds on multiprocessing timing anomalies", 1969; its dual, covering,
is Deuermeyer, Friesen and Langston, 1982. A baseline: no paper on training has it.
"""

from heapq import heapify, heappop, heappush
from typing import Literal

from ..plans import Grouping
from ..problems.device_grouping import Data
from ..search.groupings import Counts, best_grouping, effective, memory_mib

problem: Literal["device_grouping"] = "device_grouping"


def plan(data: Data, *, seed: int = 0, deadline: float | None = None) -> Grouping:
    """Return the best grouping by the rule; `NoPlan` where none fits.

    `seed` has no effect.
    """
    order = sorted(range(len(data.gpus)), key=lambda i: -data.gpus[i].gflops)

    def make(number: int) -> list[Counts]:
        return dealt(data, number, order)

    return best_grouping(data, "strongest_first", make, deadline)


def dealt(
    data: Data, number: int, order: list[int], groups: list[Counts] | None = None
) -> list[Counts]:
    """Deal devices, types in this order, each to the group that is weakest.

    `groups` have some devices already; those are not dealt again.
    """
    groups = groups or [[0] * len(data.gpus) for _ in range(number)]
    k = data.micro_batches_of(number)
    left = [gpu.count for gpu in data.gpus]
    for group in groups:
        left = [a - b for a, b in zip(left, group, strict=True)]
    floor = data.minimum_memory_mib
    lack = [max(0, floor - memory_mib(data, group)) for group in groups]
    room = sum(n * gpu.memory_mib for n, gpu in zip(left, data.gpus, strict=True))
    short = sum(lack)
    heap = [(effective(data, group, k), i) for i, group in enumerate(groups)]
    heapify(heap)
    for t in order:
        gpu = data.gpus[t]
        for _ in range(left[t]):
            _, i = heappop(heap)
            aside = []
            # What is left must do for the groups that lack memory.
            while not lack[i] and heap and room - gpu.memory_mib < short:
                aside.append(i)
                _, i = heappop(heap)
            for other in aside:
                heappush(heap, (effective(data, groups[other], k), other))
            groups[i][t] += 1
            room -= gpu.memory_mib
            short -= min(lack[i], gpu.memory_mib)
            lack[i] = max(0, lack[i] - gpu.memory_mib)
            heappush(heap, (effective(data, groups[i], k), i))
    return groups
