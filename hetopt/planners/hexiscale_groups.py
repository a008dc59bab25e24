"""HexiScale's phase 1 as a rule of grouping: a balanced partition of the graph.

Devices are vertices as heavy as their compute; the problem knows no links, so that all
edges weigh alike, and the partition balances compute alone (heavy edge matching,
recursive bisection, refinement under the balance factor: `hexiscale.graph`). The
paper's phase 1 looks at no memory: groups that lack some are passed over. Numbers of
groups are tried from many to few, of more than 24 so many, evenly apart.

Source: HexiScale, section 4.2.
"""

from functools import partial
from random import Random
from typing import Literal

import numpy as np

from ..clock import monotonic
from ..errors import NoPlan, OutOfTime
from ..plans import Grouping
from ..problems.device_grouping import Data
from ..search.groupings import Counts, best_grouping, numbers_of_groups
from .hexiscale.graph import Graph, whole

problem: Literal["device_grouping"] = "device_grouping"

MOST_DEVICES = 1024  # the graph is complete: its edges are the square
_NUMBERS = 24


def plan(data: Data, *, seed: int = 0, deadline: float | None = None) -> Grouping:
    """Return the best grouping by the rule; `NoPlan` where none fits."""
    if data.devices > MOST_DEVICES:
        raise NoPlan(
            f"hexiscale_groups: {data.devices} devices make a graph of their square, "
            f"at most {MOST_DEVICES} are taken"
        )
    kinds = len(data.gpus)
    power = np.array([gpu.gflops for gpu in data.gpus], dtype=float)
    graph = Graph(
        np.ones((kinds, kinds)), whole(power, data.devices), partial(_check, deadline)
    )
    counts = [gpu.count for gpu in data.gpus]

    def make(number: int) -> list[Counts] | None:
        try:
            return graph.partition(counts, number, Random(seed))
        except OutOfTime:
            return None

    numbers = numbers_of_groups(data, _NUMBERS)
    within = (number for number in numbers if number <= data.devices)
    return best_grouping(data, "hexiscale_groups", make, deadline, within)


def _check(deadline: float | None) -> None:
    if deadline is not None and monotonic() > deadline:
        raise OutOfTime
