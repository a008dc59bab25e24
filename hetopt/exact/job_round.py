"""Exact scheduling rounds: counts of jobs, proved by CP-SAT.

Jobs of a class and nodes of a kind are interchangeable. The statement by counts has one
integer for a class and configuration, whatever the number of jobs; costs are integers
and CP-SAT's arithmetic is exact, so its bound is a proof.
"""

from dataclasses import replace

from ..modelling import Limits
from ..plans import Round
from ..problems.job_round import Data
from ..result import Result
from ..solving import statements
from ..solving.run import Report

problem = "job_round"


def solve(
    data: Data,
    *,
    limits: Limits | None = None,
    warm_start: Round | None = None,
    report: Report | None = None,
) -> Result:
    """Return the cheapest assignment and its proof, or what is known at a limit."""
    found = statements.solve(
        *(problem, data, problem, "cpsat"),
        limits=limits,
        warm_start=warm_start,
        report=report,
    )
    return replace(found, method=replace(found.method, name=problem))
