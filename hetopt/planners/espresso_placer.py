"""Espresso's stage placer: order and layers of an allocation by compute-memory ratio.

As a planner it places the model on all GPUs that are offered: the quotas are the
allocation. Of the degrees that divide every quota the best one is kept. The placer is
`espresso.placer`.

Source: Espresso, section III-C, Algorithm 2.
"""

from typing import Literal

from ..plans import Provisioning
from ..problems.provisioning import Data
from .espresso.placer import place, plan_of_all

problem: Literal["provisioning"] = "provisioning"


def plan(data: Data, *, seed: int = 0, deadline: float | None = None) -> Provisioning:
    """All offered GPUs in a pipeline; `NoPlan` says why not. `seed` has no effect."""
    return plan_of_all(data, place, "espresso_placer", deadline)
