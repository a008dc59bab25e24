"""Sia: every round an integer program over jobs and configurations.

A binary for each job and configuration, one GPU type and a power of two of GPUs; the
sum over jobs of (normalised goodput)^p, p = -0.5, and lambda = 1.1 for each job
without GPUs, is least (`_rounds` has the costs, `formulations/sia_round.py` the
program). CBC solves it, as Sia's own implementation does.

Deviations: goodput is samples per second, as the batch is fixed by the submission; a
job may get any configuration at once, where Sia at most doubles its GPUs a round; the
restart factor is in 32nds and for running jobs only.

Source: Sia (SOSP 2023), sections 3.3 and 3.4; Frenzy, section V-A.
"""

from ... import registry
from ...modelling import Limits
from ...plans import Round
from ...problems.job_round import Data as RoundData
from ...problems.job_scheduling import Data
from ...result import uninterrupted
from ...solving import statements
from ._rounds import RoundPolicy, kinds

__all__ = ["follows_requests", "kinds", "policy", "problem"]

problem = "job_scheduling"
follows_requests = False


def policy(data: Data) -> RoundPolicy:
    """Works in rounds."""
    registry.entry("backends", "pulp").version()  # loads it, before the first round
    limits = Limits(time_s=data.assumptions.round_s)

    def solve(round_: RoundData) -> Round | None:
        found = uninterrupted(
            statements.solve("job_round", round_, "sia_round", "pulp", limits=limits)
        )
        plan: Round | None = found.plan
        return plan

    return RoundPolicy(data, solve)
