"""Runs a statement of `hetopt.formulations` on a back end; the result is judged.

What a statement module offers is described in `formulations/README.md`. The solver's
plan is judged, and its bound turned into one of the problem: floats are first weakened
by the solver's tolerance, then rounded to a value that the objective can take. A result
is optimal only where the judge's objective equals that bound; where a solver that
computes in floats claims an optimum that cannot be confirmed so, it is feasible, with
its bound, and `stop` is `gap`.

Where a row can come to so much that the tolerance is a unit of it (`Model.span`), no
word of such a solver is a proof: neither its bound nor that there is no plan. What it
claims to have proved is then asked of CP-SAT, which is exact, within the time that is
left and from the plan that was found; without its answer the plan is kept, no more.

Linear statements, those that PuLP carries, are also written as LP and MPS files, with
`_` for what these forbid in names. A file minimises, if need be the negative of what
the statement maximises: its first line says so.
"""

import math
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from fractions import Fraction
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from .. import entries, problems, registry
from ..clock import wall
from ..entries import Statement
from ..errors import BackendMissing, PlanRejected, Unsupported
from ..modelling import SIZE, Answer, Limits, ReadPlan, Span, looking
from ..problems import Objective
from ..result import Bound, Method, Result, Status, Stop
from ..search.attempts import blaming
from ..text.writing import write_text
from .run import Halt, Report, Run, listed

TOLERANCE = Fraction(1, 10**6)  # of SCIP, CBC and HiGHS, relative and absolute
COSTS = Fraction(1, 10**7)  # of their reduced costs, relative to the objective's terms
EXACT = "cpsat"
SUFFIXES = (".lp", ".mps")


def solve(
    problem: str,
    data: object,
    formulation: str,
    backend: str,
    *,
    limits: Limits | None = None,
    warm_start: object | None = None,
    report: Report | None = None,
) -> Result:
    """Solve `data` as `formulation` states it, on `backend`.

    `backend` may name a solver of the back end's library as well: `pulp:HiGHS`.
    `warm_start` is a plan; it is judged (`InstanceError` where it breaks a rule), kept
    as the first incumbent, and offered to the solver where the statement says how.
    `report(incumbent, bound)` is called from the solver's thread, with its own view of
    the incumbent. `Unsupported` where statement, problem and back end do not fit.
    """
    run = _Run(problem, data, formulation, backend, limits or Limits(), report)
    run.start_from(warm_start)
    try:
        with blaming(formulation):
            cases = run.cases()
            for number, case in enumerate(cases):
                run.solve_case(case, warm_start, left=len(cases) - number)
            run.confirm()
    except Halt as end:
        run.stops.append(end.stop)
    except MemoryError:
        run.stops.append(Stop.MEMORY)
    except KeyboardInterrupt:
        run.stops.append(Stop.INTERRUPTED)
    return run.result()


def write(problem: str, data: object, formulation: str, path: str | Path) -> list[Path]:
    """Write a statement of `data`, one file a case of the statement; the files.

    A statement of several cases (such as one for each number of groups) takes the
    name as a stem: `model.mps` becomes `model-1.mps`, `model-2.mps` and so on.
    `Unsupported` for another suffix and for a statement that is not linear.
    """
    target = Path(path)
    if target.suffix.lower() not in SUFFIXES:
        raise Unsupported(
            f"{path}: found suffix {target.suffix!r}, expected one of "
            f"{', '.join(SUFFIXES)}"
        )
    statement = module(problem, formulation, "pulp")
    cases = cases_of(statement, data)
    files = [target]
    if len(cases) > 1:
        files = [target.with_stem(f"{target.stem}-{k + 1}") for k in range(len(cases))]
    for file, case in zip(files, cases, strict=True):
        with blaming(formulation):
            text = _text(problem, statement, case, target.suffix.lower())
        write_text(file, text)
    return files


def _text(problem: str, statement: Statement, case: object, suffix: str) -> str:
    model: Any = entries.backend("pulp").backend(problem)  # which alone writes
    statement.build(case, model)
    with TemporaryDirectory(prefix="hetopt-model-") as folder:
        draft = Path(folder, f"model{suffix}")
        negated = model.write(draft)
        text = draft.read_text(encoding="utf-8")
    what = "minimises the negative of what is maximised" if negated else "minimises"
    mark = "*" if suffix == ".mps" else "\\"
    return f"{mark} hetopt: {what}\n{text}"


def cases_of(statement: Statement, data: object) -> list[object]:
    """Return what a statement states one by one: `data` itself, unless it says more."""
    return list(statement.cases(data)) if hasattr(statement, "cases") else [data]


