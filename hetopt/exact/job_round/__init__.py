"""Exact scheduling rounds: the statement by counts, proved by CP-SAT.

Jobs of a class and nodes of a kind are interchangeable, so the statement has one
integer for a class and configuration, whatever the number of jobs; costs are integers
and CP-SAT's arithmetic is exact, so its bound is a proof.
"""

from collections.abc import Callable
from dataclasses import replace

from ...modelling import Limits
from ...plans import Round
from ...problems import Objective
from ...problems.job_round import Data
from ...result import Result
from ...solving import statements

problem = "job_round"


def solve(
    data: Data,
    *,
    limits: Limits | None = None,
    warm_start: Round | None = None,
    report: Callable[[Objective | None, Objective | None], None] | None = None,
) -> Result:
    """The cheapest assignment and its proof, or what is known within the limits."""
    result = statements.solve(
        "job_round",
        data,
        "job_round",
        "cpsat",
        limits=limits,
        warm_start=warm_start,
        report=report,
    )
    return replace(result, method=replace(result.method, name=problem))
