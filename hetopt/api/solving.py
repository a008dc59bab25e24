"""One problem by itself, by an exact method, a statement or a planner."""

from collections.abc import Callable
from dataclasses import replace
from functools import partial
from itertools import chain
from pathlib import Path
from time import monotonic
from typing import Any

from pydantic import BaseModel

from .. import problems, registry
from ..bounds import impossible
from ..bounds.training_plan import training_plan_bound
from ..errors import Interrupted, UnknownName, Unsupported
from ..modelling import Limits
from ..plans import Plan
from ..problems.training_plan import settings, shapes, support
from ..result import Result, Status, Stop
from ..schema import Instance
from ..search import choices
from ..search.attempts import Attempt, alone
from ..solving import model_files, statements
from ..solving.heuristic import Heuristic
from ..text.options import checked, record
from . import dividing
from .calling import (
    AnyLimits,
    AnyProblem,
    AnyProgress,
    Options,
    Place,
    Report,
    limits_of,
    progress_of,
    public,
    refuse_unknown,
)
from .judging import posed
from .plugins import Plugin, named, placed

_KINDS = {
    "exact": "exact method",
    "formulations": "statement",
    "planners": "planner",
}
#: Problems whose plans are training plans: bounds of the first are of all of them.
_ALL_PLANS = ("training_plan", "one_pipeline")
NO_PLANNER = "options were given, but no planner: name the one they are of"
#: Arguments of every method, which are no options of one.
_COMMON = ("data", "seed", "deadline", "limits", "warm_start", "report")


@public
def solve(
    instance: AnyProblem | None = None,
    method: Plugin | None = None,
    backend: str | None = None,
    *,
    problem: str | AnyProblem | None = None,
    planner: Plugin | None = None,
    warm_start: Plan | None = None,
    options: Options | None = None,
    limits: AnyLimits = 60,
    progress: AnyProgress = None,
) -> Result:
    """Solve one problem: of an instance, or stated by itself, in a file or a record.

    `problem` names the problem that the instance poses (`hetopt.problems`); by default
    it is the one that it is made for. `method` is an exact method (the default), a
    statement or a planner, as listed by `methods_for`, or a Python file of one; a name
    of both a statement and a planner is the statement, and `planner` names one for
    sure; for an instance also the exact method of a
    problem that narrows its own, such as `one_pipeline`: the result is then of that.
    With `backend` it is a statement, by default the first that the back end carries.
    `options` are of a planner or an exact method, by name (`options_of`), and of the
    problem that is named (`options_of_problem`). Raises
    `InstanceError`, `UnknownName`, `BackendMissing` and `Unsupported`.
    """
    if instance is None:  # what the first argument was called before
        instance, problem = problem, None
    asked, report = limits_of(limits), progress_of(progress).report
    if isinstance(problem, str):
        from .posing import pose  # it knows planners of recoveries

        data, options = pose(instance, problem, options)  # type: ignore[arg-type]
        name = problem
    else:
        name, data = posed(instance)  # type: ignore[arg-type]
    if isinstance(data, Instance):
        support.require(data)
    if planner is not None:
        if method is not None or backend is not None:
            raise Unsupported("a planner and a method were both asked for: choose one")
        return by_planner(name, named(planner), data, asked, options)
    named_method = None if method is None else placed(method)[1]
    if options and backend:
        raise Unsupported("a statement has no options: leave them or the back end out")
    if named_method is not None and _narrows(named_method, data):
        name = named_method
    stated = partial(
        statements.solve,
        *(name, data),
        limits=asked,
        warm_start=warm_start,
        report=report,
    )
    if backend is not None:
        return stated(_formulation(name, named_method, backend), backend)
    known = {kind: registry.known_for(kind, name) for kind in _KINDS}
    if name == "job_scheduling":
        raise Unsupported(
            "a queue of jobs has policies, no methods: use `hetopt schedule`"
        )
    asked_for = named_method or name
    if asked_for not in chain.from_iterable(known.values()):
        listed = [f"{x} ({_KINDS[kind]})" for kind in _KINDS for x in known[kind]]
        raise UnknownName("method", asked_for, listed)
    if named_method is None or named_method in known["exact"]:
        taken = options_of(asked_for, "exact")
        chosen = checked("method", taken, options) if options else {}
        found = exact_result(name, data, asked, warm_start, report, chosen)
        told = {
            option: value.model_dump(mode="json", exclude_unset=True)
            if isinstance(value, BaseModel)
            else value
            for option, value in chosen.items()
        }
        return replace(found, method=replace(found.method, options=told))
    if named_method in known["formulations"]:
        if options:
            message = f"statement {named_method} has no options: leave them out"
            raise Unsupported(message)
        return stated(named_method, carriers(named_method)[0])
    return by_planner(name, named_method, data, asked, options)


