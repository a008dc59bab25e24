"""Whale's inter-stage balance: the largest work relative to power is the least.

Stages are as powerful as they take all layers fast, and a layer is as much work as the
stages take for it together. In a free order those of larger memory come first, as the
front holds more micro-batches.

Source: Whale (Jia et al., ATC 2022), section 3.3; the baseline of AutoHet.
"""

from itertools import accumulate
from math import gcd
from typing import Literal

from ..errors import NoPlan
from ..plans import Partition
from ..problems.layer_partition import Data
from ..search.partitions import Chain
from .whale import cuts

problem: Literal["layer_partition"] = "layer_partition"

_POWERS = 10**6  # what the fastest stage has: powers are whole numbers


def plan(data: Data, *, seed: int = 0, deadline: float | None = None) -> Partition:
    """Return the most balanced work; `NoPlan` where there is no room for the layers.

    Neither seed nor deadline has an effect.
    """
    order = list(range(len(data.stages)))
    if data.order == "free":
        order.sort(key=lambda s: -data.stages[s].memory_mib)
    chain = Chain(data, order)
    work = [*accumulate(chain.load, initial=0)]
    found = None
    if chain.layers >= chain.count:
        fastest = max(1, min(times[-1] for times in chain.time))
        powers = [max(1, _POWERS * fastest // max(1, x[-1])) for x in chain.time]
        if not gcd(*work):  # no layer takes any time
            work = list(range(chain.layers + 1))

        def fits(j: int, first: int, last: int) -> bool:
            return last <= chain.longest(j, first)

        found = cuts(work, powers, fits)
    if found is None:
        raise NoPlan(
            f"whale_layers: {chain.layers} layers do not fit on {chain.count} stages "
            "by this order"
        )
    return chain.plan(found, "whale_layers")
