"""CP-SAT, through OR-Tools: integer statements, solved in exact arithmetic.

The objective and the bound of its answers are integers where the objective is.
One thread is repeatable; several are not.
"""

from collections.abc import Hashable, Iterable
from dataclasses import replace
from functools import cached_property
from importlib.metadata import version as installed

from .. import modelling
from ..clock import PER_SECOND, is_counting, spend
from ..errors import SolverFailed, Unsupported
from ..modelling import Answer, Constraint, Expression, Library, Limits
from ..result import Status, Stop
from . import _running
from ._running import REFUTED, SEEDS, Relay, Report, near, reached, relative_gap, run

EXACT = 2**53  # below, a float holds every integer


def backend(name: str = "") -> modelling.Model:
    """A fresh, empty model; `BackendMissing` without OR-Tools."""
    return Model(name)


def version() -> str:
    """Return the version of OR-Tools."""
    _solver()
    return installed("ortools")


def _solver() -> Library:
    return _running.solver_module("ortools.sat.python.cp_model", "cpsat", "ortools")


_MOST = 2**62  # of a variable; sums have a bit more
_LARGE = 2**30  # products of two such, and sums of a few, are within 64 bits


class Model(_running.Model):
    """`hetopt.modelling.Model` on CP-SAT; `native` is a `cp_model.CpModel`.

    Its span stays 0: the arithmetic is exact.
    """

    def __init__(self, name: str) -> None:
        super().__init__(name)
        self._cp = _solver()
        self.native: Library = self._cp.CpModel()
        self.native.name = name

    def binary(self, name: str) -> Expression:
        return self._keep(name, self.native.new_bool_var(name))

    def integer(self, name: str, low: int, high: int) -> Expression:
        if max(-low, high) > _MOST:
            raise Unsupported(
                f"CP-SAT computes in 64 bits, too few for {name!r} of model "
                f"{self.name!r}, which may be {max(-low, high)}: use back end scip or "
                "pulp"
            )
        return self._keep(name, self.native.new_int_var(low, high, name))

    def real(self, name: str, low: float, high: float) -> Expression:
        raise Unsupported(
            f"CP-SAT has no continuous variable ({name!r} of model {self.name!r}): "
            "use back end scip or pulp"
        )

    def _sum(self, terms: Iterable[Expression]) -> Expression:
        return self._cp.LinearExpr.sum(list(terms))

    def _state(self, family: str, index: Hashable, constraint: Constraint) -> None:
        self.native.add(constraint)

    def minimise(self, expression: Expression) -> None:
        self.native.minimize(expression)

    def maximise(self, expression: Expression) -> None:
        self.native.maximize(expression)

    def hint(self, variable: Expression, value: int) -> None:
        self.native.add_hint(variable, value)

    def solve(self, limits: Limits, report: Report) -> Answer:
        solver = self._solver(limits)
        relay = Relay(report, solver.stop_search)
        follower = _Follower(self, solver, relay)
        watcher = _watcher(self._cp, follower)
        said: list[Library] = []
        interrupted = run(
            lambda: said.append(solver.solve(self.native, watcher)), solver.stop_search
        )
        relay.raise_again()
        spend(PER_SECOND * solver.deterministic_time)
        answer = self._answer(solver, said[0], limits, interrupted=interrupted)
        # Stopped before it began, it says 0, which it has not proved.
        unproved = answer.status is Status.UNDECIDED and not follower.heard
        return replace(answer, bound=None) if unproved else answer

    def _solver(self, limits: Limits) -> Library:
        solver = self._cp.CpSolver()
        asked = solver.parameters
        # Signals are handled on our side, so that SIGTERM can be treated alike.
        asked.catch_sigint_signal = False
        asked.num_workers = limits.threads
        asked.random_seed = limits.seed % SEEDS
        if limits.time_s is not None:
            seconds = max(0.0, limits.time_s)
            if is_counting():  # CP-SAT counts its work, too: about a second is 1.0
                asked.max_deterministic_time = seconds
            else:
                asked.max_time_in_seconds = seconds
        if (target := relative_gap(limits)) is not None:
            asked.relative_gap_limit = target
        if limits.memory_mib is not None:
            asked.max_memory_in_mb = limits.memory_mib
        if self._has_large_numbers():
            # Rows that lie within others are subtracted from them, times a factor: in
            # OR-Tools 9.15 optima were lost where that is beyond 64 bits.
            asked.presolve_inclusion_work_limit = 0
        return solver

    def _has_large_numbers(self) -> bool:
        """Return whether factors or variables are too large for products."""
        proto = self.native.proto
        rows = [row.linear for row in proto.constraints if row.has_linear()]
        columns = (variable.domain for variable in proto.variables)
        numbers = [proto.objective.coeffs, *(row.coeffs for row in rows), *columns]
        each = (list(some) for some in numbers)
        return any(max(some) >= _LARGE or min(some) <= -_LARGE for some in each if some)

    def _answer(
        self, solver: Library, said: Library, limits: Limits, *, interrupted: bool
    ) -> Answer:
        # After INFEASIBLE values read 0 and so does the bound: status first.
        if said == self._cp.INFEASIBLE:
            return REFUTED
        if said == self._cp.MODEL_INVALID:
            reason = self.native.validate()
            if "overflow" in reason:
                raise Unsupported(
                    f"CP-SAT holds sums of 64 bits, model {self.name!r} has larger "
                    "ones: use the exact method, or larger units"
                )
            raise SolverFailed(f"CP-SAT refuses model {self.name!r}: {reason}")
        bound = self.whole(solver.best_objective_bound)
        if said == self._cp.UNKNOWN:
            stop = _why(solver, limits, interrupted=interrupted)
            return Answer(Status.UNDECIDED, stop, bound=bound)
        objective = self.whole(solver.objective_value)
        if said != self._cp.OPTIMAL:
            stop = _why(solver, limits, interrupted=interrupted)
        else:  # It says OPTIMAL at the gap limit, too.
            proved = limits.gap is None or objective == bound
            stop = Stop.PROVED if proved else Stop.GAP
        return reached(stop, objective, bound, solver.value)

    def whole(self, value: float) -> float | None:
        """The solver's float as the integer that it is; None beyond its range."""
        if abs(value) > 9e18:
            return None
        return round(value) if self._integral and abs(value) < EXACT else value

    @cached_property
    def _integral(self) -> bool:
        return not self.native.proto.has_floating_point_objective()


def _why(solver: Library, limits: Limits, *, interrupted: bool) -> Stop:
    """Why an unfinished search ended; CP-SAT itself does not say."""
    if interrupted:
        return Stop.INTERRUPTED
    took = solver.deterministic_time if is_counting() else solver.wall_time
    return Stop.TIME if near(limits.time_s, took) else Stop.MEMORY


class _Follower:
    """Passes on every new incumbent and bound."""

    def __init__(self, model: Model, solver: Library, relay: Relay) -> None:
        self._whole, self._relay = model.whole, relay
        self._incumbent: float | None = None
        self.heard = False  # whether there was any bound
        solver.best_bound_callback = self.bound

    def bound(self, value: float) -> None:
        self.heard = True
        self._relay(self._incumbent, self._whole(value))

    def incumbent(self, value: float, bound: float) -> None:
        self._incumbent = self._whole(value)
        self.bound(bound)


def _watcher(cp: Library, follower: _Follower) -> Library:
    class Watcher(cp.CpSolverSolutionCallback):  # type: ignore[misc]
        def on_solution_callback(self) -> None:
            follower.incumbent(self.objective_value, self.best_objective_bound)

    return Watcher()