def by_planner(
    problem: str, name: str, data: Any, limits: Limits, options: Options | None
) -> Result:
    """Return what a planner of a problem finds, with a cheap bound where there is one.

    Raises `UnknownName` where it is none of that problem.
    """
    refuse_unknown("planner", [name], registry.known_for("planners", problem))
    return bounded(heuristic(name, data, limits, options, problem=problem))


def write_statement(
    problem: AnyProblem, statement: str | None, path: Place
) -> list[Path]:
    """Write a linear statement of a problem as an LP or MPS file; the files.

    By default the first statement of the problem that is linear. Raises what `load`
    raises, `UnknownName` and `Unsupported`.
    """
    name, data = posed(problem)
    return model_files.write(name, data, _formulation(name, statement, "pulp"), path)


# --- what there is ---------------------------------------------------------------


def methods_for(problem: str) -> dict[str, list[str]]:
    """Names that work on a problem, by kind: exact, formulations, planners."""
    return {kind: registry.entries_for(kind, problem) for kind in _KINDS}


def has_two_kinds(problem: str, method: str) -> bool:
    """Whether a name is of a statement, which `solve` takes, and of a planner."""
    known = methods_for(problem)
    return method in known["formulations"] and method in known["planners"]


def current_statement(name: str) -> str:
    """Return the name that a statement has now, of that or of a former one."""
    return registry.current("formulations", name)


def planners_for(problem: str) -> list[str]:
    """Names of the planners of a problem."""
    return registry.entries_for("planners", problem)


def options_of(name: str, kind: str = "planners") -> type[BaseModel]:
    """Return a record of what one planner takes, or one method of `kind` "exact"."""
    entry = registry.entry(kind, name)
    function = entry.plan if kind == "planners" else entry.solve
    return record(name, function, _COMMON)


def carriers(formulation: str) -> list[str]:
    """Back ends that carry a statement; the statement's favourite comes first."""
    module = registry.entry("formulations", formulation)
    return list(getattr(module, "backends", None) or registry.names("backends"))


# --- how it is done --------------------------------------------------------------


def _narrows(method: str, data: Any) -> bool:
    """Whether a method is the exact one of a problem that an instance can pose."""
    return (
        isinstance(data, Instance)
        and method in registry.names("exact")
        and problems.get(method).Data is Instance
    )


def _formulation(problem: str, method: str | None, backend: str) -> str:
    library = backend.partition(":")[0]
    refuse_unknown("backend", [library], registry.names("backends"))
    known = registry.known_for("formulations", problem)
    if method is not None:
        method = current_statement(method)
        refuse_unknown("formulation", [method], known)
        return method
    for name in known:
        if library in carriers(name):
            return name
    raise Unsupported(f"no statement of {problem} runs on {backend!r}")


