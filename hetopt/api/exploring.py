"""All planners in turn, then the exact method; Ctrl-C keeps every plan made by then."""

from collections.abc import Callable, Iterable
from time import monotonic

from .. import portfolio
from ..errors import Unsupported
from ..modelling import Limits
from ..plans import TrainingPlan
from ..result import Method, Result, Status, Stop
from ..schema import Instance
from ..search.quick import fastest

Found = tuple[Result, list[TrainingPlan]]


def explore(
    data: Instance,
    limits: Limits,
    known: Iterable[TrainingPlan] = (),
    began: Callable[[], None] = lambda: None,
) -> Found:
    """Return the best result, and the plans of all planners and those `known`.

    The exact method goes on from the best of them. Where Ctrl-C ends the work, from the
    call of `began` on, the result says so (`Stop.INTERRUPTED`) and has what was made by
    then.
    """
    start, results, plans = monotonic(), list[Result](), [*known]
    try:
        began()
        for result in portfolio.in_turn(
            data, limits.part(portfolio.PORTFOLIO.explore_share)
        ):
            results.append(result)
            plans += _plans(result)
            if result.stop is Stop.INTERRUPTED:
                return _interrupted(data, results), plans
        left = limits.after(monotonic() - start)
        best = fastest(data, iter(plans))
        try:
            found = portfolio.exactly("training_plan", data, left, best)
        except Unsupported:
            found = portfolio.with_bound(portfolio.least(results))
    except KeyboardInterrupt:
        return _interrupted(data, results), plans
    return found, [*plans, *_plans(found)]


def _plans(result: Result) -> list[TrainingPlan]:
    return [result.plan] if isinstance(result.plan, TrainingPlan) else []


def _interrupted(data: Instance, results: list[Result]) -> Result:
    """Return the best result by then, as one that Ctrl-C ended."""
    nothing = Result(
        *("training_plan", data, Method("portfolio", "heuristic")),
        *(Status.UNDECIDED, Stop.INTERRUPTED),
    )
    found = portfolio.least(results) if results else nothing
    return portfolio.with_bound(portfolio.as_interrupted(found))
