"""The best single pipeline, against all of them on 2 to 4 GPUs."""

from random import Random
from typing import Any

import drawing
from brute_force_training import best_one_pipeline

from hetopt.errors import Unsupported
from hetopt.exact import one_pipeline
from hetopt.modelling import Limits
from hetopt.problems import one_pipeline as judge
from hetopt.result import Status
from soaking import Contradiction

_TINY = [(1, 1), (1, 1), (2,)]  # most of the draws
_NODES = [*_TINY, *_TINY, (1, 2), (1, 1, 1), (3,), (2, 2), (1, 1, 1, 1), (1, 3)]
_SIZES = [(1,), (1,), (1, 2), (2,), (1, 2, 3), (3,)]
# What the method states; the rest is refused, and drawn now and then.
_STATED = {
    "pipeline": "critical",
    "sync_overlap": "none",
    "zero": 0,
    "interleave": 1,
    "context_parallel": 1,
    "expert_parallel": 1,
    "zero_groups": 1,
    "hops": "sender",
}

WEIGHT = 40


def draw(rng: Random) -> dict[str, Any]:
    """An instance; most have nothing that the method refuses."""
    counts, sizes = rng.choice(_NODES), rng.choice(_SIZES)
    tree = drawing.instance(
        rng,
        counts,
        layers=rng.choice([1, 1, 2, 2, 3] if sum(counts) < 4 else [1, 2]),
        batch=rng.choice([1, 2, 3, 4, 6]),
        sizes=sizes,
        fixed=_STATED if rng.random() < 0.95 else None,
    )
    if rng.random() < 0.95:
        drawing.leave_choices_out(tree)
        drawing.leave_updates_out(tree)
    return {"instance": tree}


def check(data: dict[str, Any]) -> str:
    """The word for what was proved; no single pipeline may be better than it."""
    instance = drawing.read(data["instance"])
    try:
        result = one_pipeline.solve(instance, limits=Limits(time_s=0.2))
    except Unsupported:
        return "refused"
    best = best_one_pipeline(instance)
    if result.plan is not None:
        judged = judge.evaluate(instance, result.plan)
        if not judged.valid or judged.objective != result.objective:
            raise Contradiction(f"said {result.objective}, judged {judged.objective}")
    said = result.objective
    if result.status in (Status.OPTIMAL, Status.INFEASIBLE) and said != best:
        raise Contradiction(f"said {result.status} {said}, the best is {best}")
    if result.bound is not None and best is not None and best < result.bound.value:
        raise Contradiction(f"said {result.bound}, the best is {best}")
    return str(result.status)
