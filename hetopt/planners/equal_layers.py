"""Equal layers: as many on each stage, as Megatron-LM has them.

Where the stages do not divide the layers, the first ones take one more. The order is
that of the data. Neither times nor memory are looked at: `NoPlan` where that does not
fit.

Source: Megatron-LM (Narayanan et al., SC 2021), the baseline of AutoHet's section V.
"""

from typing import Literal

from ..errors import NoPlan
from ..plans import Partition
from ..problems.layer_partition import Data
from ..search.partitions import Chain
from ..search.symmetric import equal_cuts

problem: Literal["layer_partition"] = "layer_partition"


def plan(data: Data, *, seed: int = 0, deadline: float | None = None) -> Partition:
    """Return equal parts; `NoPlan` says why not.

    Neither seed nor deadline has an effect.
    """
    chain = Chain(data)
    if chain.layers < chain.count:
        raise NoPlan(f"equal_layers: {chain.layers} layers for {chain.count} stages")
    return chain.plan(equal_cuts(chain.layers, chain.count), "equal_layers")
