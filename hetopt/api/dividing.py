"""Methods on instances that offer several ways to divide sequences and experts.

Context parallelism and expert parallelism are of the whole plan, and a method sees one
way at a time: it has an equal share of the time for each. The best plan wins; what no
way beats is a bound.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from time import monotonic

from ..bounds.training_plan import training_plan_bound
from ..errors import NoPlan
from ..modelling import Limits
from ..plans import TrainingPlan
from ..problems import training_plan
from ..result import Bound, Result, Status, Stop
from ..schema import Instance
from ..search import choices

#: Planners whose pipelines are alike, as GPUs that divide experts must be.
_ALIKE = ("megatron", "grid")

_Make = Callable[[Instance, float | None], TrainingPlan | None]


def ways_of(planner: str, data: Instance) -> list[Instance]:
    """The instance once for each way that a planner knows; `NoPlan` without one."""
    ways = choices.divided(data)
    known = [way for way in ways if way.workload.costs.expert_parallel == 1]
    if planner in _ALIKE:
        known = ways
    if not known:
        raise NoPlan(f"{planner} knows no experts that are divided among GPUs")
    return known


def best_of(
    ways: Sequence[Instance], make: _Make, deadline: float | None
) -> tuple[Instance, TrainingPlan | None]:
    """The best plan that `make` finds, with its way; raises what the last one does."""
    found: tuple[int, Instance, TrainingPlan] | None = None
    failed: NoPlan | None = None
    for way, until in _in_turn(ways, deadline):
        try:
            plan = make(way, until)
        except NoPlan as error:
            failed = error
            continue
        if plan is None or len(ways) == 1:
            if len(ways) == 1:
                return way, plan
            continue
        judged = training_plan.evaluate(way, plan)
        value = judged.objective
        if not (judged.valid and isinstance(value, int)):
            continue
        if found is None or value < found[0]:
            found = value, way, plan
    if found is None:
        if failed is not None:
            raise failed
        return ways[0], None
    return found[1], found[2]


def _in_turn(
    ways: Sequence[Instance], deadline: float | None
) -> Iterator[tuple[Instance, float | None]]:
    """Every way with the end of its share of the time."""
    for number, way in enumerate(ways):
        if deadline is None:
            yield way, None
            continue
        now = monotonic()
        yield way, now + max(0.0, deadline - now) / (len(ways) - number)


def solved(
    data: Instance, limits: Limits, solve: Callable[[Instance, Limits], Result]
) -> Result:
    """What an exact method finds over all ways, each by `solve`, as one result."""
    ways = choices.divided(data)
    start = monotonic()
    end = None if limits.time_s is None else start + limits.time_s
    results = []
    for way, until in _in_turn(ways, end):
        left = None if until is None else max(0.0, until - monotonic())
        results.append(solve(way, replace(limits, time_s=left)))
        if results[-1].stop is Stop.INTERRUPTED:
            break
    spent = {"solve": monotonic() - start}
    return replace(_together(data, ways, results), seconds=spent)


def _together(
    data: Instance, ways: Sequence[Instance], results: Sequence[Result]
) -> Result:
    planned = [r for r in results if r.objective is not None]
    whole = len(results) == len(ways)
    if not planned:
        open_ = [r for r in results if r.status is not Status.INFEASIBLE]
        return open_[0] if open_ else results[0]
    best = min(planned, key=lambda result: result.objective or 0)
    if best.stop is Stop.PROVED and len(results) > 1:
        best = replace(best, stop=Stop.FINISHED)
    bounds = [
        r.bound or training_plan_bound(r.data)
        for r in results
        if r.status is not Status.INFEASIBLE
    ]
    least = min(bounds, key=lambda bound: bound.value) if whole else None
    least = least or training_plan_bound(data)
    value = best.objective
    if value is not None and least.value >= value:
        proved = Bound(value, least.source)
        return replace(best, status=Status.OPTIMAL, stop=Stop.PROVED, bound=proved)
    return replace(best, status=Status.FEASIBLE, bound=least)
