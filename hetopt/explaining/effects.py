"""Effects of changes are found by judging plans again and by planning again."""

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from time import monotonic

from .. import portfolio
from ..modelling import Limits
from ..plans import TrainingPlan
from ..schema import Instance
from ..search.quick import fastest, replanned, time_of
from .changes import Change

_ROUNDS = 3_000  # candidates of a local search


@dataclass(frozen=True)
class Effect:
    """Iteration times under a change, in us; None where no plan fits or was found.

    `judged_us` is that of the plan as it is, `planned_us` that of the
    best plan found; `gain` is the part of the iteration that it saves.
    """

    kind: str
    words: str
    judged_us: int | None
    planned_us: int | None
    gain: float | None
    plan: TrainingPlan | None


def effects(
    instance: Instance,
    every: Iterable[Change],
    iteration_us: int,
    limits: Limits,
    started: Callable[[str], None],
    starts: Iterable[TrainingPlan],
) -> Iterator[Effect]:
    """Yield the effects of changes, one by one, until the time is over.

    They are set beside the `iteration_us` of the plan, and planned from `starts`, from
    plans of the quick planners, and from what longer search finds: none is said to save
    less than one of these plans does under it.
    """
    if limits.time_s == 0:
        return
    deadline = None if limits.time_s is None else monotonic() + limits.time_s
    known = [*starts, *portfolio.soon(instance, limits)]
    for change in every:
        if deadline is not None and monotonic() >= deadline:
            return
        started(change.words)
        found = effect(
            change,
            iteration_us,
            known=tuple(known),
            deadline=deadline,
            seed=limits.seed,
        )
        if change.instance is instance and found.plan is not None:
            known.append(found.plan)
        yield found


def effect(
    change: Change,
    iteration_us: int,
    *,
    known: tuple[TrainingPlan, ...] = (),
    deadline: float | None = None,
    seed: int = 0,
) -> Effect:
    """Return the effect of a change on a plan that takes `iteration_us`.

    Planning again starts from that plan or from one of the `known`, whichever is
    faster under the change.

    Every change gets as many candidates of local search as any other, so that without
    a deadline (a `time.monotonic()` instant) the same seed gives the same effect, and
    gains can be compared.
    """
    judged_us, _ = _best(change.instance, (change.plan,))
    _, start = _best(change.instance, (change.plan, *known))
    plan = replanned(
        change.instance, start, rounds=_ROUNDS, deadline=deadline, seed=seed
    )
    planned_us, plan = _best(change.instance, () if plan is None else (plan,))
    gain = None if planned_us is None else 1 - planned_us / iteration_us
    return Effect(change.kind, change.words, judged_us, planned_us, gain, plan)


def _best(
    instance: Instance, plans: tuple[TrainingPlan, ...]
) -> tuple[int | None, TrainingPlan | None]:
    """Return the quickest of the plans that break no rule, and its time."""
    plan = fastest(instance, iter(plans))
    return (None, None) if plan is None else (time_of(instance, plan), plan)
