"""The model on MathOpt, and the words of HiGHS's log and answer.

Computes in floats, with tolerances near 1e-6. One thread is repeatable.
"""

import math
import re
import sys
import threading
import time
from collections.abc import Hashable, Iterable, Iterator
from contextlib import suppress
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING

from ...errors import SolverFailed, Unsupported
from ...modelling import Answer, Constraint, Expression, Library, Limits, Value
from ...result import Status, Stop
from .. import _running
from .._running import (
    REFUTED,
    SEEDS,
    Relay,
    Report,
    Term,
    near,
    reached,
    relative_gap,
    run,
    span,
)
from .server import Server, server

if TYPE_CHECKING:
    from .child import Answered, Asked, Failed

PATIENCE_S = 5.0  # after its time limit, for HiGHS to end
NOTHING = 1e20  # HiGHS's infinity: no bound, no incumbent
FACTORS = 1e15  # from here on it refuses a model, and does not say why

# A row of the log: source, nodes, open, leaves, explored, bound, incumbent, gap.
_ROW = re.compile(r".?.?\s+\d+\s+\d+\s+\d+\s+[\d.]+%\s+(\S+)\s+(\S+)\s+\S+\s")
_STOPS = {"TIME": Stop.TIME, "MEMORY": Stop.MEMORY}


def mathopt() -> Library:
    """MathOpt itself; `BackendMissing` without OR-Tools."""
    return _running.solver_module("ortools.math_opt.python.mathopt", "highs", "ortools")


class Model(_running.Model):
    """`hetopt.modelling.Model` on HiGHS; `native` is a MathOpt `Model`."""

    def __init__(self, name: str) -> None:
        super().__init__(name)
        self._mathopt = mathopt()
        self.native: Library = self._mathopt.Model()
        self._hints: dict[int, int] = {}
        self._listed: list[Library] = []

    def binary(self, name: str) -> Expression:
        return self.integer(name, 0, 1)

    def integer(self, name: str, low: int, high: int) -> Expression:
        return self._variable(name, low, high, integer=True)

    def real(self, name: str, low: float, high: float) -> Expression:
        return self._variable(name, low, high, integer=False)

    def _variable(
        self, name: str, low: float, high: float, *, integer: bool
    ) -> Expression:
        # Names in HiGHS's files end at a space.
        plain = f"x{len(self._listed)}"
        variable = self.native.add_variable(
            lb=float(low), ub=float(high), is_integer=integer, name=plain
        )
        self._listed.append(variable)
        return self._keep(name, variable)

    def _sum(self, terms: Iterable[Expression]) -> Expression:
        return self._mathopt.fast_sum(terms)

    def _state(self, family: str, index: Hashable, constraint: Constraint) -> None:
        if constraint is True:
            return
        if constraint is False:
            constraint = self.total([]) >= 1
        row = self.native.add_linear_constraint(constraint)
        sides = (_known(row.lower_bound), _known(row.upper_bound))
        terms = list(_terms(row.terms()))
        self._refuse_large(family, terms)
        self.span.row = max(self.span.row, span(terms, *sides))

    def _refuse_large(self, family: str, terms: list[Term]) -> None:
        largest = max((abs(factor) for factor, _, _ in terms), default=0.0)
        if largest >= FACTORS:
            raise Unsupported(
                f"HiGHS takes factors below {FACTORS:g}, row {family!r} of model "
                f"{self.name!r} has {largest:g}: use back end cpsat, scip or pulp"
            )

    def minimise(self, expression: Expression) -> None:
        self.native.minimize_linear_objective(expression)
        self._measure()

    def maximise(self, expression: Expression) -> None:
        self.native.maximize_linear_objective(expression)
        self._measure()

    def _measure(self) -> None:
        self.span.objective = span(_terms(self.native.objective.linear_terms()))

    def hint(self, variable: Expression, value: int) -> None:
        self._hints[variable.id] = value

    def solve(self, limits: Limits, report: Report) -> Answer:
        _running.refuse_work("highs", limits)
        if limits.memory_mib is not None and sys.platform != "linux":
            raise Unsupported(
                "back end highs has a memory limit on Linux only; leave memory_mib "
                "out, or use scip or cpsat"
            )
        with TemporaryDirectory(prefix="hetopt-highs-") as folder:
            return self._search(limits, report, Path(folder) / "solutions")

    def _search(self, limits: Limits, report: Report, solutions: Path) -> Answer:
        began = time.monotonic()
        content = self.native.export_model().SerializeToString()
        with server(limits.threads) as process:
            log = _Log(Relay(report, process.end))
            told: list[Answered | Failed | None] = []
            spent = time.monotonic() - began
            asked = self._request(limits, spent, solutions)
            with _ending(process, limits, spent):
                interrupted = run(
                    lambda: told.append(process.solve(asked, content, log)),
                    process.end,
                )
        log.relay.raise_again()
        (answer,) = told
        if answer is not None and not _at_memory_limit(answer, limits):
            return self._answer(answer, limits, interrupted=interrupted)
        late = near(limits.time_s, time.monotonic() - began)
        if not (interrupted or late) and limits.memory_mib is None:
            raise SolverFailed(f"HiGHS crashed on model {self.name!r}")
        stop = Stop.TIME if late else Stop.MEMORY
        return self._interrupted_answer(
            Stop.INTERRUPTED if interrupted else stop, log, solutions
        )

    def _request(self, limits: Limits, spent: float, solutions: Path) -> "Asked":
        gap = relative_gap(limits)
        seconds = limits.time_s
        return {
            "time_s": None if seconds is None else max(0.0, seconds - spent),
            "gap": 0.0 if gap is None else gap,  # it stops at 1e-4 otherwise
            "seed": limits.seed % SEEDS,
            "threads": limits.threads,
            "memory_mib": limits.memory_mib,
            "solutions": str(solutions),
            "hint": self._hints,
        }

    def _answer(
        self, told: "Answered | Failed", limits: Limits, *, interrupted: bool
    ) -> Answer:
        """Return what HiGHS itself says at its end."""
        if "failed" in told:
            raise SolverFailed(
                f"HiGHS failed on model {self.name!r}: {told['failed']}; back end "
                "cpsat computes exactly"
            )
        reason, values = told["reason"], told["values"]
        if reason in ("INFEASIBLE", "INFEASIBLE_OR_UNBOUNDED") and self._all_bounded():
            return REFUTED
        bound = _known(told["bound"])
        if reason == "OPTIMAL":
            stop = Stop.PROVED if limits.gap is None else Stop.GAP
        elif reason in ("FEASIBLE", "NO_SOLUTION_FOUND"):
            stop = _STOPS.get(told["limit"] or "", Stop.INTERRUPTED)
        else:
            raise SolverFailed(
                f"HiGHS ended model {self.name!r} as {reason} ({told['detail']}); "
                "bound every variable of the statement"
            )
        if interrupted and stop is not Stop.PROVED:
            stop = Stop.INTERRUPTED
        if values is None:
            return Answer(Status.UNDECIDED, stop, bound=bound)
        return reached(stop, told["objective"], bound, self._reader(values))

    def _interrupted_answer(self, stop: Stop, log: "_Log", solutions: Path) -> Answer:
        """Return what is known of a search that was ended from outside."""
        values = _last(solutions, len(self._listed))
        if values is None:
            return Answer(Status.UNDECIDED, stop, bound=log.bound)
        value = self._reader(values)
        worth = value(self.native.objective.as_linear_expression())
        return reached(stop, worth, log.bound, value)

    def _all_bounded(self) -> bool:
        ends = ((v.lower_bound, v.upper_bound) for v in self._listed)
        return all(max(-low, high) < NOTHING for low, high in ends)

    def _reader(self, values: list[float]) -> Value:
        """Return what reads a variable, or an expression, of a solution."""
        by_variable = dict(zip(self._listed, values, strict=True))

        def value(expression: Expression) -> float:
            if isinstance(expression, self._mathopt.Variable):
                number: float = by_variable[expression]
                return round(number) if expression.integer else number
            return float(self._mathopt.evaluate_expression(expression, by_variable))

        return value


