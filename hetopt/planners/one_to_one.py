"""One to one: the first half of the GPUs trains, the other half generates.

The usual first guess of who runs RL apart (verl's asynchronous recipes begin with it).
GPUs come in the order of the instance. The training plan on a half is a quick one;
engines have the degrees that do the most answers.
"""

from typing import Literal

from ..plans import PostTraining
from ..problems.post_training import Data
from ..search.halves import Halves

problem: Literal["post_training"] = "post_training"


def plan(data: Data, *, seed: int = 0, deadline: float | None = None) -> PostTraining:
    """Return the plan by the rule; `NoPlan` where a half has no room."""
    halves = Halves(data)
    division = halves.dealt(data.instance.planned_cluster.gpu_count // 2)
    return halves.quick("one_to_one", division, deadline, seed)
