"""The local search: valid, never worse than its start, never below what is proved."""

from functools import partial
from random import Random
from typing import Any

import drawing
from claims import random_plans

from hetopt.bounds.training_plan import training_plan_bound
from hetopt.problems import training_plan as judge
from hetopt.search.improving import improve
from soaking import Contradiction

_ROUNDS = 40
_AGAIN = 3  # every third search is done twice

WEIGHT = 30


def draw(rng: Random) -> dict[str, Any]:
    """An instance of 2 to 16 GPUs, and the seed of a start and of a search."""
    counts = tuple(rng.choice([1, 1, 2, 4]) for _ in range(rng.choice([2, 2, 2, 3, 4])))
    sizes = rng.choice([(1,), (1,), (1, 2), (2,), (1, 3), (2, 3)])
    tree = drawing.instance(
        rng,
        counts,
        layers=rng.choice([1, 2, 2, 3, 5]),
        batch=rng.choice([2, 4, 5, 8]),
        sizes=sizes,
        divides=rng.random() < 0.3,
    )
    return {"instance": tree, "plans": rng.randrange(10**9)}


def check(data: dict[str, Any]) -> str:
    """Improve a random plan that is valid; the same again with the same seed."""
    instance = drawing.read(data["instance"])
    for plan in random_plans(instance, Random(data["plans"]), 6):
        before = judge.evaluate(instance, plan)
        if before.valid:
            break
    else:
        return "no plan"
    search = partial(improve, instance, plan, rounds=_ROUNDS, seed=data["plans"])
    better = search()
    after = judge.evaluate(instance, better)
    if not after.valid:
        raise Contradiction(f"not valid: {list(map(str, after.violations))}")
    if after.objective > before.objective:
        raise Contradiction(f"{before.objective} us became {after.objective}")
    bound = training_plan_bound(instance)
    if after.objective < bound.value:
        raise Contradiction(f"{after.objective} us is below {bound}")
    if data["plans"] % _AGAIN == 0 and search() != better:
        raise Contradiction("the same seed gave another plan")
    return "better" if after.objective < before.objective else "the same"
