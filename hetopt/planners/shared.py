"""Shared: all GPUs generate, then all of them train, in turn.

What synchronous trainers do (HybridFlow's colocated workers, arXiv 2409.19256): nothing
is stale, and every GPU waits for the longest answer.
"""

from typing import Literal

from ..plans import PostTraining
from ..problems.post_training import Data
from ..search.halves import Halves

problem: Literal["post_training"] = "post_training"


def plan(data: Data, *, seed: int = 0, deadline: float | None = None) -> PostTraining:
    """Return the plan in turn; `NoPlan` where GPUs or hosts have no room."""
    return Halves(data).quick("shared", None, deadline, seed)