def module(problem: str, formulation: str, backend: str) -> Statement:
    """The module, where it states `problem` and `backend` carries it."""
    problems.get(problem)
    statement = entries.statement(formulation)
    known = registry.names("backends")
    backend, _, solver = backend.partition(":")
    entries.backend(backend)
    if solver and backend != "pulp":
        raise Unsupported(
            f"back end {backend}:{solver}: only pulp chooses among solvers; "
            f"give {backend!r} alone"
        )
    if statement.problem != problem:
        fitting = registry.entries_for("formulations", problem)
        raise Unsupported(
            f"formulation {formulation!r} states {statement.problem}, not {problem}: "
            f"expected one of {', '.join(fitting) or 'none'}"
        )
    able = getattr(statement, "backends", known)
    if backend not in able:
        raise Unsupported(
            f"back end {backend!r} cannot carry formulation {formulation!r}: "
            f"expected one of {', '.join(able)}"
        )
    return statement


class _Run(Run):
    """The run keeps what is known while the cases of a problem are solved in turn."""

    def __init__(
        self,
        problem: str,
        data: object,
        formulation: str,
        backend: str,
        limits: Limits,
        report: Report | None,
    ) -> None:
        super().__init__(problem, data, limits, report, backend)
        self.formulation = formulation
        self.statement = module(problem, formulation, backend)
        library, _, solver = backend.partition(":")
        self.solver = entries.backend(library)
        self.choice = {"solver": solver} if solver else {}
        self.source = f"{backend} dual"
        self.asked = 1  # the number of cases, once they are known
        # One a case that ended; None without a bound. Infeasible cases need none.
        self.bounds: list[Objective | None] = []
        self.refuted = 0  # cases without a plan
        self.doubted = 0.0  # the largest sums of answers whose word counts for nothing
        self.stops: list[Stop] = []
        self.spent = {"build": 0.0}  # all else that the run takes is "solve"

    def _tell(self) -> None:
        """Nothing: the solver tells by itself."""

    def cases(self) -> list[object]:
        """Return the cases of the problem; to compute them is part of the building."""
        with self._building():
            found = cases_of(self.statement, self.data)
        self.asked = len(found)
        return found

    @contextmanager
    def _building(self) -> Iterator[None]:
        """Look at the limits within the block, and count its time as building."""
        begun = wall()
        try:
            with looking(self.check):
                yield
        finally:
            self.spent["build"] += wall() - begun

    def solve_case(self, case: object, warm_start: object | None, left: int) -> None:
        """State and solve one case; `left` cases share the time that is left."""
        model = self.solver.backend(self.problem, **self.choice)
        model.watch = self._watch
        with self._building():
            read_plan = self.statement.build(case, model)
            if warm_start is not None and hasattr(self.statement, "hint"):
                hinted: Mapping[str, int] = self.statement.hint(case, warm_start)
                for name, value in hinted.items():
                    model.hint(model.variables[name], value)
        listener = self._listener(case, left, model.span)
        answer = model.solve(self._limits(left), listener)
        self._take_plan(answer, read_plan)
        self._take_word(case, answer, model.span)
        if answer.stop is Stop.INTERRUPTED:
            raise KeyboardInterrupt

    def _watch(self, parts: int) -> None:
        if parts > SIZE.most:
            self.reasons += (
                f"{self.formulation} has more than {SIZE.most:,} variables, terms and "
                "rows here: use the exact method, or a smaller instance",
            )
            raise Halt(Stop.MEMORY)
        self.check()

    def confirm(self) -> None:
        """Ask CP-SAT for what was claimed and is no proof, if there is time left."""
        carried = _exactly_carried(self.problem, self.formulation)
        unfinished = any(s not in (Stop.PROVED, Stop.GAP) for s in self.stops)
        if not self.doubted or unfinished or carried is None:
            return
        limits = self._limits(left=1)
        try:
            found = solve(
                *(self.problem, self.data, carried, EXACT),
                limits=limits,
                warm_start=self.plan,
            )
        except (BackendMissing, Unsupported):
            return
        self.spent["build"] += found.seconds["build"]
        self.plan, self.objective = found.plan, found.objective
        # The whole problem is one case now.
        self.asked, self.bounds = 1, [found.bound.value if found.bound else None]
        self.refuted = int(found.status is Status.INFEASIBLE)
        self.stops = [found.stop]
        self.source = f"{EXACT} dual of {carried}"

    def _limits(self, left: int) -> Limits:
        seconds = self.left_s()
        return replace(self.limits, time_s=None if seconds is None else seconds / left)

    def _listener(
        self, case: object, left: int, span: Span
    ) -> Callable[[float | None, float | None], None]:
        """Progress of the solver, in the problem's objective."""
        # A case's bound is not the problem's.
        only = left == 1 and not self.bounds and _trusted(span)

        def listen(incumbent: float | None, bound: float | None) -> None:
            now = self.objective
            if incumbent is not None:
                reached = self._valued(
                    case, _weaker(incumbent, span, minimise=self.minimise)
                )
                now = self._best(now, reached)
            proved = self._bound(case, bound, span) if only else None
            if self.trace and (now, proved) == (
                self.trace[-1].incumbent,
                self.trace[-1].bound,
            ):
                return
            self.progress(now, proved)

        return listen

    def _take_word(self, case: object, answer: Answer, span: Span) -> None:
        """Add what the answer says of all plans of a case to what is known."""
        infeasible, bound = answer.status is Status.INFEASIBLE, answer.bound
        if not _trusted(span) and (infeasible or bound is not None):
            self.doubted = max(self.doubted, span.row)
            infeasible, bound = False, None
        if infeasible:
            self.refuted += 1
            self.bounds.append(None)
            return
        self.bounds.append(self._bound(case, bound, span))
        self.stops.append(answer.stop)

    def _take_plan(self, answer: Answer, read_plan: ReadPlan) -> None:
        """Keep the plan of an answer if it is the best so far, as judged."""
        if answer.value is None:
            return
        plan = read_plan(answer.value)
        found = self.judge.evaluate(self.data, plan)
        if not found.violations:
            self._take(plan, found)
            return
        if isinstance(answer.objective, int):
            raise PlanRejected(f"{self.backend} on {self.problem}: {listed(found)}")
        self.reasons += (
            f"the plan of {self.backend}, which computes to {float(TOLERANCE)}, "
            f"breaks a rule: {listed(found)}",
        )

    def _best(self, one: Objective | None, two: Objective | None) -> Objective | None:
        there = [value for value in (one, two) if value is not None]
        return (min if self.minimise else max)(there, default=None)

    def _bound(self, case: object, bound: float | None, span: Span) -> Objective | None:
        if bound is None:
            return None
        return self._valued(case, _weaker(bound, span, minimise=self.minimise))

    def _valued(self, case: object, value: Fraction) -> Objective:
        """The best objective of the problem where the statement's is `value`."""
        if hasattr(self.statement, "bound"):
            reached: Objective = self.statement.bound(case, value)
            return reached
        return math.ceil(value) if self.minimise else math.floor(value)

    def result(self) -> Result:
        """Return what is known."""
        bound = self._proved()
        self.bound = None if bound is None else Bound(bound, self.source)
        self.stop = next((s for s in self.stops if s is not Stop.PROVED), Stop.GAP)
        if self.doubted and not (self.infeasible() or self.closed()):
            self.reasons += (
                f"{self.backend} computes in floats: sums near {self.doubted:.0e} "
                f"prove nothing there; use {EXACT} or the exact method",
            )
        return super().result()

    def method(self) -> Method:
        """The statement, and the solver that it ran on."""
        most = getattr(self.solver, "MOST_THREADS", self.limits.threads)
        return replace(
            super().method(),
            name=self.formulation,
            formulation=self.formulation,
            version=self.solver.version(),
            threads=min(self.limits.threads, most),
        )

    def parts(self) -> dict[str, float]:
        """Return the seconds of the building, and of all else, as solver and judge."""
        build = self.spent["build"]
        return {"build": build, "solve": self.wall_s() - build}

    def infeasible(self) -> bool:
        """Return whether every case has ended without a plan."""
        return self.refuted == len(self.bounds) == self.asked

    def _unfinished(self) -> tuple[str, ...]:
        return ()  # `stop` says it

    def _proved(self) -> Objective | None:
        """The bound of the problem: that of its most promising case."""
        there = [bound for bound in self.bounds if bound is not None]
        if len(there) + self.refuted < self.asked:
            return None
        return (min if self.minimise else max)(there, default=None)


def _exactly_carried(problem: str, formulation: str) -> str | None:
    """The statement itself where CP-SAT carries it, or another of the problem."""
    known = [formulation, *registry.entries_for("formulations", problem)]
    for name in known:
        statement = entries.statement(name)
        if EXACT in getattr(statement, "backends", (EXACT,)):
            return name
    return None


def _trusted(span: Span) -> bool:
    """Return whether floats tell apart the sums of a model, which are whole numbers."""
    return span.row * TOLERANCE < 1


def _weaker(value: float, span: Span, *, minimise: bool) -> Fraction:
    """A solver's bound, less its tolerance; integers come from exact arithmetic."""
    if isinstance(value, int):
        return Fraction(value)
    exactly = Fraction(value)
    slack = max(
        TOLERANCE * max(Fraction(1), abs(exactly)), COSTS * Fraction(span.objective)
    )
    return exactly - slack if minimise else exactly + slack
