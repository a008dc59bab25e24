"""Espresso: the cheapest offers that meet a deadline, by cost tree and CMR placer.

The allocator is `tree` (Algorithm 1), the placer `placer`
(Algorithm 2); what the paper leaves open is said there. Under a budget the fastest
plan is sought instead.

Source: Espresso, section III.
"""

from typing import Literal

from ...plans import Provisioning
from ...problems.provisioning import Data
from .placer import place
from .tables import Stages as Stages
from .tables import Stock as Stock
from .tables import allocation_of as allocation_of
from .tree import Depth, Pruning, Search, cheapest_plan, search_all
from .tree import boundary as boundary

problem: Literal["provisioning"] = "provisioning"

__all__ = ["Pruning", "Search", "explore", "plan"]


def plan(
    data: Data,
    *,
    seed: int = 0,
    deadline: float | None = None,
    depth: Depth = "released",
) -> Provisioning:
    """The cheapest plan found; `NoPlan` says how near it came. `seed` has no effect.

    `depth` says up to how many stages are looked at: those that the model needs on the
    smallest memory (`published`), at least 8 (`released`), or `any` number.
    """
    return cheapest_plan(data, place, "espresso", deadline, depth)


def explore(data: Data, pruning: Pruning) -> Search:
    """The search with some prunings only: its plan, and what it opened and pruned."""
    return search_all(data, place, pruning=pruning)
