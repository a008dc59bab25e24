"""What is proved for trainers of grids where plans choose how they are divided.

All grids of 2 to 4 GPUs are looked at, under each way to be divided.
"""

from random import Random
from typing import Any

import drawing
from brute_force_grids import SYMMETRIC, best_grid
from claims import claim, exactly

from hetopt.bounds.training_plan import training_plan_bound
from hetopt.problems.training_plan import settings, support
from hetopt.result import Status
from soaking import Contradiction

_NODES = [(1, 1), (2,), (1, 1, 1), (1, 2), (3,), (2, 2), (1, 1, 1, 1), (4,)]

_DRAWS = 8  # until a trainer runs any plan

WEIGHT = 60


def draw(rng: Random) -> dict[str, Any]:
    """An instance, and a trainer that runs some of its plans, where one does."""
    for _ in range(_DRAWS):
        tree = drawing.instance(
            rng,
            rng.choice(_NODES),
            layers=rng.choice([1, 1, 2, 2, 3]),
            batch=rng.choice([1, 2, 3, 4, 4]),
            sizes=rng.choice([(1,), (1,), (1, 2), (2,)]),
            spice=rng.choice([0.05, 0.15, 0.3]),
            even=rng.random() < 0.7,
            divides=True,
        )
        instance = drawing.read(tree)
        able = [x for x in SYMMETRIC if support.reason(instance.on(x)) is None]
        if able:
            break
    return {"instance": tree, "target": rng.choice(able or SYMMETRIC)}


def check(data: dict[str, Any]) -> str:
    """The word for what was proved; no grid may be better."""
    instance = drawing.read(data["instance"]).on(data["target"])
    if support.reason(instance) is not None:
        return "refused"
    result = exactly(instance, 0.2)
    word, below = claim(instance, result)
    each = [best_grid(way) for way in settings.split_variants(instance)]
    best = min((us for us in each if us is not None), default=None)
    if best is None:
        if result.plan is not None:
            raise Contradiction(f"there is no grid, {result.plan} is one")
        return f"{word}, no grid"
    least = training_plan_bound(instance)
    wrong = below is None or max(below, least.value) > best
    if wrong or (result.status is Status.OPTIMAL and result.objective != best):
        raise Contradiction(f"{result}, {least}; a grid takes {best}")
    return f"{word}, a grid"
