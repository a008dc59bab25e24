"""SCIP, through PySCIPOpt: mixed-integer linear and nonconvex quadratic statements.

Computes in floats, with tolerances near 1e-6. One thread, whatever `limits.threads`.
"""

import math
import time
from collections.abc import Iterable, Iterator
from importlib.metadata import version as installed
from typing import Any

from .. import modelling
from ..errors import BackendMissing, SolverFailed
from ..modelling import Answer, Limits, Span
from ..result import Status, Stop
from ._running import Relay, Report, Term, relative_gap, run, span

MOST_THREADS = 1
NOTHING = 1e20  # SCIP's infinity: no bound, no incumbent

_STOPS = {
    "optimal": Stop.PROVED,
    "infeasible": Stop.PROVED,
    "timelimit": Stop.TIME,
    "gaplimit": Stop.GAP,
    "memlimit": Stop.MEMORY,
    "userinterrupt": Stop.INTERRUPTED,
}


def backend(name: str = "") -> modelling.Model:
    """A fresh, empty model; `BackendMissing` without PySCIPOpt."""
    return Model(name)


def version() -> str:
    """Of SCIP itself, and of its Python interface."""
    scip = _library()
    return f"{scip.Model().version()} (PySCIPOpt {installed('pyscipopt')})"


def _library() -> Any:
    try:
        import pyscipopt
    except ImportError as error:
        raise BackendMissing("scip", "pyscipopt") from error
    return pyscipopt


class Model(modelling.Model):
    """`hetopt.modelling.Model` on SCIP; `native` is a `pyscipopt.Model`."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.variables: dict[str, Any] = {}
        self.span = Span()
        self._scip = _library()
        self.native: Any = self._scip.Model(name)
        self.native.hideOutput()
        self._bounded = True
        self._hints: list[tuple[Any, int]] = []

    def binary(self, name: str) -> Any:
        return self._keep(name, self.native.addVar(name, vtype="B"))

    def integer(self, name: str, low: int, high: int) -> Any:
        return self._keep(name, self.native.addVar(name, vtype="I", lb=low, ub=high))

    def real(self, name: str, low: float, high: float) -> Any:
        self._bounded &= max(abs(low), abs(high)) < NOTHING
        return self._keep(name, self.native.addVar(name, vtype="C", lb=low, ub=high))

    def _keep(self, name: str, variable: Any) -> Any:
        self.variables[name] = variable
        return variable

    def total(self, terms: Iterable[Any]) -> Any:
        return self._scip.quicksum(terms)

    def add(self, family: str, index: Any, constraint: Any) -> None:
        if constraint is True:
            return
        if constraint is False:
            constraint = self._scip.quicksum([]) >= 1
        sides = (constraint._lhs, constraint._rhs)
        self.span.row = max(self.span.row, span(_terms(constraint.expr), *sides))
        self.native.addCons(constraint, name=f"{family}[{index}]")

    def minimise(self, expression: Any) -> None:
        self.span.objective = span(_terms(expression + 0))
        self.native.setObjective(expression + 0, "minimize")

    def maximise(self, expression: Any) -> None:
        self.span.objective = span(_terms(expression + 0))
        self.native.setObjective(expression + 0, "maximize")

    def hint(self, variable: Any, value: int) -> None:
        self._hints.append((variable, value))

    def solve(self, limits: Limits, report: Report) -> Answer:
        start = time.monotonic()
        scip = self.native
        self._set(limits)
        self._offer_hints()
        relay = Relay(report, scip.interruptSolve)
        follower = _follower(self._scip, relay)
        scip.includeEventhdlr(follower, "follower", "tells incumbents and bounds")
        interrupted = run(scip.optimizeNogil, scip.interruptSolve)
        relay.raise_again()
        seconds = time.monotonic() - start
        return self._answer(interrupted, seconds)

    def _set(self, limits: Limits) -> None:
        # Signals are handled on our side, so that SIGTERM can be treated alike.
        self.native.setParam("misc/catchctrlc", False)
        shift = limits.seed % (2**31 - 1)
        self.native.setParam("randomization/randomseedshift", shift)
        if limits.time_s is not None:
            self.native.setParam("limits/time", max(0.0, limits.time_s))
        if (target := relative_gap(limits)) is not None:
            self.native.setParam("limits/gap", target)
        if limits.memory_mib is not None:
            self.native.setParam("limits/memory", limits.memory_mib * 2**20 / 1e6)

    def _offer_hints(self) -> None:
        if not self._hints:
            return
        partial = self.native.createPartialSol()
        for variable, value in self._hints:
            self.native.setSolVal(partial, variable, value)
        self.native.addSol(partial)

    def _answer(self, interrupted: bool, seconds: float) -> Answer:
        scip, said = self.native, self.native.getStatus()
        if said == "inforunbd" and self._bounded:
            said = "infeasible"
        if said not in _STOPS:
            raise SolverFailed(
                f"SCIP ended model {self.name!r} with status {said!r}: expected one of "
                f"{', '.join(_STOPS)}; bound every variable of the statement"
            )
        stop = Stop.INTERRUPTED if interrupted else _STOPS[said]
        if said == "infeasible":
            return Answer(Status.INFEASIBLE, Stop.PROVED, None, None, None, seconds)
        bound = _known(scip.getDualbound())
        if not scip.getNSols():
            return Answer(Status.UNDECIDED, stop, None, bound, None, seconds)
        best = scip.getBestSol()
        proved = said == "optimal"
        return Answer(
            status=Status.OPTIMAL if proved else Status.FEASIBLE,
            stop=Stop.PROVED if proved else stop,
            objective=_known(scip.getSolObjVal(best)),
            bound=bound,
            value=lambda expression: self._value(best, expression),
            seconds=seconds,
        )

    def _value(self, solution: Any, expression: Any) -> float:
        value = float(solution[expression])
        if isinstance(expression, self._scip.Variable):
            whole = expression.vtype() != "CONTINUOUS"
            return round(value) if whole else value
        return value


def _terms(polynomial: Any) -> Iterator[Term]:
    """Its terms; the range of a product of variables is that of their bounds'."""
    for term, factor in polynomial.terms.items():
        low = high = 1.0
        for variable in term.vartuple:
            ends = (variable.getLbOriginal(), variable.getUbOriginal())
            corners = [one * two for one in (low, high) for two in ends]
            low, high = min(corners), max(corners)
        yield factor, low, high


def _known(value: float) -> float | None:
    return value if math.isfinite(value) and abs(value) < NOTHING else None


def _follower(scip: Any, relay: Relay) -> Any:
    """An event handler that passes on incumbents and bounds."""
    events = scip.SCIP_EVENTTYPE.BESTSOLFOUND | scip.SCIP_EVENTTYPE.NODESOLVED

    class Follower(scip.Eventhdlr):  # type: ignore[misc]
        def eventinit(self) -> None:
            self.model.catchEvent(events, self)

        def eventexit(self) -> None:
            self.model.dropEvent(events, self)

        def eventexec(self, event: Any) -> None:
            relay(
                _known(self.model.getPrimalbound()), _known(self.model.getDualbound())
            )

    return Follower()
