"""Other solvers that PuLP finds on the machine, asked for as `pulp:NAME`.

HiGHS, Gurobi, GLPK and the like, by PuLP's own names, each in a process of its own
(`child` says why). A gap of 0 is asked for: some stop at 1e-4 otherwise and call
that optimal. Where a solver cannot be asked, its optimum is taken for a plan without
proof; so is one that comes when the time is up, since PuLP reads what GLPK has by then
as optimal, and says nothing of infeasible.
"""

import inspect
import json
import math
import subprocess
import sys
import time
from contextlib import suppress
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING

from ...errors import SolverFailed, Unsupported
from ...modelling import Limits
from .._running import near, relative_gap
from . import cbc

if TYPE_CHECKING:
    from .child import Answered, Failed

EXACT = {"GLPK_CMD"}  # cannot be asked for a gap, and stops at none
WHOLE_SECONDS = {"GLPK_CMD"}
HIGHS = {"HiGHS"}  # hides its options behind keywords where OR-Tools is loaded too
OURS = {"PULP_CBC_CMD", "COIN_CMD"}  # CBC is what `pulp` by itself means
PATIENCE_S = 30.0  # after its time limit, for a solver to end

# Without the script's folder on the path, where our own `pulp` would be found first.
CHILD = [sys.executable, "-P", str(Path(__file__).with_name("child.py"))]


@cache
def found() -> tuple[str, ...]:
    """PuLP's names of the solvers that it finds here, CBC left out."""
    cbc.pulp_module()  # `BackendMissing` without it
    told = subprocess.run(CHILD, capture_output=True, text=True, check=False)
    if told.returncode:
        raise SolverFailed(f"PuLP does not list its solvers: {told.stderr[-300:]}")
    return tuple(sorted(set(told.stdout.split()) - OURS))


class Model(cbc.Model):
    """A model that PuLP hands to the solver of that name."""

    def __init__(self, name: str, solver: str) -> None:
        super().__init__(name)
        self._solver, self._called = solver, f"pulp:{solver}"
        if solver not in (there := found()):
            raise Unsupported(
                f"back end pulp:{solver}: PuLP finds no such solver here, expected one "
                f"of {', '.join(there) or 'none'}; install it, or use pulp for CBC"
            )

    def _run(self, folder: Path, limits: Limits) -> tuple[int, bool]:
        """PuLP's status of the solution, and whether an interrupt ended the run."""
        options, exact = self._options(limits)
        begun = time.monotonic()
        said, interrupted = self._child(folder, options, limits)
        late = near(limits.time_s, time.monotonic() - begun)
        self._proves = exact and not late
        if late and said == self._pulp.LpSolutionInfeasible:
            said = int(self._pulp.LpSolutionNoSolutionFound)
        return said, interrupted

    def _options(self, limits: Limits) -> tuple[dict[str, float], bool]:
        """Return what the solver can be asked, and whether its optimum is a proof."""
        able = {"msg", "timeLimit", "gapRel", "threads"}
        if self._solver not in HIGHS:
            able &= {*inspect.signature(getattr(self._pulp, self._solver)).parameters}
        gap, seconds = relative_gap(limits), limits.time_s
        if seconds is not None and self._solver in WHOLE_SECONDS:
            seconds = math.ceil(seconds)
        wanted = {
            "msg": False,
            "timeLimit": seconds,
            "gapRel": 0.0 if gap is None else gap,
            "threads": limits.threads,
        }
        options = {k: v for k, v in wanted.items() if k in able and v is not None}
        return options, "gapRel" in able or self._solver in EXACT

    def _child(
        self, folder: Path, options: dict[str, float], limits: Limits
    ) -> tuple[int, bool]:
        """Solve in a child process, with options as the solver has them."""
        asked = {"solver": self._solver, "options": options}
        (folder / "asked.json").write_text(json.dumps(asked), encoding="utf-8")
        self.native.writeMPS(str(folder / "model.mps"))
        patience = None if limits.time_s is None else limits.time_s + PATIENCE_S
        interrupted, said = False, ""
        try:
            told = subprocess.run(
                [*CHILD, str(folder)],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.PIPE,
                timeout=patience,
                check=False,
            )
            said = told.stderr.decode("utf-8", "replace")[-300:]
        except KeyboardInterrupt:
            interrupted = True
        except subprocess.TimeoutExpired:
            return int(self._pulp.LpSolutionNoSolutionFound), False
        answer: Answered | Failed = {"failed": said}
        with suppress(FileNotFoundError):
            answer = json.loads((folder / "answer.json").read_text(encoding="utf-8"))
        if interrupted:
            return int(self._pulp.LpSolutionNoSolutionFound), True
        if "failed" in answer:
            raise SolverFailed(
                f"{self._solver} failed on model {self.name!r}: {answer['failed']}"
            )
        self.native.assignVarsVals(
            {
                name: value
                for name, value in answer["values"].items()
                if value is not None
            }
        )
        return int(answer["said"]), False
