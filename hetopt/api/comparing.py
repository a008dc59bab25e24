"""Methods of any problem side by side: planners, statements by back end, exact method.

Each has the time limit for itself. A statement that a back end cannot carry, or that
is refused as too large, is a row that says so. Of a queue of jobs the rows are its
policies, which are all that it has.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

from .. import portfolio, registry
from ..errors import BackendMissing, MixedData, Unsupported
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
    AnyLimits,
    AnyProblem,
    AnyProgress,
    Options,
    Progress,
    limits_of,
    progress_of,
    refuse_unknown,
    several,
    worked,
)
from .judging import posed
from .planning import exactly
from .plugins import Plugin, named
from .solving import carriers, planners_for
from .starts import LIBRARY, AnyStart, known_of, quoted

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


def compare(
    instances: AnyProblem | Iterable[AnyProblem],
    planners: Sequence[Plugin] | None = None,
    *,
    problem: str | None = None,
    options: Options | None = None,
    statements: Sequence[str] | None = None,
    backends: Sequence[str] | None = None,
    exact: bool | None = None,
    runs_on: str | None = None,
    start: AnyStart = None,
    known: bool = False,
    limits: AnyLimits = 60,
    progress: AnyProgress = None,
) -> GapReport:
    """Compare planners, and with `exact` the exact method as well.

    The default is all planners; `portfolio` is what `plan` does without a planner.
    Every method has the whole time limit and starts from nothing. A row quotes what the
    library has; no summary counts it. Gaps are to the best bound that a method of this
    report or the library has proved. The plans of `start`, and with `known` the best
    known plans (`hetopt.api.starts`), are given to the exact method and the portfolio,
    whose rows are marked. `runs_on` as in `plan`. Raises as `plan` does, before any
    work is done.

    With a `problem` that the instances pose, with these `options` (`api.pose`), and for
    problem files, the rows are all methods of that problem: its planners, its
    `statements` on each of the `backends` that carry them, and unless `exact` is false
    the exact method, each with the whole time limit.
    """
    asked, heard = limits_of(limits, counts_work=True), progress_of(progress)
    problem = problem and problem.replace("-", "_")
    read = [_read(given, problem, options, runs_on) for given in several(instances)]
    kinds = list(dict.fromkeys(name for name, _, _ in read))
    if len(kinds) > 1:
        raise MixedData(
            f"found problems {', '.join(kinds)}, expected one: compare them one by one"
        )
    chosen = Chosen(planners, statements, backends, exact is not False)
    if problem is not None or kinds != ["training_plan"]:
        if runs_on is not None or start is not None or known:
            raise Unsupported(
                "runs_on, start and known are for training plans only: leave them out"
            )
    elif statements or backends or options:
        raise Unsupported(
            "statements, backends and options need a problem: name it, such as "
            "training_plan"
        )
    else:
        chosen = Chosen(planners, (), (), bool(exact))
    for kind in kinds:  # refused before any work
        chosen.planners_of(kind)
        chosen.statements_of(kind)
    names = {data.digest: called for _, data, called in read}
    for _, data, called in read:
        if any(names[x] == called for x in names if x != data.digest):
            raise MixedData(f"two different instances are named {called!r}: rename one")
    results, references = list[Result](), dict[str, Reference]()
    try:
        for name, data, called in read:
            references[data.digest] = _reference(name, data, called, start)
            before: list[Result] = []
            if start is not None or known:
                before = known_of(data, start, library=known).results(data)
            for result in _rows(name, data, called, chosen, before, asked, heard):
                results.append(result)
                if result.stop is Stop.INTERRUPTED:
                    raise KeyboardInterrupt
            kept = quoted(name, data, best.known(called))
            results += [] if kept is None else [kept]
    except KeyboardInterrupt:
        if not results:
            raise
    return GapReport.of(results, references, names, conditions(asked))


def conditions(limits: Limits) -> Document:
    """Return what a row says of its run, so that it can be run again, but its seed."""
    return {
        "time_limit_s": limits.time_s,
        "work": limits.work,
        "threads": limits.threads,
        "version": registry.version(),
        "machine": machine.text(),
    }


# --- how it is done --------------------------------------------------------------


def _read(
    given: AnyProblem, problem: str | None, options: Options | None, runs_on: str | None
) -> tuple[str, Any, str]:
    """Return the problem, its data, and what to call them."""
    if problem is None:
        name, data = posed(given)
        if isinstance(data, Instance):
            data = data if runs_on is None else data.on(runs_on)
            support.require(data)
            return name, data, data.name
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


def _reference(problem: str, data: Any, called: str, start: AnyStart) -> Reference:
    """Return what the library knows of an instance that poses this very problem.

    What no training plan is faster than, no plan of one pipeline is.
    """
    if isinstance(data, Instance):
        found = known_of(data, start).reference(data)
        if problem == "training_plan":
            return found
        return Reference(found.bound, found.bound_by)
    kept = quoted(problem, data, best.known(called))
    if kept is None:
        return Reference()
    bound_by = None if kept.bound is None else LIBRARY
    return Reference(kept.bound, bound_by, kept.objective, LIBRARY)


def _rows(
    problem: str,
    data: Any,
    called: str,
    chosen: Chosen,
    given: Sequence[Result],
    limits: Limits,
    progress: Progress,
) -> Iterator[Result]:
    """Yield the results of all methods; some say that they were given a plan."""
    names = chosen.planners_of(problem)
    if problem == _QUEUES:
        yield from _compare_policies(data, names, limits, progress)
        return

    def ask(name: str, *, limits: Limits) -> Result:
        """Ask one of several planners; `portfolio` alone starts from what is given."""
        if name == PORTFOLIO:
            found = portfolio.search(data, limits, given, progress.report)
            source = given[0].started_from if given else None
            return replace(found, started_from=source)
        found = portfolio.ask(name, data, limits, several=True, problem=problem)
        return replace(portfolio.with_bound(found), started_from=None)

    def solve(statement: str, backend: str, *, limits: Limits) -> Result:
        try:
            return statements.solve(problem, data, statement, backend, limits=limits)
        except (Unsupported, BackendMissing) as reason:
            method = Method(statement, "exact", formulation=statement, backend=backend)
            return unsupported(problem, data, method, str(reason))

    def prove(*, limits: Limits) -> Result:
        try:
            found = exactly(problem, data, given, progress, limits)
        except Unsupported as reason:
            return unsupported(problem, data, Method(problem, "exact"), str(reason))
        # One that solves a statement is a row beside that statement's own.
        return replace(found, method=replace(found.method, formulation=None))

    for name in names:
        progress.started(f"{called}: {name}")
        yield worked(limits, partial(ask, name))
    for statement, backend in chosen.statements_of(problem):
        progress.started(f"{called}: {statement}, {backend}")
        yield worked(limits, partial(solve, statement, backend))
    if chosen.exact:
        progress.started(f"{called}: exact")
        yield worked(limits, prove)


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


def unsupported(problem: str, data: object, method: Method, reason: str) -> Result:
    """Return the row of a method that does not take the problem."""
    return Result(
        problem, data, method, Status.UNDECIDED, Stop.FINISHED, reasons=(reason,)
    )
