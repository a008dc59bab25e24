"""Equal groups: as many devices in each, by rank or dealt in turns.

What data parallelism is on a mixed cluster without a planner: D groups of N / D
devices, for every D that divides N. By Megatron-LM's ranks a group is a run of devices
in the order of the data; dealt in turns, every D-th device. The better one is kept.

Source: Megatron-LM (Narayanan et al., SC 2021), the baseline of AutoHet's section V.
"""

from itertools import accumulate, pairwise
from typing import Literal

from ..plans import Grouping
from ..problems.device_grouping import Data
from ..search.groupings import Counts, best_grouping, numbers_of_groups, value

problem: Literal["device_grouping"] = "device_grouping"


def plan(data: Data, *, seed: int = 0, deadline: float | None = None) -> Grouping:
    """Return the best equal groups; `NoPlan` where none fit. `seed` has no effect."""
    devices = data.devices
    numbers = (
        number for number in numbers_of_groups(data, devices) if devices % number == 0
    )
    ends = [0, *accumulate(gpu.count for gpu in data.gpus)]

    def by_rank(number: int) -> list[Counts]:
        size = devices // number
        return [
            [
                max(0, min(end, (j + 1) * size) - max(first, j * size))
                for first, end in pairwise(ends)
            ]
            for j in range(number)
        ]

    def in_turns(number: int) -> list[Counts]:
        return [
            [
                (end - j + number - 1) // number - (first - j + number - 1) // number
                for first, end in pairwise(ends)
            ]
            for j in range(number)
        ]

    def make(number: int) -> list[Counts] | None:
        made = [by_rank(number), in_turns(number)]
        able = [(found, m) for m in made if (found := value(data, m)) is not None]
        return max(able, key=lambda pair: pair[0])[1] if able else None

    return best_grouping(data, "equal_groups", make, deadline, numbers)
