"""Methods of any problem side by side: planners, statements by back end, exact method.

Each has the time limit for itself. A statement that a back end cannot carry, or that
is refused as too large, is a row that says so. Of a queue of jobs the rows are its
policies, which are all that it has.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

from .. import portfolio, registry
from ..errors import BackendMissing, InstanceError, MixedData, Unsupported
from ..files import best
from ..gaps import GapReport, Reference
from ..measuring import machine
from ..modelling import Limits
from ..problems.training_plan import support
from ..result import Method, Result, Status, Stop
from ..schema import Instance, Record
from ..solving import statements
from ..text.documents import Document
from .calling import (
    AnyProblem,
    Options,
    Progress,
    refuse_unknown,
    worked,
)
from .judging import posed
from .plugins import Plugin, named
from .solving import (
    carriers,
    planners_for,
)
from .starts import LIBRARY, known_of, quoted

_QUEUES = "job_scheduling"
#: The planner of training plans that is all of them, walks and the exact method.
PORTFOLIO = "portfolio"
_POLICIES = "scheduling.policies"


@dataclass(frozen=True)
class Chosen:
    """The choice says which methods are compared; None is all that the problem has."""

    planners: Sequence[Plugin] | None = None
    statements: Sequence[str] | None = None
    backends: Sequence[str] | None = None
    exact: bool = True

    def planners_of(self, problem: str) -> list[str]:
        """Return the planners by name, of a queue its policies; `UnknownName`."""
        folder = _POLICIES if problem == _QUEUES else "planners"
        if self.planners is None:
            queues = problem == _QUEUES
            return registry.names(folder) if queues else planners_for(problem)
        given = [*dict.fromkeys(named(one, folder) for one in self.planners)]
        kind = "policy" if problem == _QUEUES else "planner"
        known = registry.known_for(folder, problem)
        if problem == "training_plan":
            known.append(PORTFOLIO)
        refuse_unknown(kind, given, known)
        return given

    def statements_of(self, problem: str) -> list[tuple[str, str]]:
        """Return the pairs of a statement and a back end that carries it."""
        known = registry.known_for("formulations", problem)
        libraries = registry.names("backends")
        given = known if self.statements is None else self.statements
        refuse_unknown("formulation", given, known)
        asked = libraries if self.backends is None else list(self.backends)
        refuse_unknown("backend", [x.partition(":")[0] for x in asked], libraries)
        return [
            (name, backend)
            for name in dict.fromkeys(given)
            for backend in dict.fromkeys(asked)
            if backend.partition(":")[0] in carriers(name)
        ]


def problem_of(given: AnyProblem) -> tuple[str | None, Instance | None]:
    """Return the problem that is stated by itself; else the instance to plan on.

    Of an instance with offers the problem is `provisioning`. Neither is there where it
    cannot be read: whoever loads it says why.
    """
    if isinstance(given, Instance):
        return ("provisioning", None) if given.cluster is None else (None, given)
    try:
        name, data = posed(given)
    except InstanceError:
        return None, None
    return (None, data) if name == "training_plan" else (name, None)


def report_of(
    problems: Sequence[AnyProblem],
    problem: str | None,
    options: Options | None,
    chosen: Chosen,
    limits: Limits,
    progress: Progress,
) -> GapReport:
    """Compare the methods of one problem on each of what poses it.

    What the library has is quoted behind them.
    """
    read = [_read(given, problem, options) for given in problems]
    kinds = list(dict.fromkeys(name for name, _, _ in read))
    if len(kinds) > 1:
        raise MixedData(
            f"found problems {', '.join(kinds)}, expected one: compare them one by one"
        )
    _ = [chosen.planners_of(kind) for kind in kinds]  # refused before any work
    _ = [chosen.statements_of(kind) for kind in kinds]
    results: list[Result] = []
    try:
        for name, data, called in read:
            for result in _compare_methods(
                name, data, called, chosen, limits, progress
            ):
                results.append(result)
                if result.stop is Stop.INTERRUPTED:
                    raise KeyboardInterrupt
    except KeyboardInterrupt:
        if not results:
            raise
    known = {data.digest: _reference(name, data, called) for name, data, called in read}
    names = {data.digest: called for _, data, called in read}
    kept = (quoted(name, data, best.known(called)) for name, data, called in read)
    results += filter(None, kept)
    return GapReport.of(results, known, names, conditions(limits))


def conditions(limits: Limits) -> Document:
    """Return what a row says of its run, so that it can be run again, but its seed."""
    return {
        "time_limit_s": limits.time_s,
        "work": limits.work,
        "threads": limits.threads,
        "version": registry.version(),
        "machine": machine.text(),
    }


def _read(
    given: AnyProblem, problem: str | None, options: Options | None
) -> tuple[str, Any, str]:
    """Return the problem, its data, and what to call them."""
    if problem is None:
        if options:
            raise Unsupported(f"options {', '.join(options)} need a problem: name it")
        name, data = posed(given)
    else:
        from .posing import pose  # it knows planners of recoveries

        name, (data, rest) = problem, pose(given, problem, options)
        if rest:
            raise Unsupported(
                f"found options {', '.join(rest)}, which {problem} does not know: "
                "correct them (`hetopt list problems`)"
            )
    if isinstance(data, Instance):
        support.require(data)
    return name, data, _label(given, name, data)


def _label(given: AnyProblem, problem: str, data: object) -> str:
    """Return the name of an instance or a file, else that of the problem."""
    if isinstance(given, str | Path):
        return str(given)
    own = given.get("name") if isinstance(given, Mapping) else None
    record = given if isinstance(given, Record) else data
    return str(own or getattr(record, "name", problem))


def _reference(problem: str, data: Any, called: str) -> Reference:
    """Return what the library knows of an instance that poses this very problem.

    What no training plan is faster than, no plan of one pipeline is.
    """
    if isinstance(data, Instance):
        found = known_of(data).reference(data)
        if problem == "training_plan":
            return found
        return Reference(found.bound, found.bound_by)
    kept = quoted(problem, data, best.known(called))
    if kept is None:
        return Reference()
    bound_by = None if kept.bound is None else LIBRARY
    return Reference(kept.bound, bound_by, kept.objective, LIBRARY)


def _compare_methods(
    problem: str,
    data: object,
    called: str,
    chosen: Chosen,
    limits: Limits,
    progress: Progress,
) -> Iterator[Result]:
    names = chosen.planners_of(problem)
    if problem == _QUEUES:
        yield from _compare_policies(data, names, limits, progress)
        return
    for name in names:
        progress.started(f"{called}: {name}")
        yield worked(limits, partial(ask, name, data, progress, (), problem=problem))
    for statement, backend in chosen.statements_of(problem):
        progress.started(f"{called}: {statement}, {backend}")
        yield worked(
            limits, partial(_solve_statement, problem, data, statement, backend)
        )
    if chosen.exact:
        progress.started(f"{called}: exact")
        yield worked(limits, partial(_prove, problem, data, progress))


def ask(
    name: str,
    data: Any,
    progress: Progress,
    given: Sequence[Result],
    limits: Limits,
    *,
    problem: str = "training_plan",
) -> Result:
    """Return what one of several planners finds; `portfolio` is what `plan` does.

    The portfolio alone starts from what is given.
    """
    if name == PORTFOLIO:
        return portfolio.search(data, limits, given, progress.report)
    found = portfolio.ask(name, data, limits, several=True, problem=problem)
    return portfolio.with_bound(found)


def _compare_policies(
    data: Any, names: list[str], limits: Limits, progress: Progress
) -> Iterator[Result]:
    """Yield a queue's policies, each with the time limit, and the bound of them all."""
    from .scheduling import schedule

    each = limits.time_s
    whole = None if each is None else each * (len(names) + 1)
    for outcome in schedule(
        data, names, limits=replace(limits, time_s=whole), progress=progress
    ):
        yield outcome.result


def _solve_statement(
    problem: str, data: object, statement: str, backend: str, limits: Limits
) -> Result:
    try:
        return statements.solve(problem, data, statement, backend, limits=limits)
    except (Unsupported, BackendMissing) as reason:
        method = Method(statement, "exact", formulation=statement, backend=backend)
        return _nothing(problem, data, method, str(reason))


def _prove(problem: str, data: object, progress: Progress, limits: Limits) -> Result:
    try:
        found = portfolio.exactly(problem, data, limits, None, progress.report)
    except Unsupported as reason:
        return _nothing(problem, data, Method(problem, "exact"), str(reason))
    # One that solves a statement is a row beside that statement's own.
    return replace(found, method=replace(found.method, formulation=None))


def _nothing(problem: str, data: object, method: Method, reason: str) -> Result:
    """Return the row of a method that does not take the problem."""
    return Result(
        problem, data, method, Status.UNDECIDED, Stop.FINISHED, reasons=(reason,)
    )