class _Log:
    """Reads HiGHS's log as it comes, and passes on incumbents and bounds."""

    def __init__(self, relay: Relay) -> None:
        self.relay = relay
        self.bound: float | None = None

    def __call__(self, line: str) -> None:
        if row := _ROW.match(line):
            bound, incumbent = map(_number, row.groups())
            self.bound = bound
            self.relay(incumbent, bound)


class _ending:
    """Ends a process that goes on for long after its time."""

    def __init__(self, process: Server, limits: Limits, spent: float) -> None:
        self._timer: threading.Timer | None = None
        if limits.time_s is not None:
            left = max(0.0, limits.time_s - spent) + PATIENCE_S
            self._timer = threading.Timer(left, process.end)
            self._timer.daemon = True

    def __enter__(self) -> None:
        if self._timer:
            self._timer.start()

    def __exit__(self, *_: object) -> None:
        if self._timer:
            self._timer.cancel()


def _terms(terms: Iterable[Expression]) -> Iterator[Term]:
    for term in terms:
        variable = term.variable
        yield term.coefficient, variable.lower_bound, variable.upper_bound


def _at_memory_limit(told: "Answered | Failed", limits: Limits) -> bool:
    """Tell whether HiGHS failed for want of the memory that the limits leave it."""
    short = "failed" in told and told["memory"]
    return short and limits.memory_mib is not None


def _known(value: float) -> float | None:
    return value if math.isfinite(value) and abs(value) < NOTHING else None


def _number(word: str) -> float | None:
    with suppress(ValueError):
        return _known(float(word))
    return None


def _last(solutions: Path, columns: int) -> list[float] | None:
    """The last solution that HiGHS has written in full; None where there is none.

    `# Columns 3`, then a name and a value a line, in the order of the variables.
    """
    with suppress(FileNotFoundError):
        blocks = solutions.read_text(encoding="ascii").split("# Columns")[1:]
        for block in reversed(blocks):
            # What stands before the last end of a line is written in full.
            _, *rows = block[: block.rfind("\n")].split("\n")
            if len(rows) >= columns:
                return [float(row.split()[1]) for row in rows[:columns]]
    return None
