"""Everything that is proved on 2 to 4 GPUs where plans choose how they are divided.

Sequences, experts, layers of stages and groups of ZeRO, with every plan looked at: the
exact method, cheap bounds, reasons, and planners.
"""

from contextlib import ExitStack
from random import Random
from typing import Any
from unittest.mock import patch

import drawing
from brute_force_training import best_training_plan
from claims import claim, contradict, solved

import hetopt
from hetopt.bounds import impossible
from hetopt.bounds.training_plan import training_plan_bound
from hetopt.errors import Unsupported
from hetopt.exact import enumeration
from soaking import Contradiction

_TINY = [(1, 1), (2,), (2,), (1, 1, 1), (1, 2), (3,)]
_NODES = [*_TINY, *_TINY, (2, 2), (2, 2), (1, 1, 1, 1), (4,), (1, 3)]
_SIZES = [(1,), (1,), (1, 2), (2,)]
_PLANNERS = ("megatron", "grid", "islands", "whale", "autohet", "hexiscale", "metis")

WEIGHT = 120


def draw(rng: Random) -> dict[str, Any]:
    """An instance, and a planner that is asked as well."""
    counts, sizes = rng.choice(_NODES), rng.choice(_SIZES)
    tree = drawing.instance(
        rng,
        counts,
        layers=rng.choice([1, 1, 2, 2, 3, 4] if sum(counts) < 4 else [1, 1, 2]),
        batch=rng.choice([1, 2, 2, 3, 4]) * min(sizes),
        sizes=sizes,
        even=rng.random() < 0.6,
        divides=True,
    )
    whole = rng.random() < 0.1  # or plans alone that show something to be wrong
    found = {"instance": tree, "planner": rng.choice(_PLANNERS), "whole": whole}
    return found | {"large": rng.random() < 0.3}  # ways go together, as on more GPUs


def check(data: dict[str, Any]) -> str:
    """The word for what was proved; no plan may show that anything said is wrong."""
    instance = drawing.read(data["instance"])
    with ExitStack() as stack:
        if data.get("large"):
            stack.enter_context(patch.object(enumeration, "is_small", lambda _: False))
        result = solved(instance, warm=False, time_s=2.0 if data.get("large") else 0.2)
    word, one = claim(instance, result)
    try:
        planned = hetopt.plan(instance, data["planner"], limits=0.1)
    except Unsupported:  # which is no claim: the exact method's stands alone
        planned = result
    _, other = claim(instance, planned)
    bound = training_plan_bound(instance)
    reason = impossible.reason(instance)
    below = None
    if not (data["whole"] or reason or None in (one, other)):
        below = max(one, other, int(bound.value))
    several = max(instance.workload.micro_batch_sizes) > 1
    best = best_training_plan(instance, several_replicas=several, below=below)
    if best is None:
        if below is None and (result.plan or planned.plan):
            raise Contradiction("there is no plan, and one was found")
        return word if below is not None else f"{word}, no plan"
    us, plan = best
    if below is not None or reason or bound.value > us:
        told = f"{reason}, {bound}, {result}, {planned}"
        raise Contradiction(f"{told}; {us} us: {plan.model_dump_json()}")
    for said, least in ((result, one), (planned, other)):
        if least is None or least > us or (said.objective or us) < us:
            contradict(said, us, plan)
    return f"{word}, a plan"
