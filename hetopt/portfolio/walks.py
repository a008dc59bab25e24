"""Local search from planners' plans, as results: from one of them, from several.

The search (`hetopt.search.improving`) starts from a plan and may run until the limits
end it: what it has by then is never worse.
"""

from collections.abc import Callable
from dataclasses import replace
from fractions import Fraction

from ..bounds.training_plan import training_plan_bound
from ..clock import monotonic, wall
from ..modelling import Limits
from ..plans import TrainingPlan
from ..result import Bound, Result, Status, Stop, TracePoint
from ..schema import Instance
from ..search.improving import Search
from ..solving.run import Report
from .asking import as_interrupted
from .shares import PORTFOLIO


def unheard(incumbent: object, bound: object) -> None:
    """Progress that nobody hears."""


def improve_result(
    result: Result,
    limits: Limits,
    report: Report,
    rounds: int | None = None,
    bound: Bound | None = None,
    *,
    visits_islands: bool = True,
) -> Result:
    """Return the result with the best plan that local search finds within `limits`.

    `rounds` bounds the candidates as well. A search that gives up was ended by the
    time. Without a plan there is nothing to improve, and the result is returned. The
    search ends
    early where the cheap bound proves the plan optimal or within `limits.gap`; it is
    derived where `bound` does not give it.
    `visits_islands` as in `Search`. The trace goes on where the result's ends.
    """
    plan = result.plan
    if not isinstance(plan, TrainingPlan) or result.stop is Stop.INTERRUPTED:
        return result
    bound = bound or training_plan_bound(result.data)
    value = bound.value
    # No plan is a million bounds away: an infinite gap is met at once, as it should be.
    share = Fraction(min(limits.gap or 0.0, 1e6))
    target = int(value * (1 + share))
    before, start = sum(result.seconds.values()), wall()
    trace = [*result.trace, TracePoint(before, result.objective, value)]

    def told(objective: int) -> None:
        seconds = before + wall() - start
        trace.append(TracePoint(seconds, objective, value))
        report(objective, value)

    report(result.objective, value)
    search = Search(
        *(result.data, plan),
        seed=limits.seed,
        target=target,
        report=told,
        visits_islands=visits_islands,
    )
    stop = Stop.FINISHED
    try:
        deadline = None if limits.time_s is None else monotonic() + limits.time_s
        search.run(deadline=deadline, rounds=rounds)
        if search.gave_up or (deadline is not None and monotonic() >= deadline):
            stop = Stop.TIME
    except KeyboardInterrupt:
        stop = Stop.INTERRUPTED
    spent = result.seconds.get("improve", 0.0) + wall() - start
    found = replace(
        result,
        method=replace(result.method, name=f"{result.method.name}+improve"),
        plan=search.found,
        evaluation=None,
        stop=stop,
        seconds={**result.seconds, "improve": spent},
        trace=tuple(trace),
    ).with_bound(bound)
    return replace(found, stop=_why(found, target))


def _why(found: Result, target: int) -> Stop:
    """Return why the search ended: a proof and a gap say more than the clock."""
    if found.status is Status.OPTIMAL:
        return Stop.PROVED
    reached = isinstance(found.objective, int) and found.objective <= target
    if reached and found.stop is not Stop.INTERRUPTED:
        return Stop.GAP
    return found.stop


def improved_from_several(
    best: Result,
    results: list[Result],
    limits: Limits,
    part: float = 1.0,
    report: Report = unheard,
    *,
    began: Callable[[], None] = lambda: None,
    proof_follows: bool = True,
) -> Result:
    """The best result after walks from the best planners' plans, one after another.

    A long walk leaves its valley, several short ones do not: the first has all the time
    that it wants, and others start where it leaves some; where it gives up
    (`Search.run`), the time is for a proof. `limits` are what is left, a `part` of
    which the walks may have; without a time limit there are none. The method stays that
    of `best`.
    """
    starts = _starts(best, results, proof_follows=proof_follows)
    if limits.time_s is None or not starts:
        return best
    # Islands are a planner's, too: what it was cut short of is worth another look.
    visits = any(r.method.name == "islands" and r.stop is Stop.TIME for r in results)
    end = monotonic() + part * min(
        PORTFOLIO.walks_share * limits.time_s, PORTFOLIO.walks_s
    )
    try:
        began()
        bound = training_plan_bound(best.data)
        for number, start in enumerate(starts):
            seconds = end - monotonic()
            if number and seconds <= 0:
                break
            # Another seed, or walks into one valley would be the same from there.
            walk = replace(limits, time_s=max(0.0, seconds), seed=limits.seed + number)
            found = improve_result(
                start, walk, report, PORTFOLIO.rounds, bound, visits_islands=visits
            )
            if found.objective is not None and found.objective < (best.objective or 0):
                best = replace(found, method=best.method, failed=best.failed)
            if found.stop is Stop.INTERRUPTED:
                return as_interrupted(best)
            if found.stop in (Stop.PROVED, Stop.GAP, Stop.TIME):
                break
    except KeyboardInterrupt:  # before a walk, which keeps what it has
        return as_interrupted(best)
    return best


def _starts(
    best: Result, results: list[Result], *, proof_follows: bool
) -> list[Result]:
    """Planners' results that are worth a walk, the best first, none twice.

    None where the target runs grids alone, which one of the planners searched, and on
    small clusters where a proof follows: the exact method looks at every plan.
    """
    if best.objective is None or (proof_follows and is_small(best.data)):
        return []
    if not best.data.workload.target.free:
        return []
    by_time: dict[float, Result] = {}
    for result in results:
        if result.objective is not None:
            by_time.setdefault(float(result.objective), result)
    worth = PORTFOLIO.near * float(best.objective)
    ranked = sorted(objective for objective in by_time if objective <= worth)
    return [by_time[objective] for objective in ranked[: PORTFOLIO.starts]]


def is_small(instance: Instance) -> bool:
    """Return whether the exact method looks at every plan, given the time."""
    from ..exact import enumeration  # as long to load as all that is above

    return instance.workload.target.free and enumeration.is_small(instance)


def and_improved(found: Result, limits: Limits, report: Report) -> Result:
    """An exact method's result that time ended, with what a walk finds from there."""
    if found.stop is not Stop.TIME:
        return found
    walked = improve_result(found, limits, report, bound=found.bound)
    return replace(walked, method=found.method)


def lines_up(instance: Instance) -> bool:
    """Tell whether the exact method seeks single pipelines of layers that differ."""
    from ..exact import training_plan

    return instance.workload.target.free and training_plan.lines_up(instance)
