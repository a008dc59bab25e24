"""`hetopt explain`: where a plan's time and memory go, and what would help most."""

from collections.abc import Callable
from pathlib import Path

from ..errors import Unsupported
from ..explaining import Explanation, explained
from ..plans import TrainingPlan
from ..schema import Instance, Record
from . import posed_plan

Place = str | Path


def explain(
    plan: Place | TrainingPlan,
    instance: Place | Record | None = None,
    *,
    time_limit: float | None = None,
    seed: int = 0,
    started: Callable[[str], None] | None = None,
) -> Explanation:
    """Take a training plan apart: its iteration, its memory, its bottlenecks.

    Changes of hardware, settings and plan are judged and planned again, for at most
    `time_limit` wall seconds, None for no limit, 0 to leave them out; without one the
    same seed gives the same answer. `plan` is a plan file or a result document, or a
    plan with its instance. Raises `InstanceError` for a plan that cannot be timed and
    `Unsupported` for a plan of another problem.
    """
    name, data, made = posed_plan(plan, instance)
    if not isinstance(made, TrainingPlan) or not isinstance(data, Instance):
        raise Unsupported(f"found a plan of {name}, expected a training plan")
    return explained(data, made, time_limit=time_limit, seed=seed, started=started)
