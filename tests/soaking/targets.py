"""Plans of trainers that run grids: valid for them, and never below what is proved."""

from random import Random
from typing import Any

import drawing
from claims import random_plans

from hetopt.problems import training_plan as judge
from hetopt.problems.training_plan import settings
from hetopt.schema.targets import TARGETS
from hetopt.search import grid
from soaking import Contradiction

WEIGHT = 20

_SYMMETRIC = sorted(name for name, target in TARGETS.items() if target.symmetric)


def draw(rng: Random) -> dict[str, Any]:
    """An instance of 2 to 9 GPUs, a trainer, and the seed of plans."""
    counts = tuple(rng.choice([1, 2, 3]) for _ in range(rng.choice([2, 2, 3])))
    tree = drawing.instance(
        rng,
        counts,
        layers=rng.choice([1, 2, 3, 5]),
        batch=rng.choice([1, 2, 4, 6]),
        sizes=rng.choice([(1,), (1,), (1, 2), (2,), (2, 3)]),
        divides=rng.random() < 0.5,
    )
    return {
        "instance": tree,
        "target": rng.choice(_SYMMETRIC),
        "plans": rng.randrange(10**9),
    }


def check(data: dict[str, Any]) -> str:
    """Search grids of each way; hold random plans, and the plan found, to the bound."""
    instance = drawing.read(data["instance"]).on(data["target"])
    bounds, word = [], "no plan"
    for way in settings.split_variants(instance):
        found = grid.search(way, most=20)
        bounds.append(found.bound_us)
        if found.plan is None:
            continue
        word = "a plan"
        judged = judge.evaluate(way, found.plan)
        if not judged.valid:
            raise Contradiction(f"not valid: {list(map(str, judged.violations))}")
        if judged.objective != found.objective:
            raise Contradiction(f"{judged.objective} us, {found.objective} claimed")
        if found.bound_us > found.objective:
            raise Contradiction(f"{found.bound_us} us bounds {found.objective}")
    for plan in random_plans(instance, Random(data["plans"]), 12):
        judged = judge.evaluate(instance, plan)
        if judged.valid and judged.objective < min(bounds):
            raise Contradiction(f"{judged.objective} us is below {min(bounds)}")
    return word
