"""The exact method on 2 to 4 GPUs, against every plan there is."""

from random import Random
from typing import Any

import drawing
from claims import refuted, solved

_TINY = [(1, 1), (1, 1), (2,)]  # most of the draws
_NODES = [*_TINY, *_TINY, *_TINY]
_NODES += [(1, 2), (1, 1, 1), (3,), (2, 2), (1, 1, 1, 1), (1, 3)]
_SIZES = [(1,), (1,), (1,), (1, 2), (2,), (1, 2, 3), (3,), (4,)]

WEIGHT = 140


def draw(rng: Random) -> dict[str, Any]:
    """An instance, and whether heuristics look first: they can hide a wrong proof."""
    counts = rng.choice(_NODES)
    sizes = rng.choice(_SIZES)
    layers = rng.choice([1, 1, 1, 1, 2, 2, 3, 4] if sum(counts) < 4 else [1, 2])
    batch = rng.choice([1, 2, 2, 3, 4] if max(sizes) == 1 else [2, 3, 4])
    fixed = {"layout": rng.choice(["equal", "equal", "told"])}
    fixed |= rng.choice([{}, {}, {"recompute": rng.choice(drawing.RULES)}])
    tree = drawing.instance(
        rng, counts, layers=layers, batch=batch, sizes=sizes, fixed=fixed
    )
    return {"instance": tree, "warm": rng.random() < 0.2}


def check(data: dict[str, Any]) -> str:
    """The word for what was proved; no plan may be better than it."""
    instance = drawing.read(data["instance"])
    result = solved(instance, warm=data["warm"], time_s=0.2)
    return refuted(instance, result)
