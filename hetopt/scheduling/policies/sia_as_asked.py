"""Sia where users say how many GPUs: it chooses types and times, not numbers.

The rounds of `sia`, each job with configurations of one number of GPUs: what its user
asks for, the next larger number that fits where that does not, else the largest. Users
here know what fits, so that no attempt runs out of memory: better for this policy than
the world in which Frenzy compares with it ("tasks with user-specified numbers of
GPUs"). A user who leaves the number open gets any. Otherwise as `sia`; solved by the
exact round, whose optimum is the same.

Source: Frenzy, section V-A, baseline Sia.
"""

from ...problems.job_scheduling import Data
from ._rounds import RoundPolicy, exact_rounds, kinds

__all__ = ["follows_requests", "kinds", "policy", "problem"]

problem = "job_scheduling"
follows_requests = True


def policy(data: Data) -> RoundPolicy:
    """Works in rounds."""
    return exact_rounds(data, as_asked=True)
