"""What each change is worth, by judging plans again and by planning again."""

from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial

from .. import registry
from ..errors import InstanceError
from ..plans import TrainingPlan
from ..problems import training_plan
from ..schema import Instance
from ..search.attempts import tried
from ..search.improving import improve
from .changes import Change

_ROUNDS = 3_000  # candidates of a local search
_PLANNERS = ("islands", "megatron")  # quick ones, where the plan does not fit


@dataclass(frozen=True)
class Effect:
    """Iteration times under a change, in us; None where no plan fits or was found.

    `judged_us` is that of the plan as it is (or with the change in it), `planned_us`
    that of the best plan found; `gain` is the part of the iteration that it saves.
    """

    kind: str
    words: str
    judged_us: int | None
    planned_us: int | None
    gain: float | None
    plan: TrainingPlan | None


def effect(
    change: Change,
    iteration_us: int,
    *,
    known: tuple[TrainingPlan, ...] = (),
    deadline: float | None = None,
    seed: int = 0,
) -> Effect:
    """What a change makes of a plan that takes `iteration_us`.

    Planning again starts from that plan or from one of the `known`, whichever is
    faster under the change.

    Every change gets as many candidates of local search as any other, so that without
    a deadline (a `time.monotonic()` instant) the same seed gives the same effect, and
    gains can be compared.
    """
    judged_us, plan = _best(change.instance, change.plans)
    planned_us = judged_us
    if change.replan:
        _, start = _best(change.instance, (*change.plans, *known))
        plan = _replanned(change.instance, start, deadline, seed)
        planned_us, plan = _best(change.instance, () if plan is None else (plan,))
    gain = None if planned_us is None else 1 - planned_us / iteration_us
    return Effect(change.kind, change.words, judged_us, planned_us, gain, plan)


def _best(
    instance: Instance, plans: tuple[TrainingPlan, ...]
) -> tuple[int | None, TrainingPlan | None]:
    """The quickest of the plans that break no rule and whose times were measured."""
    best: tuple[int | None, TrainingPlan | None] = None, None
    for plan in plans:
        try:
            found = training_plan.evaluate(instance, plan)
        except InstanceError:  # a size or degree that the profile lacks
            continue
        us = found.objective
        if not found.valid or not isinstance(us, int):
            continue
        if best[0] is None or us < best[0]:
            best = us, plan
    return best


def _replanned(
    instance: Instance, start: TrainingPlan | None, deadline: float | None, seed: int
) -> TrainingPlan | None:
    """Local search from the plan, or from quick planners' where it does not fit."""
    if start is None:
        _, start = _best(instance, tuple(_quick(instance, deadline, seed)))
    if start is None:
        return None
    return improve(instance, start, deadline=deadline, rounds=_ROUNDS, seed=seed)


def _quick(
    instance: Instance, deadline: float | None, seed: int
) -> Iterator[TrainingPlan]:
    for name in _PLANNERS:
        plan = partial(registry.entry("planners", name).plan, instance)
        made = tried(name, partial(plan, seed=seed, deadline=deadline)).made
        if made is not None:
            yield made
