"""Homogeneous best: the best plan on one type of GPU, of every degree and length.

What mixing types is to be compared with. Every offer, degree and number of stages
within the quota; placed by Espresso's and by Whale+'s rule, whichever is the shorter.
The cheapest that keeps the deadline is taken, or the fastest that keeps the budget.

Source: Espresso, section II, which compares with each type alone.
"""

from typing import Literal

from ..errors import NoPlan
from ..plans import Provisioning
from ..problems.provisioning import Data
from .espresso import placer
from .sia_plus import one_type

problem: Literal["provisioning"] = "provisioning"


def plan(data: Data, *, seed: int = 0, deadline: float | None = None) -> Provisioning:
    """Return the best plan of one type; `NoPlan` if there is none.

    `seed` has no effect.
    """
    pipelines = one_type(data, powers_of_two=False)
    if (plan := placer.best_granted(data, pipelines, deadline)) is None:
        raise NoPlan(
            "homogeneous_best: no GPUs of one type within the quotas keep the deadline "
            "or the budget and hold the model"
        )
    return plan
