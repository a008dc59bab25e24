"""Exact rounds: the cheapest assignment of every round, proved optimal.

The rounds of `sia`, by the name of what solves them: jobs of a class and nodes of a
kind are counted, costs are integers, and the optimum of the round is proved. It is
optimal for a round, and says nothing of a whole schedule.
"""

from ...problems.job_scheduling import Data
from ._rounds import RoundPolicy, exact_rounds, kinds

__all__ = ["follows_requests", "kinds", "policy", "problem"]

problem = "job_scheduling"
follows_requests = False


def policy(data: Data) -> RoundPolicy:
    """Works in rounds."""
    return exact_rounds(data)
