"""Certificates of boxes: what is refuted is proved again, and no forger proves more."""

from random import Random
from typing import Any

import drawing
from box_forger import forged, random_tree
from box_forger import honest as certified
from claims import least_us
from sites_of_nodes import in_sites

from hetopt.bounds.training_plan import training_plan_bound
from hetopt.exact import checking
from soaking import Contradiction

_STEPS = 12
_FORGED = 6

WEIGHT = 30


def draw(rng: Random) -> dict[str, Any]:
    """An instance of 2 to 12 GPUs, a seed of plans and forgeries, and how to refute."""
    counts = tuple(rng.choice([1, 1, 2, 4]) for _ in range(rng.choice([1, 2, 2, 3, 4])))
    tree = drawing.divided(rng, counts)
    if rng.random() < 0.7:
        drawing.leave_choices_out(tree)
    if rng.random() < 0.3:
        tree = in_sites(rng, tree)
    plans = rng.randrange(10**9)
    whole, hosts = rng.random() < 0.5, rng.random() < 0.5
    return {"instance": tree, "plans": plans, "whole": whole, "hosts": hosts}


def check(data: dict[str, Any]) -> str:
    """An honest certificate is accepted, a forged one of a plan's own time is not."""
    instance, rng = drawing.read(data["instance"]), Random(data["plans"])
    best = least_us(instance, rng)
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
