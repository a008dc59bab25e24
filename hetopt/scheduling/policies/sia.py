"""Sia: every round an integer program over jobs and configurations.

A binary for each job and configuration, one GPU type and a power of two of GPUs; the
sum over jobs of (normalised goodput)^p, p = -0.5, and lambda = 1.1 for each job
without GPUs, is least (`_rounds` has the costs, `formulations/sia_round.py` the
program). Jobs of a class are interchangeable, so that they are counted here by the
exact method of the round: the optimum is the same, and the work no more for a longer
queue.

Deviations: Sia's own implementation solves the program by CBC; goodput is
samples per second, as the batch is fixed by the submission; a job may get any
configuration at once, where Sia at most doubles its GPUs a round; the restart factor is
in 32nds and for running jobs only.

Source: Sia (SOSP 2023), sections 3.3 and 3.4; Frenzy, section V-A.
"""

from ...problems.job_scheduling import Data
from ._rounds import RoundPolicy, exact_rounds, kinds

__all__ = ["follows_requests", "kinds", "policy", "problem"]

problem = "job_scheduling"
follows_requests = False


def policy(data: Data) -> RoundPolicy:
    """Works in rounds."""
    return exact_rounds(data)
