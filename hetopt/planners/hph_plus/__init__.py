"""HPH+: Espresso's allocator, stages by ascending compute, layers by integer program.

The GPUs of the least peak come first (of equals in the order of the offers), and the
layers are the optimum of an integer program for that order (`statement`), which
CP-SAT solves on one thread with a fixed seed; the best plan so far is its upper limit.

Source: Espresso, section V-A; HPH (Duan et al., CLUSTER 2022).
"""

from math import inf
from typing import Literal

from ... import entries
from ...modelling import Limits
from ...plans import Provisioning
from ...problems.provisioning import Data
from ...result import Stop
from .. import whale_plus
from ..espresso.tables import Counts, Stages, Stock
from ..espresso.tree import cheapest_plan
from .statement import build

problem: Literal["provisioning"] = "provisioning"
_BACKEND = "cpsat"


def plan(data: Data, *, seed: int = 0, deadline: float | None = None) -> Provisioning:
    """The cheapest plan found; `NoPlan` says how near it came. `seed` has no effect."""
    return cheapest_plan(data, place, "hph_plus", deadline)


def place(stock: Stock, counts: Counts, limit_us: float = inf) -> Stages | None:
    """Return the pipeline of an allocation; None where the memory does not suffice.

    None as well where none is faster than `limit_us`.
    """
    kinds = sorted(range(len(counts)), key=lambda t: (stock.kinds[t].peak, t))
    order = [t for t in kinds for _ in range(counts[t])]
    first = whale_plus.balance(stock, counts, order)
    if first is None:
        return None
    limit = int(min(stock.iteration_us(first), limit_us))
    layers = partition(stock, order, limit)
    return None if layers is None else tuple(zip(order, layers, strict=True))


def partition(stock: Stock, order: list[int], limit: int) -> tuple[int, ...] | None:
    """Return the best layers of stages in an order, None where none takes `limit`."""
    model = entries.backend(_BACKEND).backend("hph_plus")
    read = build(stock, order, limit, model)
    answer = model.solve(Limits(), lambda incumbent, bound: None)
    if answer.stop is Stop.INTERRUPTED:  # it ends the planner, too
        raise KeyboardInterrupt
    return None if answer.value is None else read(answer.value)
