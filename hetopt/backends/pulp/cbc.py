"""CBC, through PuLP: mixed-integer linear statements.

Computes in floats, with tolerances near 1e-6. It exposes no bound: none unless it
proved optimality without a gap target, and no progress. One thread is repeatable.
"""

import os
import re
import signal
import subprocess
import time
from collections.abc import Hashable, Iterable, Iterator
from contextlib import suppress
from pathlib import Path
from tempfile import TemporaryDirectory

from ...errors import SolverFailed, Unsupported
from ...modelling import Answer, Constraint, Expression, Library, Limits
from ...result import Status, Stop
from .. import _running
from .._running import REFUTED, Report, Term, near, reached, relative_gap, span

PATIENCE_S = 10.0  # for CBC to write its incumbent after an interrupt


def pulp_module() -> Library:
    """PuLP itself; `BackendMissing` without it."""
    with suppress(ImportError):
        # `import pulp` loads highspy where it is installed, after which OR-Tools can
        # no longer be loaded in the process; the other way round both can.
        import ortools.sat.python.cp_model  # noqa: F401
    return _running.solver_module("pulp", "pulp", "'pulp>=3.3,<4'")


class Model(_running.Model):
    """`hetopt.modelling.Model` on PuLP; `native` is a `pulp.LpProblem`."""

    _called = "pulp: CBC"
    _proves = True  # whether what the solver calls optimal is a proof

    def __init__(self, name: str) -> None:
        super().__init__(name)
        self._pulp = pulp_module()
        self.native: Library = self._pulp.LpProblem("statement", self._pulp.LpMinimize)
        self._sign = 1
        self._hinted = False

    def binary(self, name: str) -> Expression:
        return self._variable(name, 0, 1, "Integer")

    def integer(self, name: str, low: int, high: int) -> Expression:
        return self._variable(name, low, high, "Integer")

    def real(self, name: str, low: float, high: float) -> Expression:
        return self._variable(name, low, high, "Continuous")

    def _variable(self, name: str, low: float, high: float, kind: str) -> Expression:
        # PuLP folds brackets and signs to "_", so that names could collide.
        plain = f"x{len(self.variables)}"
        return self._keep(name, self.native.add_variable(plain, low, high, kind))

    def _sum(self, terms: Iterable[Expression]) -> Expression:
        return self._pulp.lpSum(terms)

    def _state(self, family: str, index: Hashable, constraint: Constraint) -> None:
        if constraint is True:
            return
        if constraint is False or not len(constraint):
            self._constant(constraint)
            return
        side, sense = -constraint.constant, constraint.sense
        least = None if sense == self._pulp.LpConstraintLE else side
        most = None if sense == self._pulp.LpConstraintGE else side
        self.span.row = max(self.span.row, span(_terms(constraint), least, most))
        self.native.addConstraint(constraint)

    def _constant(self, constraint: Constraint) -> None:
        """A constraint without variables: true says nothing, false is infeasible."""
        if constraint is not False and constraint.valid():
            return
        never = self._variable(f"never[{len(self.variables)}]", 0, 0, "Integer")
        self.native.addConstraint(never >= 1)

    def minimise(self, expression: Expression) -> None:
        self._sign = 1
        self._objective(self._pulp.lpSum([expression]))

    def maximise(self, expression: Expression) -> None:
        self._sign = -1
        self._objective(self._pulp.lpSum([-1 * expression]))

    def _objective(self, minimised: Expression) -> None:
        self.span.objective = span(_terms(minimised))
        self.native.setObjective(minimised)

    def hint(self, variable: Expression, value: int) -> None:
        self._hinted = True
        variable.setInitialValue(value)

    def write(self, path: Path) -> bool:
        """Write an `.lp` or `.mps` file that minimises, with the statement's names.

        Whether what it minimises is the negative of what the statement maximises.
        """
        taken: set[str] = set()
        for name, variable in self.variables.items():
            # Both formats forbid brackets, and LP reads "e1" as a number's end.
            plain = "v_" + re.sub(r"[^A-Za-z0-9]+", "_", name).strip("_")[:80]
            while plain in taken:
                plain += "_"
            taken.add(plain)
            variable.name = plain
        if path.suffix == ".mps":
            self.native.writeMPS(str(path))
        else:
            self.native.writeLP(str(path))
        return self._sign < 0

    def solve(self, limits: Limits, report: Report) -> Answer:
        _running.refuse_work(self._called, limits)
        if limits.memory_mib is not None:
            raise Unsupported(
                f"back end {self._called} has no memory limit; leave memory_mib out, "
                "or use scip or cpsat"
            )
        with TemporaryDirectory(prefix="hetopt-pulp-") as folder:
            said, interrupted = self._run(Path(folder), limits)
        return self._answer(said, limits, interrupted=interrupted)

    def _run(self, folder: Path, limits: Limits) -> tuple[int, bool]:
        """PuLP's status of the solution, and whether an interrupt ended the run.

        CBC is run from here and not by `LpProblem.solve`, which would leave it running
        after an interrupt, without its incumbent.
        """
        solver = self._pulp.COIN_CMD(msg=False)
        problem, found = folder / "statement.mps", folder / "statement.sol"
        listed, columns, rows, _ = self.native.writeMPS(str(problem), rename=1)
        command = [self._pulp.PULP_CBC_CMD.pulp_cbc_path, str(problem)]
        if self._hinted:
            start = folder / "statement.mst"
            solver.writesol(str(start), self.native, listed, columns, rows)
            command += ["-mips", str(start)]
        command += [*_options(limits), "-solve", "-printingOptions", "all"]
        command += ["-solution", str(found)]
        began = time.monotonic()
        interrupted, exit_code = _wait(command)
        # At its time limit CBC may crash, or call infeasible what it did not finish.
        late = near(limits.time_s, time.monotonic() - began)
        if exit_code and not (interrupted or late):
            raise SolverFailed(
                f"CBC failed on model {self.name!r}: exit code {exit_code}"
            )
        if not found.exists() or (exit_code and not interrupted):
            return int(self._pulp.LpSolutionNoSolutionFound), interrupted
        status, values, _, _, _, said = solver.readsol_MPS(
            str(found), self.native, listed, columns, rows
        )
        self.native.assignVarsVals(values)
        if status == self._pulp.LpStatusInfeasible:  # said only of the relaxation
            said = self._pulp.LpSolutionInfeasible
        if said == self._pulp.LpSolutionInfeasible and (interrupted or late):
            said = self._pulp.LpSolutionNoSolutionFound
        return int(said), interrupted

    def _answer(self, said: int, limits: Limits, *, interrupted: bool) -> Answer:
        pulp = self._pulp
        stop = Stop.INTERRUPTED if interrupted else Stop.TIME
        if said == pulp.LpSolutionInfeasible:
            return REFUTED
        if said == pulp.LpSolutionNoSolutionFound:
            if not interrupted and limits.time_s is None:
                raise SolverFailed(f"CBC gave up on model {self.name!r} without a word")
            return Answer(Status.UNDECIDED, stop)
        if said not in (pulp.LpSolutionOptimal, pulp.LpSolutionIntegerFeasible):
            raise SolverFailed(
                f"CBC ended model {self.name!r} as "
                f"{pulp.LpSolution.get(said, said)!r}; bound every variable"
            )
        if said == pulp.LpSolutionOptimal:
            proved = self._proves and limits.gap is None
            stop = Stop.PROVED if proved else Stop.GAP
        worth: Expression = self.native.objective
        # PuLP puts a variable of its own, without a value, into a constant objective.
        constant = set(worth) <= {self.native.dummyVar}
        value = worth.constant if constant else pulp.value(worth)
        objective = self._sign * float(value)
        bound = objective if stop is Stop.PROVED else None
        return reached(stop, objective, bound, self._value)

    def _value(self, expression: Expression) -> float:
        value = float(self._pulp.value(expression))
        if isinstance(expression, self._pulp.LpVariable):
            return round(value) if expression.cat == "Integer" else value
        return value


