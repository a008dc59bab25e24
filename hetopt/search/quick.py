"""A quick plan where a search has none to start from, and a local search from it."""

from collections.abc import Iterable, Iterator, Sequence
from functools import partial
from typing import TypeVar

from .. import entries
from ..clock import monotonic
from ..errors import InstanceError
from ..plans import TrainingPlan
from ..problems import training_plan
from ..schema import Instance
from .attempts import tried
from .improving import improve

#: Planners that find a plan of every shape, and soon.
PLANNERS = ("islands", "megatron")
_Item = TypeVar("_Item")


def replanned(
    instance: Instance,
    start: TrainingPlan | None,
    *,
    rounds: int,
    deadline: float | None = None,
    seed: int = 0,
) -> TrainingPlan | None:
    """Return a better plan than `start`, or than those of quick planners without one.

    None where these find no plan either. `rounds` bounds the candidates of the local
    search; without a deadline the same seed gives the same plan.
    """
    if start is None:
        if (quick := fastest(instance, _plans(instance, deadline, seed))) is None:
            return None
        start = quick[1]
    return improve(instance, start, deadline=deadline, rounds=rounds, seed=seed)


def _plans(
    instance: Instance, deadline: float | None, seed: int
) -> Iterator[TrainingPlan]:
    for number, name in enumerate(PLANNERS):
        until = _share_of(deadline, len(PLANNERS) - number + 1)
        plan = partial(entries.planner(name).plan, instance)
        made = tried(name, partial(plan, seed=seed, deadline=until)).made
        if isinstance(made, TrainingPlan):
            yield made


def fastest(
    instance: Instance, plans: Iterable[TrainingPlan]
) -> tuple[int, TrainingPlan] | None:
    """Return the first of the fastest plans with its time; None where none is valid."""
    timed = ((time_of(instance, plan), plan) for plan in plans)
    valid = ((us, plan) for us, plan in timed if us is not None)
    return min(valid, key=lambda row: row[0], default=None)


def time_of(instance: Instance, plan: TrainingPlan) -> int | None:
    """Return what an iteration of a plan takes, in us.

    None where the plan breaks a rule, or has a size or degree that the profile lacks.
    """
    try:
        judged = training_plan.evaluate(instance, plan)
    except InstanceError:
        return None
    found = judged.objective
    return found if judged.valid and isinstance(found, int) else None


def in_turn(
    items: Sequence[_Item], end: float | None, most: int = 1 << 30, *, stops: bool
) -> Iterator[tuple[_Item, float | None]]:
    """Yield every item with the end of its share of the time that is left.

    It is an equal share, or one of `most` where there are more items. Where it `stops`,
    no item but the first is yielded when the time is over.
    """
    for number, item in enumerate(items):
        if stops and number and end is not None and monotonic() >= end:
            return
        yield item, _share_of(end, min(len(items) - number, most))


def _share_of(deadline: float | None, parts: int) -> float | None:
    """Return the end of the first of so many equal parts of the time that is left."""
    if deadline is None:
        return None
    now = monotonic()
    return now + max(0.0, deadline - now) / parts
