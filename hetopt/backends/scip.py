"""SCIP, through PySCIPOpt: mixed-integer linear and nonconvex quadratic statements.

Computes in floats, with tolerances near 1e-6. One thread, whatever `limits.threads`.
"""

import math
from collections.abc import Hashable, Iterable, Iterator
from contextlib import suppress
from importlib.metadata import version as installed

from .. import modelling
from ..errors import SolverFailed
from ..modelling import Answer, Constraint, Expression, Library, Limits
from ..result import Status, Stop
from . import _running
from ._running import REFUTED, SEEDS, Relay, Report, Term, reached, run, span

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
    """Return the versions of SCIP itself, and of its Python interface."""
    scip = _solver()
    return f"{scip.Model().version()} (PySCIPOpt {installed('pyscipopt')})"


def _solver() -> Library:
    return _running.solver_module("pyscipopt", "scip", "pyscipopt")


class Model(_running.Model):
    """`hetopt.modelling.Model` on SCIP; `native` is a `pyscipopt.Model`."""

    def __init__(self, name: str) -> None:
        super().__init__(name)
        self._scip = _solver()
        self.native: Library = self._scip.Model(name)
        self.native.hideOutput()
        self._bounded = True
        self._hints: list[tuple[Expression, int]] = []

    def binary(self, name: str) -> Expression:
        return self._keep(name, self.native.addVar(name, vtype="B"))

    def integer(self, name: str, low: int, high: int) -> Expression:
        return self._keep(name, self.native.addVar(name, vtype="I", lb=low, ub=high))

    def real(self, name: str, low: float, high: float) -> Expression:
        self._bounded &= max(abs(low), abs(high)) < NOTHING
        return self._keep(name, self.native.addVar(name, vtype="C", lb=low, ub=high))

    def _sum(self, terms: Iterable[Expression]) -> Expression:
        return self._scip.quicksum(terms)

    def _state(self, family: str, index: Hashable, constraint: Constraint) -> None:
        if constraint is True:
            return
        if constraint is False:
            constraint = self._scip.quicksum([]) >= 1
        sides = (constraint._lhs, constraint._rhs)
        self.span.row = max(self.span.row, span(_terms(constraint.expr), *sides))
        self.native.addCons(constraint, name=f"{family}[{index}]")

    def minimise(self, expression: Expression) -> None:
        self._objective(expression + 0, "minimize")

    def maximise(self, expression: Expression) -> None:
        self._objective(expression + 0, "maximize")

    def _objective(self, expression: Expression, sense: str) -> None:
        self.span.objective = span(_terms(expression))
        self.native.setObjective(expression, sense)

    def hint(self, variable: Expression, value: int) -> None:
        self._hints.append((variable, value))

    def solve(self, limits: Limits, report: Report) -> Answer:
        _running.refuse_work("scip", limits)
        scip = self.native
        self._set(limits)
        self._offer_hints()
        relay = Relay(report, self._interrupt)
        follower = _follower(self._scip, relay)
        scip.includeEventhdlr(follower, "follower", "tells incumbents and bounds")
        interrupted = run(self._optimise, self._interrupt)
        relay.raise_again()
        return self._answer(interrupted=interrupted)

    def _optimise(self) -> None:
        try:
            self.native.optimizeNogil()
        except Exception as error:
            if not str(error).startswith("SCIP"):  # of no class of its own
                raise
            raise SolverFailed(
                f"SCIP failed on model {self.name!r}: {error}; back end cpsat computes "
                "exactly"
            ) from None

    def _interrupt(self) -> None:
        # Between presolving and search SCIP refuses, by an exception of no class of its
        # own, and would have ended without the incumbent; whoever asks will ask again.
        with suppress(Exception):
            self.native.interruptSolve()

    def _set(self, limits: Limits) -> None:
        # Signals are handled on our side, so that SIGTERM can be treated alike.
        self.native.setParam("misc/catchctrlc", False)
        self.native.setParam("randomization/randomseedshift", limits.seed % SEEDS)
        if limits.time_s is not None:
            self.native.setParam("limits/time", max(0.0, limits.time_s))
        if (target := _running.relative_gap(limits)) is not None:
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

    def _answer(self, *, interrupted: bool) -> Answer:
        scip, said = self.native, self.native.getStatus()
        if said == "inforunbd" and self._bounded:
            said = "infeasible"
        if said not in _STOPS:
            raise SolverFailed(
                f"SCIP ended model {self.name!r} with status {said!r}: expected one of "
                f"{', '.join(_STOPS)}; bound every variable of the statement"
            )
        if said == "infeasible":
            return REFUTED
        ended = interrupted and said != "optimal"
        stop = Stop.INTERRUPTED if ended else _STOPS[said]
        bound = _finite(scip.getDualbound())
        if not scip.getNSols():
            return Answer(Status.UNDECIDED, stop, bound=bound)
        best = scip.getBestSol()
        worth = _finite(scip.getSolObjVal(best))
        return reached(stop, worth, bound, lambda term: self._value(best, term))

    def _value(self, solution: Library, expression: Expression) -> float:
        value = float(solution[expression])
        if isinstance(expression, self._scip.Variable):
            whole = expression.vtype() != "CONTINUOUS"
            return round(value) if whole else value
        return value


def _terms(polynomial: Expression) -> Iterator[Term]:
    """Yield the terms; a product of variables has the range of their bounds."""
    for term, factor in polynomial.terms.items():
        low = high = 1.0
        for variable in term.vartuple:
            ends = (variable.getLbOriginal(), variable.getUbOriginal())
            corners = [one * two for one in (low, high) for two in ends]
            low, high = min(corners), max(corners)
        yield factor, low, high


def _finite(value: float) -> float | None:
    return value if math.isfinite(value) and abs(value) < NOTHING else None


def _follower(scip: Library, relay: Relay) -> Library:
    """An event handler that passes on incumbents and bounds."""
    events = scip.SCIP_EVENTTYPE.BESTSOLFOUND | scip.SCIP_EVENTTYPE.NODESOLVED

    class Follower(scip.Eventhdlr):  # type: ignore[misc]
        def eventinit(self) -> None:
            self.model.catchEvent(events, self)

        def eventexit(self) -> None:
            self.model.dropEvent(events, self)

        def eventexec(self, event: Library) -> None:
            relay(
                _finite(self.model.getPrimalbound()), _finite(self.model.getDualbound())
            )

    return Follower()
