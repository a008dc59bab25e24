"""Sia: the round's integer program, job by job, on CBC, as far as its time goes.

Sia's own scheduler is an integer program with a binary for each job and configuration
(`formulations/sia_round.py`), which its implementation gives to CBC. As a planner it
returns CBC's plan without a proof: at a deadline the best until then.

Source: Sia (Jayaram Subramanya et al., SOSP 2023), section 3.4.
"""

from typing import Literal

from ..clock import monotonic
from ..errors import NoPlan
from ..modelling import Limits
from ..plans import Round
from ..problems.job_round import Data
from ..result import uninterrupted
from ..solving import statements

problem: Literal["job_round"] = "job_round"


def plan(data: Data, *, seed: int = 0, deadline: float | None = None) -> Round:
    """Return CBC's assignment; `NoPlan` where it has none in time."""
    seconds = None if deadline is None else max(0.0, deadline - monotonic())
    limits = Limits(time_s=seconds, seed=seed)
    found = uninterrupted(
        statements.solve(problem, data, "sia_round", "pulp", limits=limits)
    )
    if not isinstance(found.plan, Round):
        why = "; ".join(found.reasons) or "in time"
        raise NoPlan(f"sia: CBC found no assignment ({why})")
    return found.plan
