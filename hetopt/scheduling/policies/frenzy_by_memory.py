"""Frenzy with another best fit: the smallest sufficient memory is used up first.

Where HAS takes the node that fits best among all whose GPUs have the memory, this keeps
large memories for those who need them: a job is rather divided over nodes of the
smallest sufficient size than put on one node of a larger. Everything else is as in
`frenzy`; the placement is ours.
"""

from ...problems.job_scheduling import Data
from ..idle import Idle
from .frenzy import Frenzy, follows_requests, kinds

__all__ = ["follows_requests", "kinds", "policy", "problem"]

problem = "job_scheduling"


def policy(data: Data) -> Frenzy:
    """Event-driven: it decides at every arrival and end."""
    return Frenzy(data, Idle.best_fit_by_kind)
