"""`hetopt plan --improve`: local search on a planner's plan, as a result with a bound.

The search is `hetopt.search.improving`; it may run until the limits end it, and what
it has found by then is never worse than the plan that it started from.
"""

from dataclasses import replace
from fractions import Fraction
from time import monotonic

from ..bounds.training_plan import training_plan_bound
from ..modelling import Limits
from ..plans import TrainingPlan
from ..result import Result, Status, Stop, TracePoint
from ..search.improving import Search
from .calling import Report


def improved(result: Result, limits: Limits, report: Report) -> Result:
    """The result with the best plan that local search finds within `limits`.

    Without a plan there is nothing to improve, and the result is returned. The search
    ends early where the cheap bound proves the plan optimal or within `limits.gap`.
    The trace's seconds start with the search.
    """
    plan = result.plan
    if not isinstance(plan, TrainingPlan) or result.stop is Stop.INTERRUPTED:
        return result
    bound = training_plan_bound(result.data)
    # No plan is a million bounds away: an infinite gap is met at once, as it should be.
    share = Fraction(min(limits.gap or 0.0, 1e6))
    target = int(bound.value * (1 + share))
    trace = [TracePoint(0.0, result.objective, bound.value)]
    start = monotonic()

    def told(objective: int) -> None:
        trace.append(TracePoint(monotonic() - start, objective, bound.value))
        report(objective, bound.value)

    report(result.objective, bound.value)
    search = Search(result.data, plan, seed=limits.seed, target=target, report=told)
    stop = Stop.FINISHED
    try:
        deadline = None if limits.time_s is None else start + limits.time_s
        search.run(deadline=deadline)
        if deadline is not None and monotonic() >= deadline:
            stop = Stop.TIME
    except KeyboardInterrupt:
        stop = Stop.INTERRUPTED
    found = replace(
        result,
        method=replace(result.method, name=f"{result.method.name}+improve"),
        plan=search.found,
        evaluation=None,
        stop=stop,
        seconds={**result.seconds, "improve": monotonic() - start},
        trace=tuple(trace),
    ).with_bound(bound)
    return replace(found, stop=_stop(found, target))


def _stop(found: Result, target: int) -> Stop:
    """Why the search ended: a proof and a gap say more than the clock."""
    if found.status is Status.OPTIMAL:
        return Stop.PROVED
    reached = isinstance(found.objective, int) and found.objective <= target
    if reached and found.stop is not Stop.INTERRUPTED:
        return Stop.GAP
    return found.stop
