"""Metis's LayerLB: layers by capacity, moved away where a stage is out of memory.

Layers are shared in proportion to the capacity of stages; where a stage lacks memory,
it keeps what fits, and the others take the rest in proportion to theirs, until all fit
(step 2 of Metis's partition; step 1, more tensor parallelism, changes the stage and is
`metis`'s own). The first stage in the pipeline that lacks memory goes first. The order
is that of the data.

Source: Metis, Algorithm 1, LayerLB, and section 4.2.2.
"""

from typing import Literal

from ..errors import NoPlan
from ..plans import Partition
from ..problems.layer_partition import Data
from ..search.partitions import Chain
from .metis.cuts import proportional

problem: Literal["layer_partition"] = "layer_partition"


def plan(data: Data, *, seed: int = 0, deadline: float | None = None) -> Partition:
    """Return layers by capacity and memory; `NoPlan` where there is no room for them.

    Neither seed nor deadline has an effect.
    """
    chain = Chain(data)
    load, most = chain.load, [chain.layers] * chain.count
    while (cuts := proportional(load, 0, chain.speed, most)) is not None:
        if (j := chain.first_short(cuts)) is None:
            return chain.plan(cuts, "metis_layers")
        most[j] = chain.longest(j, cuts[j]) - cuts[j]
    raise NoPlan(
        f"metis_layers: what fits on the {chain.count} stages, moved from one to the "
        f"others, is less than {chain.layers} layers"
    )
