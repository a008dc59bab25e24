"""Whole pipelines, asked to refute what a known plan shows to be possible."""

from random import Random
from typing import Any

import drawing
from claims import least_us
from refuters import by, least_alone_us, refutation
from sites_of_nodes import in_sites

from hetopt.bounds.training_plan import training_plan_bound
from hetopt.errors import Unsupported
from hetopt.exact import training_plan
from hetopt.problems.training_plan.settings import variants
from soaking import Contradiction

_STEPS = 6

WEIGHT = 30


def draw(rng: Random) -> dict[str, Any]:
    """An instance of 2 to 12 GPUs with what they cover, and a seed of plans."""
    counts = tuple(rng.choice([1, 1, 2, 4]) for _ in range(rng.choice([2, 2, 2, 3, 4])))
    tree = drawing.divided(rng, counts)
    drawing.leave_choices_out(tree)
    if rng.random() < 0.3:
        tree = in_sites(rng, tree)
    return {"instance": tree, "plans": rng.randrange(10**9)}


def check(data: dict[str, Any]) -> str:
    """Nothing at a plan's time is refuted; what is refuted is proved again."""
    instance, rng = drawing.read(data["instance"]), Random(data["plans"])
    best = least_us(instance, rng)
    if best is None:
        return "no plan"
    cheap = int(training_plan_bound(instance).value)
    if cheap > best:
        raise Contradiction(f"cheap bound {cheap}, a plan of {best} us is valid")
    if cheap >= best:
        return "closed"
    (only,) = variants(instance)  # nothing is to be chosen
    alone_us = least_alone_us(only, best) if rng.random() < 0.5 else 0
    tree = by("whole", only, cheap, best, alone_us)
    word = "nothing refuted"
    for share in (0.25, 0.5, 0.8, 1.0):
        target = cheap + int(share * (best - cheap)) if share < 1 else best
        found = refutation(tree, target, _STEPS)
        if not found.proved:
            return word
        if target >= best:
            raise Contradiction(f"{target} us is refuted, a plan of {best} us is valid")
        word = "refuted below"
        if rng.random() < 0.2:
            if (certificate := found.certificate()) is None:
                return "no certificate"  # of times beyond what a file may hold
            try:
                missing = training_plan.recheck(instance, certificate, target + 1)
            except Unsupported:  # too large a table
                missing = []
            if missing:
                raise Contradiction(f"{target} us is refuted, rechecked: {missing}")
    return word
