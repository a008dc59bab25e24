"""Whale+: Espresso's allocator, stages by descending memory, layers by compute.

GPUs of larger memory come first (of equals the faster ones), as the front holds more
micro-batches in flight; every stage has its share of the layers by peak compute,
rounded down and as far as its memory goes, and missing layers are added one by one to
the stage that has memory for the most more. Synchronisation is not looked at. So come
the layers of the paper's Table IV.

Source: Espresso, section V-A; Whale (Jia et al., ATC 2022).
"""

from collections.abc import Sequence
from math import inf
from typing import Literal

from ..plans import Provisioning
from ..problems.provisioning import Data
from .espresso import placer
from .espresso.tables import Counts, Stages, Stock, by_memory, complete, shares
from .espresso.tree import cheapest_plan

problem: Literal["provisioning"] = "provisioning"


def plan(data: Data, *, seed: int = 0, deadline: float | None = None) -> Provisioning:
    """The cheapest plan found; `NoPlan` says how near it came. `seed` has no effect."""
    return cheapest_plan(data, place, "whale_plus", deadline)


def place(stock: Stock, counts: Counts, limit_us: float = inf) -> Stages | None:
    """Return the pipeline of an allocation; None where the memory does not suffice.

    There is only one candidate, whether it is faster than `limit_us` or not.
    """

    def memory_first(t: int) -> tuple[int, int, int]:
        kind = stock.kinds[t]
        return (-kind.memory_mib, kind.layer_us, t)

    kinds = sorted(range(len(counts)), key=memory_first)
    return balance(stock, counts, [t for t in kinds for _ in range(counts[t])])


def shorter(stock: Stock, counts: Counts) -> Stages | None:
    """Return the pipeline of an allocation by Espresso's rule or Whale+'s, if any."""
    made = [p for p in (placer.place(stock, counts), place(stock, counts)) if p]
    return min(made, key=stock.iteration_us, default=None)


def balance(stock: Stock, counts: Counts, order: Sequence[int]) -> Stages | None:
    """Layers by compute on stages in a given order, as far as the memory goes."""
    k, fair = len(order), shares(stock, counts)
    given = []
    for s, t in enumerate(order):
        if not (room := stock.room(t, s, k)):
            return None
        given.append(min(room, fair[t]))
    return complete(stock, order, given, by_memory, fixed=0)
