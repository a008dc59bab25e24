"""Local search from a plan, as a result.

The search (`hetopt.search.improving`) starts from a plan and may run until the limits
end it: what it has by then is never worse.
"""

from dataclasses import replace
from fractions import Fraction

from ..bounds.training_plan import training_plan_bound
from ..clock import monotonic, wall
from ..modelling import Limits
from ..plans import TrainingPlan
from ..result import Result, Status, Stop, TracePoint
from ..schema import Instance
from ..search.improving import Search
from ..solving.run import Report


def silence(incumbent: object, bound: object) -> None:
    """Tell nobody what is known."""


def improve_result(
    result: Result,
    limits: Limits,
    report: Report = silence,
) -> Result:
    """Return the result with the best plan that local search finds within `limits`.

    Without a plan there is nothing to improve, and the result is returned. The search
    ends early where the cheap bound proves the plan optimal or within `limits.gap`. The
    trace goes on where the result's ends.
    """
    plan = result.plan
    if not isinstance(plan, TrainingPlan) or result.stop is Stop.INTERRUPTED:
        return result
    bound = training_plan_bound(result.data)
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
    search = Search(result.data, plan, seed=limits.seed, target=target, report=told)
    stop = Stop.FINISHED
    try:
        deadline = None if limits.time_s is None else monotonic() + limits.time_s
        search.run(deadline=deadline)
        if deadline is not None and monotonic() >= deadline:
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


def is_small(instance: Instance) -> bool:
    """Return whether the exact method looks at every plan, given the time."""
    from ..exact import enumeration  # as long to load as all that is above

    return instance.workload.target.free and enumeration.is_small(instance)


def lines_up(instance: Instance) -> bool:
    """Tell whether the exact method seeks single pipelines of layers that differ."""
    from ..exact import training_plan

    return instance.workload.target.free and training_plan.lines_up(instance)
