"""Espresso's stage placer for given stages: by compute-memory ratio, layer by layer.

Algorithm 2 with one stage of each kind that the data lists. For every number of layers
of the first stage: in a free order the stage with the least compute per memory (CMR)
comes first, then so on, in a given order the stages as they are; each gets its balanced
share as far as its memory goes; layers that are missing are then added one by one where
the pipeline grows the least, layers too many taken from the slowest. The best is kept.
This problem has no synchronisation that backward passes could hide: CMR is that of
alpha = 1.

Source: Espresso, section III-C, Algorithm 2 and Eq. 10.
"""

from itertools import accumulate
from typing import Literal

from ..clock import monotonic
from ..errors import NoPlan
from ..plans import Partition
from ..problems.layer_partition import Data
from ..search.partitions import Chain

problem: Literal["layer_partition"] = "layer_partition"


def plan(data: Data, *, seed: int = 0, deadline: float | None = None) -> Partition:
    """Return the best of the rule's pipelines; `NoPlan` where none fits.

    At the deadline it ends with the best until then. `seed` has no effect.
    """
    order = list(range(len(data.stages)))
    if data.order == "free":
        order.sort(key=lambda s: _ratio(data, s))
    chain = Chain(data, order)
    best: tuple[int, list[int]] | None = None
    for first in range(1, chain.layers - chain.count + 2):
        if best is not None and deadline is not None and monotonic() > deadline:
            break
        if chain.time[0][first] * data.micro_batches >= (best or (float("inf"),))[0]:
            break  # the first stage alone takes longer
        layers = _fill(chain, first)
        if layers is not None and (best is None or chain.cost_us(layers) < best[0]):
            best = chain.cost_us(layers), layers
    if best is None:
        raise NoPlan(
            f"espresso_layers: {chain.layers} layers do not fit on {chain.count} "
            "stages by this rule"
        )
    return chain.plan([*accumulate(best[1], initial=0)], "espresso_layers")


def _ratio(data: Data, s: int) -> float:
    """Eq. 10 with alpha = 1: compute over memory."""
    stage = data.stages[s]
    return 1 / max(1, sum(stage.layer_us)) / max(1, stage.memory_mib)


def _fill(chain: Chain, first: int) -> list[int] | None:
    """Return the layers of stages with `first` on the first one; None without room."""
    whole, layers, begun = sum(chain.speed), [first], first
    for j in range(1, chain.count):
        fair = max(1, int(chain.layers * chain.speed[j] / whole))
        room = chain.longest(j, min(begun, chain.layers - 1)) - begun
        layers.append(max(1, min(fair, room)))
        begun += layers[-1]
    fixed = 1 if chain.count > 1 else 0
    while sum(layers) > chain.layers:
        able = [j for j in range(fixed, chain.count) if layers[j] > 1]
        if not able:
            return None
        layers[max(able, key=lambda j: layers[j] / chain.speed[j])] -= 1
    while sum(layers) < chain.layers:
        grown = [
            [n + (i == j) for i, n in enumerate(layers)]
            for j in range(fixed, chain.count)
        ]
        fitting = [one for one in grown if _fits(chain, one)]
        if not fitting:
            return None
        layers = min(fitting, key=chain.cost_us)
    return layers if _fits(chain, layers) else None


def _fits(chain: Chain, layers: list[int]) -> bool:
    return chain.first_short([*accumulate(layers, initial=0)]) is None
