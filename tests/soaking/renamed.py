"""What must not matter: names, the order of nodes, and GPUs that are idle.

A plan takes as long whatever its nodes and types are called and in whichever order they
are listed, and where there is a GPU more, or a node. Best plans are no slower for that.
"""

from random import Random
from typing import Any

import drawing
from claims import claim, exactly, random_plans
from renaming import plan_under, renamed, with_an_idle_gpu

from hetopt.problems import training_plan as judge
from hetopt.schema import Instance
from soaking import Contradiction

_TRIES = 12
_SOLVED = 0.3  # of the trials: best plans are compared, too

WEIGHT = 120


def draw(rng: Random) -> dict[str, Any]:
    """An instance of 2 to 12 GPUs, and the seed of plans and names."""
    counts = tuple(rng.choice([1, 1, 2, 2, 4]) for _ in range(rng.choice([2, 3, 4, 6])))
    tree = drawing.instance(
        rng,
        counts,
        layers=rng.choice([1, 2, 2, 4]),
        batch=rng.choice([2, 4, 4, 8]),
        sizes=rng.choice([(1,), (1,), (1, 2), (2,)]),
        even=rng.random() < 0.5,
        divides=rng.random() < 0.7,
    )
    return {"instance": tree, "seed": rng.randrange(10**9)}


def check(data: dict[str, Any]) -> str:
    """Judge a few plans of the instance under other names, and with an idle GPU."""
    rng, outcome = Random(data["seed"]), "no plan"
    instance = drawing.read(data["instance"])
    tree, names = renamed(rng, instance)
    other, more = (
        drawing.read(t) for t in (tree, with_an_idle_gpu(rng, data["instance"]))
    )
    for plan in random_plans(instance, rng, _TRIES):
        outcome = "judged"
        ours, theirs = (
            _told(data_, one)
            for data_, one in ((instance, plan), (other, plan_under(plan, names)))
        )
        if ours != theirs:
            raise Contradiction(f"{ours} became {theirs}: {plan.model_dump_json()}")
        ours, theirs = judge.evaluate(instance, plan), judge.evaluate(more, plan)
        if (ours.valid, ours.objective) != (theirs.valid, theirs.objective):
            raise Contradiction(f"{ours} became {theirs}: {plan.model_dump_json()}")
    if rng.random() < _SOLVED:
        _best_are_equal(instance, other)
        outcome += ", solved"
    return outcome


def _told(instance: Instance, plan: Any) -> tuple[object, ...]:
    """Every number of an evaluation that a name has no part in."""
    found = judge.evaluate(instance, plan)
    times = ("pipeline_us", "sync_us", "tied_us", "update_us", "low_s", "high_s")
    return (
        found.objective,
        [found.parts.get(name) for name in times],
        sorted(found.parts.get("peak_memory_mib", {}).values()),
        sorted(violation.rule for violation in found.violations),
    )


def _best_are_equal(one: Instance, other: Instance) -> None:
    """No bound of either is above a plan of the other."""
    claims = [exactly(instance, 0.2) for instance in (one, other)]
    least = [
        claim(data, said)[1] for data, said in zip((one, other), claims, strict=True)
    ]
    for below, said in zip(least, reversed(claims), strict=True):
        if said.plan is not None and (below is None or below > said.objective):
            raise Contradiction(f"{below} us, and under other names {said}")
