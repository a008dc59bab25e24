"""Exact scheduling rounds: a dynamic program over GPUs, or counts proved by CP-SAT.

Jobs of a class and nodes of a kind are interchangeable. Where GPUs alone are short and
few enough, the best assignments of all numbers of GPUs are computed (`left`).
Otherwise the statement by counts has one integer for a class and configuration,
whatever the number of jobs; costs are integers and CP-SAT's arithmetic is exact, so
its bound is a proof.
"""

from collections.abc import Callable
from dataclasses import replace

from ...modelling import Limits
from ...plans import Round
from ...problems import Objective
from ...problems.job_round import Data
from ...result import Result
from ...solving import statements
from ...solving.run import Run
from . import left

problem = "job_round"


def solve(
    data: Data,
    *,
    limits: Limits | None = None,
    warm_start: Round | None = None,
    report: Callable[[Objective | None, Objective | None], None] | None = None,
) -> Result:
    """The cheapest assignment and its proof, or what is known within the limits."""
    run = Run(problem, data, limits or Limits(), report)
    run.start_from(warm_start)
    found: tuple[Round, int] | None = None
    with run:
        found = left.assignment(data, run.check)
        if found is not None:
            plan, cost = found
            run.tighten(cost, "dynamic program over GPUs")
            run.offer(plan)
    if found is not None or run.stop is not None:
        return run.result()
    result = statements.solve(
        *(problem, data, problem, "cpsat"),
        limits=run.limits.after(run.seconds()),
        warm_start=warm_start,
        report=report,
    )
    return replace(result, method=replace(result.method, name=problem))