def exact_result(
    problem: str,
    data: Any,
    limits: Limits,
    warm_start: Any | None,
    report: Report | None,
    options: Options | None = None,
) -> Result:
    """Return what the exact method of a problem finds, in words of the data."""
    ways = settings.divided(data) if problem == "training_plan" else [data]
    if len(ways) > 1:

        def solve(way: Instance, share: Limits) -> Result:
            mine, own = way.workload.costs.split, None
            if warm_start is not None and shapes.split_of(data, warm_start) == mine:
                own = choices.said(way, data, warm_start)
            found = exact_result(problem, way, share, own, report, options)
            return _said(data, way, found)

        return dividing.solved(ways, limits, solve)
    module: Any = registry.entry("exact", problem)
    twin = _runnable(problem, data)
    if warm_start is not None and twin is not data:
        warm_start = choices.said(twin, data, warm_start)
    found: Result = module.solve(
        twin,
        limits=limits,
        warm_start=warm_start,
        report=report,
        **(options or {}),
    )
    return bounded(_said(data, twin, found))


def _runnable(problem: str, data: Any) -> Any:
    """The data with the settings alone that the target of a training plan runs."""
    return settings.on_target(data) if problem == "training_plan" else data


def _in_words_of(data: Any, twin: Any, plan: Any) -> Any:
    """A plan of the twin that says the twin's settings."""
    return plan if plan is None or twin is data else choices.said(data, twin, plan)


def _said(data: Any, twin: Any, found: Result) -> Result:
    """A result for the twin as one for the data."""
    if twin is data:
        return found
    plan = _in_words_of(data, twin, found.plan)
    evaluation = (
        None if plan is None else problems.get(found.problem).evaluate(data, plan)
    )
    return replace(found, data=data, plan=plan, evaluation=evaluation)


def heuristic(
    name: str,
    data: Any,
    limits: Limits,
    options: Options | None = None,
    attempt: Callable[[str, Callable[[], Any]], Attempt[Any]] = alone,
    problem: str | None = None,
) -> Result:
    """Return what a planner finds; no plan becomes a result with its reason.

    A failure does, too, under `attempts.tried`, where other planners are asked as well.
    The result is of the planner's own problem, unless a narrower one is named.
    """
    module: Any = registry.entry("planners", name)
    chosen = checked("planner", options_of(name), options) if options else {}
    run = Heuristic(problem or module.problem, data, name, limits, options=chosen)
    deadline = None if limits.time_s is None else monotonic() + limits.time_s

    twin = data

    def make() -> Any:
        nonlocal twin
        if module.problem == "provisioning":
            of_case = partial(_planned, module, limits.seed, chosen)
            return dividing.rented(data, of_case, deadline)
        if module.problem != "training_plan":
            return module.plan(data, seed=limits.seed, deadline=deadline, **chosen)
        ways = [settings.on_target(way) for way in dividing.ways_of(name, data)]

        def of_way(way: Instance, until: float | None) -> Any:
            nonlocal twin
            twin = way
            return module.plan(way, seed=limits.seed, deadline=until, **chosen)

        twin, made = dividing.best_of(ways, of_way, deadline)
        return _in_words_of(data, twin, made)

    try:
        run.ask(make, attempt)
    except KeyboardInterrupt as signal:
        run.stop = Stop.INTERRUPTED
        best = signal.best if isinstance(signal, Interrupted) else run.made
        if best is not None:  # found by then, or while the judge was at work
            run.ask(lambda: _in_words_of(data, twin, best), attempt)
    if run.stop is None and run.left_s() == 0.0:
        run.stop = Stop.TIME
    return run.result()


def _planned(
    module: Any, seed: int, chosen: Options, data: Any, deadline: float | None
) -> Any:
    return module.plan(data, seed=seed, deadline=deadline, **chosen)


def bounded(result: Result) -> Result:
    """The result with the cheap proved bound, where that says more than its own.

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
        return interrupted(result)
    if result.bound is None or cheap.value > result.bound.value:
        return result.with_bound(cheap)
    return result


def interrupted(result: Result) -> Result:
    """The same, ended by Ctrl-C where it was not proved before."""
    if result.stop is Stop.PROVED:
        return result
    return replace(result, stop=Stop.INTERRUPTED)
