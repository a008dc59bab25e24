"""One problem by itself, by an exact method, a statement or a planner."""

from dataclasses import replace
from functools import partial
from itertools import chain
from pathlib import Path

from pydantic import BaseModel

from .. import entries, portfolio, problems, registry
from ..errors import UnknownName, Unsupported
from ..modelling import Limits
from ..plans import Plan
from ..portfolio import options_of
from ..problems.training_plan import support
from ..result import Result
from ..schema import Instance
from ..solving import statements
from ..text.documents import Document
from ..text.options import checked
from .calling import (
    AnyLimits,
    AnyProblem,
    AnyProgress,
    Options,
    Place,
    limits_of,
    progress_of,
    refuse_unknown,
    worked,
)
from .judging import posed
from .plugins import Plugin, named, placed

_KINDS = {"exact": "exact method", "formulations": "statement", "planners": "planner"}
NO_PLANNER = "options need a planner: name it"


def solve(
    instance: AnyProblem,
    method: Plugin | None = None,
    backend: str | None = None,
    *,
    problem: str | None = None,
    planner: Plugin | None = None,
    warm_start: Plan | None = None,
    options: Options | None = None,
    limits: AnyLimits = 60,
    progress: AnyProgress = None,
) -> Result:
    """Solve one problem: of an instance, or stated by itself, in a file or a record.

    `problem` names the problem that the instance poses (`hetopt.problems`), by default
    its own. `method` is an exact method (the default), a statement or a planner
    (`methods_for`), or a Python file with one. For an instance it may be the exact
    method of a narrower problem, such as `one_pipeline`; the result is then of
    that. With `backend` it is a statement, by default the first that the back end
    carries. `options` are those of a planner or exact method (`options_of`), and of the
    named problem (`options_of_problem`). Raises `InstanceError`, `UnknownName`,
    `BackendMissing` and `Unsupported`.
    """
    given, report = limits_of(limits, counts_work=True), progress_of(progress).report
    problem = problem and problem.replace("-", "_")
    if problem is not None:
        from .posing import pose  # it knows planners of recoveries

        data, options = pose(instance, problem, options)
        name = problem
    else:
        name, data = posed(instance)
    if isinstance(data, Instance):
        support.require(data)
    if planner is not None:
        if method is not None or backend is not None:
            raise Unsupported("planner and method exclude each other: choose one")
        return worked(given, partial(by_planner, name, named(planner), data, options))
    named_method = None if method is None else placed(method)[1]
    if options and backend:
        raise Unsupported("a statement has no options: leave them or the back end out")
    if named_method in registry.names("exact") and isinstance(data, Instance):
        assert named_method is not None
        name = named_method if problems.get(named_method).Data is Instance else name
    start: Document = {"warm_start": warm_start, "report": report}
    if backend is not None:
        stated = _formulation(name, named_method, backend)
        make = partial(statements.solve, name, data, stated, backend, **start)
        return worked(given, make)
    return worked(given, partial(_solve, name, data, named_method, options, start))


def _solve(
    name: str,
    data: object,
    named_method: str | None,
    options: Options | None,
    start: Document,
    limits: Limits,
) -> Result:
    """Return what a method of a problem, by default the exact one, finds.

    `start` has the warm start, and the report that it is told.
    """
    known = {kind: registry.known_for(kind, name) for kind in _KINDS}
    if name == "job_scheduling":
        raise Unsupported(
            "queues of jobs have policies instead of methods: use `hetopt schedule`"
        )
    asked_for = named_method or name
    if asked_for not in chain.from_iterable(known.values()):
        listed = [f"{x} ({_KINDS[kind]})" for kind in _KINDS for x in known[kind]]
        raise UnknownName("method", asked_for, listed)
    if named_method is None or named_method in known["exact"]:
        taken = options_of(asked_for, "exact")
        chosen = checked("method", taken, options) if options else {}
        found = portfolio.exactly(name, data, limits, options=chosen, **start)
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
        stated = name, data, named_method, carriers(named_method)[0]
        return statements.solve(*stated, limits=limits, **start)
    return by_planner(name, named_method, data, options, limits)


def by_planner(
    problem: str, name: str, data: object, options: Options | None, limits: Limits
) -> Result:
    """Return what a planner of a problem finds, with a cheap bound where there is one.

    Raises `UnknownName` where it is none of that problem.
    """
    refuse_unknown("planner", [name], registry.known_for("planners", problem))
    return portfolio.with_bound(
        portfolio.ask(name, data, limits, options, problem=problem)
    )


def write_statement(
    problem: AnyProblem, statement: str | None, path: Place
) -> list[Path]:
    """Write a linear statement of a problem as LP or MPS, and return the files.

    The default is the problem's first linear statement. Raises what `load` raises,
    `UnknownName` and `Unsupported`.
    """
    name, data = posed(problem)
    return statements.write(name, data, _formulation(name, statement, "pulp"), path)


# --- what there is ---------------------------------------------------------------


def methods_for(problem: str) -> dict[str, list[str]]:
    """Names that work on a problem, by kind: exact, formulations, planners."""
    return {kind: registry.entries_for(kind, problem) for kind in _KINDS}


def planners_for(problem: str) -> list[str]:
    """Names of the planners of a problem."""
    return registry.entries_for("planners", problem)


def carriers(formulation: str) -> list[str]:
    """Back ends that carry a statement; the statement's favourite comes first."""
    stated = entries.statement(formulation)
    return list(getattr(stated, "backends", None) or registry.names("backends"))


# --- how it is done --------------------------------------------------------------


def _formulation(problem: str, method: str | None, backend: str) -> str:
    library = backend.partition(":")[0]
    refuse_unknown("backend", [library], registry.names("backends"))
    known = registry.known_for("formulations", problem)
    if method is not None:
        refuse_unknown("formulation", [method], known)
        return method
    for name in known:
        if library in carriers(name):
            return name
    raise Unsupported(f"no statement of {problem} runs on {backend!r}")
