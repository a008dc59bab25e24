"""Certificates of boxes: what is refuted is proved again, and no forger proves more."""

from random import Random
from typing import Any

import drawing
from box_forger import forged, random_tree
from box_forger import honest as certified
from claims import random_plans, some_plans
from sites_of_nodes import in_sites

from hetopt.bounds.training_plan import training_plan_bound
from hetopt.exact import checking
from hetopt.problems import training_plan as judge
from soaking import Contradiction

_STEPS = 12
_FORGED = 6

WEIGHT = 30


def draw(rng: Random) -> dict[str, Any]:
    """An instance of 2 to 12 GPUs, a seed of plans and forgeries, and how to refute."""
    counts = tuple(rng.choice([1, 1, 2, 4]) for _ in range(rng.choice([1, 2, 2, 3, 4])))
    tree = drawing.instance(
        rng,
        counts,
        layers=rng.choice([1, 2, 3, 5]),
        batch=rng.choice([4, 8, 12]),
        sizes=rng.choice([(1,), (1, 2), (1, 2, 4), (2,)]),
        divides=rng.random() < 0.3,
    )
    if rng.random() < 0.7:
        drawing.leave_choices_out(tree)
    if rng.random() < 0.3:
        tree = in_sites(rng, tree)
    plans = rng.randrange(10**9)
    whole, hosts = rng.random() < 0.5, rng.random() < 0.5
    return {"instance": tree, "plans": plans, "whole": whole, "hosts": hosts}


def check(data: dict[str, Any]) -> str:
    """An honest certificate is accepted, a forged one of a plan's own time is not."""
    instance = drawing.read(data["instance"])
    rng = Random(data["plans"])
    plans = some_plans if rng.random() < 0.25 else random_plans
    judged = [judge.evaluate(instance, p) for p in plans(instance, rng, 6)]
    best = min((j.objective for j in judged if j.valid), default=None)
    if best is None:
        return "no plan"
    cheap = int(training_plan_bound(instance).value)
    honest, word = None, "nothing refuted"
    ways = {way: data.get(way, False) for way in ("whole", "hosts")}
    for share in (0.2, 0.6, 0.9):
        target = int(cheap + share * (best - cheap)) - 1
        found = certified(instance, target, best, _STEPS, **ways)
        if found is None:
            break
        if missing := checking.missing(instance, found, target + 1):
            raise Contradiction(f"{target} us is refuted, checked: {missing}")
        honest, word = found, "accepted"
    for _ in range(_FORGED):
        lie = forged(rng, honest, best) if honest else random_tree(rng, instance, best)
        if lie is not None and not checking.missing(instance, lie, best + 1):
            raise Contradiction(
                f"{best} us is said to be refuted, a plan of that time is valid: {lie}"
            )
    return word
