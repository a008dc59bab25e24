"""Other solvers that PuLP finds on the machine, asked for as `pulp:NAME`.

HiGHS, Gurobi, GLPK and the like, by PuLP's own names. A gap of 0 is asked for: some
stop at 1e-4 otherwise and call that optimal. Where a solver cannot be asked, its
optimum is taken for a plan without proof. A Ctrl-C ends only what heeds it.
"""

import inspect
import math
import time
from dataclasses import replace
from typing import Any

from ..errors import SolverFailed, Unsupported
from ..modelling import Answer, Limits
from . import pulp
from ._running import Report, relative_gap

EXACT = {"GLPK_CMD"}  # cannot be asked for a gap, and stops at none
WHOLE_SECONDS = {"GLPK_CMD"}
OURS = {"PULP_CBC_CMD", "COIN_CMD"}  # CBC is what `pulp` by itself means


def found() -> list[str]:
    """PuLP's names of the solvers that it finds here, CBC left out."""
    library = pulp._library()
    return sorted(set(library.listSolvers(onlyAvailable=True)) - OURS)


class Model(pulp.Model):
    """A model that PuLP hands to the solver of that name."""

    def __init__(self, name: str, solver: str) -> None:
        super().__init__(name)
        self._solver = solver
        if solver not in (there := found()):
            raise Unsupported(
                f"back end pulp:{solver}: PuLP finds no such solver here, expected one "
                f"of {', '.join(there) or 'none'}; install it, or use pulp for CBC"
            )

    def solve(self, limits: Limits, report: Report) -> Answer:
        start = time.monotonic()
        if limits.memory_mib is not None:
            raise Unsupported(
                f"back end pulp:{self._solver} has no memory limit; leave memory_mib "
                "out, or use scip or cpsat"
            )
        options, exact = self._options(limits)
        try:
            solver = self._pulp.getSolver(self._solver, **options)
            self.native.solve(solver)
        except self._pulp.PulpSolverError as error:
            raise SolverFailed(
                f"{self._solver} failed on model {self.name!r}: {error}"
            ) from error
        if not exact and limits.gap is None:
            limits = replace(limits, gap=0.0)  # what it calls optimal proves nothing
        said = self.native.sol_status
        return self._answer(said, limits, False, time.monotonic() - start)

    def _options(self, limits: Limits) -> tuple[dict[str, Any], bool]:
        """What the solver can be asked, and whether its optimum is a proof."""
        able = inspect.signature(getattr(self._pulp, self._solver)).parameters
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
