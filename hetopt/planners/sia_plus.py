"""Sia+: 2^n GPUs of one type, the cheapest that meets the deadline, or the fastest.

Every type, every degree and number of stages whose product is a power of two within
the quota. Placed by Espresso's and by Whale+'s rule, whichever is the shorter, so that
what it costs more is the allocation's doing alone.

The paper says that Sia+ over-allocates, and not by which rule. The cheapest is the
strongest baseline; the fastest (`choice`) is Sia's own wish, the most goodput, whatever
it costs: it takes as many GPUs as are of use.

Source: Espresso, section V-A; Sia (Jayaram Subramanya et al., SOSP 2023).
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


def plan(
    data: Data,
    *,
    seed: int = 0,
    deadline: float | None = None,
    choice: Literal["cheapest", "fastest"] = "cheapest",
) -> Provisioning:
    """Return the cheapest plan of one type, or the fastest; `NoPlan` if there is none.

    `seed` has no effect. Under a budget the fastest is sought in any case.
    """
    pipelines = one_type(data, powers_of_two=True)
    plan = placer.best_granted(data, pipelines, deadline, fastest=choice == "fastest")
    if plan is None:
        raise NoPlan(
            "sia_plus: no 2^n GPUs of one type within the quotas keep the deadline or "
            "the budget"
        )
    return plan


def one_type(data: Data, *, powers_of_two: bool) -> Iterator[tuple[Stock, Stages]]:
    """Pipelines of one type that fit its memory: every degree and number of stages."""
    for d in data.data_parallel:
        stock = Stock.of(data, d)
        for t, kind in enumerate(stock.kinds):
            for k in range(1, min(kind.stages, stock.max_stages) + 1):
                if powers_of_two and (d * k).bit_count() != 1:
                    continue
                counts = tuple(k * (i == t) for i in range(len(stock.kinds)))
                if stages := whale_plus.shorter(stock, counts):
                    yield stock, stages
