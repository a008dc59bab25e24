"""Espresso: the cheapest offers that meet a deadline, by cost tree and CMR placer.

The allocator is `tree` (Algorithm 1), the placer `placer`
(Algorithm 2); what the paper leaves open is said there. Under a budget the fastest
plan is sought instead.

Source: Espresso, section III.
"""

from typing import Literal

from ...errors import NoPlan
from ...plans import Provisioning
from ...problems.provisioning import Data
from .placer import place
from .tables import Stages as Stages
from .tables import Stock as Stock
from .tables import allocation_of as allocation_of
from .tree import Depth, Pruning, Search, cheapest_plan, search_all
from .tree import boundary as boundary

problem: Literal["provisioning"] = "provisioning"
Metric = Literal["usd", "scarcity", "utilisation"]

__all__ = ["Pruning", "Search", "counted_by", "explore", "plan"]


def plan(
    data: Data,
    *,
    seed: int = 0,
    deadline: float | None = None,
    depth: Depth = "released",
    metric: Metric = "usd",
) -> Provisioning:
    """The cheapest plan found; `NoPlan` says how near it came. `seed` has no effect.

    `depth` says up to how many stages are looked at: those that the model needs on the
    smallest memory (`published`), at least 8 (`released`), or `any` number. `metric` is
    what the tree counts in place of dollars: hours of GPUs by their `scarcity`, one
    over the quota, or by their peak, so that the `utilisation` of what is rented is
    most (section III-B, discussion).
    """
    return cheapest_plan(counted_by(data, metric), place, "espresso", deadline, depth)


def counted_by(data: Data, metric: Metric) -> Data:
    """Return the problem whose prices are those of a metric.

    Raises `NoPlan` for another metric than dollars under a budget, which is of them.
    """
    if metric == "usd":
        return data
    if data.minimises_time:
        raise NoPlan(f"espresso: a budget is in dollars: leave out metric {metric}")
    offers = []
    for offer in data.offers:
        price = round(1 / max(1, offer.quota), 6)
        if metric == "utilisation":
            if offer.peak_gflops is None:
                raise NoPlan(f"espresso: offer {offer.gpu!r} has no peak_gflops")
            price = offer.peak_gflops / 10**6
        offers.append(offer.model_copy(update={"usd_per_hour": price}))
    return data.model_copy(update={"offers": tuple(offers)})


def explore(data: Data, pruning: Pruning) -> Search:
    """The search with some prunings only: its plan, and what it opened and pruned."""
    return search_all(data, place, pruning=pruning)
