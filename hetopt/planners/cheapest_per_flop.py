"""Cheapest per FLOP: GPUs in the order of what their peak costs, until it is enough.

What a buyer does with a price list: offers by price per peak FLOP/s, the first rented
to its quota, then the next. Every degree and number of stages is tried; the stages are
placed by Espresso's and by Whale+'s rule, whichever is the shorter. The cheapest that
keeps the deadline is taken, or the fastest that keeps the budget.

A baseline: no paper has it by this name.
"""

from collections.abc import Iterator
from typing import Literal

from ..errors import NoPlan
from ..plans import Provisioning
from ..problems.provisioning import Data
from . import whale_plus
from .espresso import placer
from .espresso.tables import Stages, Stock

problem: Literal["provisioning"] = "provisioning"


def plan(data: Data, *, seed: int = 0, deadline: float | None = None) -> Provisioning:
    """Return the best plan by the rule; `NoPlan` if there is none.

    `seed` has no effect.
    """
    if (plan := placer.best_granted(data, _pipelines(data), deadline)) is None:
        raise NoPlan(
            "cheapest_per_flop: no number of GPUs, the cheapest per FLOP first, keeps "
            "the deadline or the budget and holds the model"
        )
    return plan


def _pipelines(data: Data) -> Iterator[tuple[Stock, Stages]]:
    for d in data.data_parallel:
        stock = Stock.of(data, d)
        kinds = stock.kinds
        order = sorted(range(len(kinds)), key=lambda t: kinds[t].price / kinds[t].peak)
        rows = [t for t in order for _ in range(kinds[t].stages)]
        for k in range(1, min(len(rows), stock.max_stages) + 1):
            counts = tuple(rows[:k].count(t) for t in range(len(kinds)))
            if stages := whale_plus.shorter(stock, counts):
                yield stock, stages
