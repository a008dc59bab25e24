"""Bounds of the exact method on 48 to 120 GPUs, against plans timed by plain floats."""

from random import Random
from typing import Any

import drawing
from claims import claim, exactly, some_plans
from float_judge import FloatJudge

from hetopt.costs import under
from hetopt.problems import training_plan as judge
from hetopt.problems.training_plan.shapes import split_of
from soaking import Contradiction

WEIGHT = 1


def draw(rng: Random) -> dict[str, Any]:
    """An instance of 48 to 120 GPUs, and the seed of its plans."""
    each = rng.choice([4, 8, 8])
    counts = (each,) * (rng.choice([48, 64, 96, 120]) // each)
    sizes = rng.choice([(1,), (1,), (1, 2), (4,)])
    tree = drawing.instance(
        rng,
        counts,
        layers=rng.choice([4, 8, 12]),
        batch=rng.choice([16, 32, 64]),
        sizes=sizes,
        even=rng.random() < 0.7,
    )
    return {"instance": tree, "plans": rng.randrange(10**9)}


def check(data: dict[str, Any]) -> str:
    """No plan takes less than the bound; the method's own is timed by floats, too."""
    instance = drawing.read(data["instance"])
    result = exactly(instance, 0.2)
    word, below = claim(instance, result)
    plans = [*some_plans(instance, Random(data["plans"]), 3)]
    plans += [result.plan] if result.plan is not None else []
    for plan in plans:
        judged = judge.evaluate(instance, plan)
        if not judged.valid:
            continue
        split = split_of(instance, plan)
        if split.experts > 1:  # whose times floats do not know
            continue
        floats = FloatJudge(under(instance, split=split), zero=plan.zero)
        us = 1e6 * floats.iteration(plan) * (1 + 1e-9) + floats.roundings(plan)
        if below is None or us < below or judged.objective < below:
            raise Contradiction(
                f"said {result.status} with bound {result.bound}, a plan of "
                f"{judged.objective} us ({us} by floats) is valid: "
                f"{plan.model_dump_json()}"
            )
    return word
