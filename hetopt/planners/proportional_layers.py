"""Proportional layers: each stage has its share by speed, whatever its memory.

HexiScale's rule: layers in proportion to the compute of a stage, here to how fast it
takes all layers. A layer on a border goes where the larger half of it lies. The order
is that of the data; `NoPlan` where the shares do not fit.

Source: HexiScale, section 4.3 (its own planner here balances exactly, `hexiscale`).
"""

from typing import Literal

from ..errors import NoPlan
from ..plans import Partition
from ..problems.layer_partition import Data
from ..search.partitions import Chain
from .metis.cuts import proportional

problem: Literal["layer_partition"] = "layer_partition"


def plan(data: Data, *, seed: int = 0, deadline: float | None = None) -> Partition:
    """Return shares by speed; `NoPlan` says why not.

    Neither seed nor deadline has an effect.
    """
    chain = Chain(data)
    most = [chain.layers] * chain.count
    cuts = proportional(chain.load, 0, chain.speed, most)
    if cuts is None:
        raise NoPlan(
            f"proportional_layers: {chain.layers} layers for {chain.count} stages"
        )
    return chain.plan(cuts, "proportional_layers")
