"""Grid: pipelines cut alike, on any GPUs, with uneven layers, of every shape.

What Megatron-LM can run at its best, where `megatron` is how it is used: layers shared
unequally among the stages, the groups of a stage on any nodes, nodes left idle, and the
settings that a plan may choose. Not a published system. The search is
`hetopt.search.grid`, where the exact method finds it, too.
"""

from typing import Literal

from ..bounds import impossible
from ..errors import NoPlan
from ..plans import TrainingPlan
from ..problems.training_plan import support
from ..schema import Instance
from ..search import grid

problem: Literal["training_plan"] = "training_plan"


def plan(
    data: Instance, *, seed: int = 0, deadline: float | None = None
) -> TrainingPlan:
    """Return the best grid found; `NoPlan` where none fits, or none was found in time.

    `deadline` is a `clock.monotonic()` instant; `seed` has no effect.
    """
    found = grid.search(data, deadline=deadline)
    if found.plan is not None:
        return found.plan
    proved = support.reason(data) or impossible.reason(data)
    late = "was found in time" if found.bound_us < float("inf") else "fits"
    raise NoPlan(proved or f"grid: no plan that cuts all pipelines alike {late}")