def _terms(expression: Expression) -> Iterator[Term]:
    for variable, factor in expression.items():
        yield factor, variable.lowBound, variable.upBound


def _options(limits: Limits) -> list[str]:
    seed = str(1 + limits.seed % (2**31 - 2))  # 0 would mean the time of day
    options = ["-randomSeed", seed, "-randomCbcSeed", seed, "-timeMode", "elapsed"]
    if limits.threads > 1:
        options += ["-threads", str(limits.threads)]
    if limits.time_s is not None:
        options += ["-sec", str(max(0.01, limits.time_s))]
    if (target := relative_gap(limits)) is not None:
        options += ["-ratio", str(target)]
    return options


def _wait(command: list[str]) -> tuple[bool, int]:
    """Run CBC; whether an interrupt ended it, and its exit code."""
    interrupted = False
    # A session of its own: a Ctrl-C of the terminal comes through us, once.
    with subprocess.Popen(
        command,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        start_new_session=os.name == "posix",
    ) as cbc:
        try:
            cbc.wait()
        except KeyboardInterrupt:
            interrupted = True
            cbc.send_signal(signal.SIGINT)
            try:
                cbc.wait(PATIENCE_S)
            except (subprocess.TimeoutExpired, KeyboardInterrupt):
                cbc.kill()
    return interrupted, cbc.returncode
