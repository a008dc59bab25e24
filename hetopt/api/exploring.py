"""The best plan of an instance, with all that planners made on the way."""

from collections.abc import Iterable
from dataclasses import replace
from time import monotonic

from ..errors import Unsupported
from ..modelling import Limits
from ..plans import TrainingPlan
from ..problems import training_plan
from ..result import Result, Stop
from ..schema import Instance
from . import planning
from .calling import less
from .solving import bounded, exact_result

#: Of the time, what planners have before the exact method.
_PLANNERS = 0.5


def explored(
    data: Instance, limits: Limits, known: Iterable[TrainingPlan] = ()
) -> tuple[Result, list[TrainingPlan]]:
    """Return the best result, and the plans of all planners and those `known`.

    The exact method goes on from the best of them. `KeyboardInterrupt` where it is
    ended.
    """
    began = monotonic()
    plans, results = [*known], list[Result]()
    for result in planning.in_turn(data, part(limits, _PLANNERS)):
        results.append(result)
        if result.stop is Stop.INTERRUPTED:
            raise KeyboardInterrupt
        if result.plan is not None:
            plans.append(result.plan)
    timed = [(us, plan) for plan in plans if (us := time_of(data, plan)) is not None]
    best = min(timed, key=lambda one: one[0], default=None)
    left = less(limits, monotonic() - began)
    try:
        start = None if best is None else best[1]
        found = exact_result("training_plan", data, left, start, _unheard)
    except Unsupported:
        found = bounded(min(results, key=lambda one: one.objective or 1 << 62))
    if found.stop is Stop.INTERRUPTED:
        raise KeyboardInterrupt
    if found.plan is not None:
        plans.append(found.plan)
    return found, plans


def time_of(data: Instance, plan: TrainingPlan) -> int | None:
    """Return what an iteration of a plan takes, in us; None where it breaks a rule."""
    judged = training_plan.evaluate(data, plan)
    if not judged.valid or not isinstance(judged.objective, int):
        return None
    return judged.objective or None


def part(limits: Limits, share: float) -> Limits:
    """Return limits of a share of the time."""
    seconds = None if limits.time_s is None else limits.time_s * share
    return replace(limits, time_s=seconds)


def _unheard(plan: object, bound: object) -> None:
    """Progress that nobody hears."""
