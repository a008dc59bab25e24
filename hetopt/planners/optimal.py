"""Optimal: what the paper searches exhaustively, found by the exact method.

The plan of `hetopt.exact.provisioning`, which also proves it; as a planner it comes
without the proof, so that it can be set beside the heuristics.

Source: Espresso, section V-A.
"""

from time import monotonic
from typing import Literal

from ..errors import NoPlan, keeping
from ..exact import provisioning
from ..modelling import Limits
from ..plans import Provisioning
from ..problems.provisioning import Data
from ..result import uninterrupted

problem: Literal["provisioning"] = "provisioning"


def plan(data: Data, *, seed: int = 0, deadline: float | None = None) -> Provisioning:
    """The best plan found by `deadline`; `NoPlan` with the exact method's reasons."""
    time_s = None if deadline is None else max(0.0, deadline - monotonic())
    limits = Limits(time_s=time_s, seed=seed)
    result = provisioning.solve(data, limits=limits)
    with keeping(lambda: result.plan):
        uninterrupted(result)
    if result.plan is None:
        why = "; ".join(result.reasons) or "no plan was found in time"
        raise NoPlan(f"optimal: {why}")
    found: Provisioning = result.plan
    return found
