"""Three to one: the first quarter of the GPUs trains, three quarters generate.

A rule of thumb where answers are long (AReaL, arXiv 2505.24298, runs most of its
experiments so). For the rest it is `one_to_one`.
"""

from typing import Literal

from ..plans import PostTraining
from ..problems.post_training import Data
from ..search.halves import Halves

problem: Literal["post_training"] = "post_training"


def plan(data: Data, *, seed: int = 0, deadline: float | None = None) -> PostTraining:
    """Return the plan by the rule; `NoPlan` where one side has no room."""
    halves = Halves(data)
    division = halves.dealt(data.instance.planned_cluster.gpu_count // 4)
    return halves.quick("three_to_one", division, deadline, seed)
