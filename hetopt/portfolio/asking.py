"""One method at work, a planner or an exact one: its plan, judged, as a result."""

from collections.abc import Callable
from dataclasses import replace
from inspect import signature
from math import inf
from typing import Any

from pydantic import BaseModel

from .. import entries, problems, registry
from ..bounds import impossible
from ..bounds.training_plan import training_plan_bound
from ..clock import is_counting, monotonic, wall
from ..errors import Interrupted, NoPlan, Unsupported
from ..modelling import Limits
from ..problems import Objective
from ..problems.training_plan import settings, shapes
from ..result import Result, Status, Stop, TracePoint
from ..schema import Instance
from ..search import choices
from ..search.attempts import trial
from ..solving.heuristic import Heuristic
from ..solving.run import Report
from ..text.documents import Fields
from ..text.options import checked, record
from . import variants

Options = Fields

#: Problems whose plans are training plans: bounds of the first are of all of them.
_ALL_PLANS = ("training_plan", "one_pipeline")
#: Arguments of every method, which are no options of one.
_COMMON = ("data", "seed", "deadline", "limits", "warm_start", "report")


def options_of(name: str, kind: str = "planners") -> type[BaseModel]:
    """Return a record of what one planner takes, or one method of `kind` "exact"."""
    planned = kind == "planners"
    own = entries.planner(name).plan if planned else entries.exact_method(name).solve
    return record(name, own, _COMMON)


def ask(
    name: str,
    data: object,
    limits: Limits,
    options: Options | None = None,
    *,
    several: bool = False,
    problem: str | None = None,
) -> Result:
    """Return what a planner finds; no plan becomes a result with its reason.

    A failure does, too, where `several` planners are asked. The result is of the
    planner's own problem, unless a narrower one is named. Ctrl-C ends it, and the
    result holds what the planner had by then.
    """
    planner = entries.planner(name)
    chosen = checked("planner", options_of(name), options) if options else {}
    run = Heuristic(problem or planner.problem, data, name, limits, options=chosen)
    end = None if limits.time_s is None else monotonic() + limits.time_s
    made: Any = None  # not judged yet
    variant: variants.Variant | None = None
    try:
        with trial(name, several=several) as first:
            if is_counting() and registry.source_of(name):
                _refuse_clocks(name, planner.plan)
            none: NoPlan | None = None
            for variant in variants.of_planner(name, planner.problem, data, end):
                known, least = run.objective, variant.least
                if known is not None and least is not None and least >= known:
                    break  # nor does any variant behind it have a better plan
                if run.plan is not None and limits.gap == inf:
                    break  # any plan will do
                try:
                    made = planner.plan(
                        variant.data, seed=limits.seed, deadline=variant.until, **chosen
                    )
                    if made is not None:
                        run.keep(variant.said(made))
                except NoPlan as error:
                    none = error
                made = None
            if run.plan is None and none is not None:
                raise none
        run.note(first)
    except KeyboardInterrupt as signal:
        run.stop = Stop.INTERRUPTED
        made = signal.best if isinstance(signal, Interrupted) else made
        if made is not None and variant is not None:
            # Found by then, or while the judge was at work.
            with trial(name, several=several) as last:
                run.keep(variant.said(made))
            run.note(last)
    if run.stop is None and run.left_s() == 0.0:
        run.stop = Stop.TIME
    return run.result()


def _refuse_clocks(name: str, plan: Callable[..., object]) -> None:
    """Raise `Unsupported` where a plug-in looks at a clock of its own."""
    if "deadline" in signature(plan).parameters:
        raise Unsupported(
            f"--work is not supported by {name}: a plug-in that has a deadline looks "
            "at a clock of its own; use --time-limit"
        )


def exactly(
    problem: str,
    data: Any,
    limits: Limits,
    warm_start: Any | None = None,
    report: Report | None = None,
    options: Options | None = None,
) -> Result:
    """Return what the exact method of a problem finds, in terms of the data."""
    ways = settings.split_variants(data) if problem == "training_plan" else [data]
    if len(ways) > 1 and not _go_together(ways):
        trace, start = list[TracePoint](), wall()

        def hear(incumbent: Objective | None, _: Objective | None) -> None:
            """Hear of plans: what bounds one way bounds not all."""
            least = trace[-1].incumbent if trace else None
            if incumbent is None or (least is not None and least <= incumbent):
                return
            trace.append(TracePoint(wall() - start, incumbent, None))
            if report is not None:
                report(incumbent, None)

        def solve(way: Instance, share: Limits) -> Result:
            own, nodes = None, way.planned_cluster.node
            if warm_start is not None and (
                shapes.split_of(data, warm_start) == way.workload.costs.split
                and all(replica.node in nodes for replica in warm_start.replicas())
            ):
                own = choices.said(way, data, warm_start)
            found = exactly(problem, way, share, own, hear, options)
            return _translate_back(data, way, found)

        found = variants.solve_variants(ways, limits, solve)
        return replace(found, trace=tuple(trace))
    method = entries.exact_method(problem)
    twin = settings.on_target(data) if problem == "training_plan" else data
    if warm_start is not None and twin is not data:
        warm_start = choices.said(twin, data, warm_start)
    found = method.solve(
        twin, limits=limits, warm_start=warm_start, report=report, **(options or {})
    )
    return with_bound(_translate_back(data, twin, found))


def _go_together(ways: list[Instance]) -> bool:
    """Tell whether one run of the exact method is of all ways to divide."""
    from ..exact import training_plan  # as long to load as all that is above

    return training_plan.goes_together(ways)


def _translate_back(data: Any, twin: Any, found: Result) -> Result:
    if twin is data:
        return found
    if found.plan is None:
        return replace(found, data=data, evaluation=None)
    plan = choices.said(data, twin, found.plan)
    evaluation = problems.get(found.problem).evaluate(data, plan)
    return replace(found, data=data, plan=plan, evaluation=evaluation)


def with_bound(result: Result) -> Result:
    """Return the result with the cheap proved bound, where that says more than its own.

    Without a plan, and where arithmetic proves that there is none, it says so.
    """
    if result.problem not in _ALL_PLANS or result.status is Status.INFEASIBLE:
        return result
    if result.plan is None and (reason := impossible.reason(result.data)):
        return replace(
            result, status=Status.INFEASIBLE, stop=Stop.PROVED, reasons=(reason,)
        )
    try:
        cheap = training_plan_bound(result.data)
    except KeyboardInterrupt:
        return as_interrupted(result)
    if result.bound is None or cheap.value > result.bound.value:
        return result.with_bound(cheap)
    return result


def as_interrupted(result: Result) -> Result:
    """Return the result as ended by Ctrl-C, where it was not proved before."""
    if result.stop is Stop.PROVED:
        return result
    return replace(result, stop=Stop.INTERRUPTED)
