"""AutoHet's mapping rule as a rule of grouping: of each type to every group alike.

AutoHet has no heuristic for its Eq. 3, which it hands to SCIP. Its Algorithm 1 takes
types by ascending compute, and gives one of the type to every group as long as there
is one for each. Here this makes the groups themselves; what is left of the types, the
strongest first, goes device by device to the group that is the weakest by then. Every
number of groups is tried, as in `strongest_first`.

Source: AutoHet, section III-B and Algorithm 1, line 10.
"""

from typing import Literal

from ..plans import Grouping
from ..problems.device_grouping import Data
from ..search.groupings import Counts, best_grouping
from .strongest_first import dealt

problem: Literal["device_grouping"] = "device_grouping"


def plan(data: Data, *, seed: int = 0, deadline: float | None = None) -> Grouping:
    """Return the best grouping by the rule; `NoPlan` where none fits.

    `seed` has no effect.
    """
    order = sorted(range(len(data.gpus)), key=lambda i: -data.gpus[i].gflops)

    def make(number: int) -> list[Counts]:
        alike = [gpu.count // number for gpu in data.gpus]
        return dealt(data, number, order, [[*alike] for _ in range(number)])

    return best_grouping(data, "autohet_groups", make, deadline)
