"""First come, first served: job by job, the fastest configuration that there is.

Frenzy's baseline of opportunistic scheduling, in one round and without its trial and
error: jobs in the order of their classes, each on the idle GPUs that cost it least.

Source: Frenzy, section V-A (Lyra).
"""

from typing import Literal

from ..plans import Round
from ..problems.job_round import Data
from . import has

problem: Literal["job_round"] = "job_round"


def plan(data: Data, *, seed: int = 0, deadline: float | None = None) -> Round:
    """Return the assignment in order. Neither seed nor deadline has an effect."""
    return has.plan(data, efficiency="throughput")
