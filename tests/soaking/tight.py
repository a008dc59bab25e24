"""What is proved without a search, where memory is just enough for some plan.

Plans choose how they are divided; GPUs have what a random plan needs, and little more.
"""

from fractions import Fraction
from random import Random
from typing import Any

import drawing
from claims import claim, exactly, random_plans

from hetopt.bounds import impossible
from hetopt.bounds.again.grids import refuted
from hetopt.bounds.again.training_plan import derived
from hetopt.bounds.training_plan import spending_bound, training_plan_bound
from hetopt.exact.training_plan import fitting, holding
from hetopt.modelling import Limits
from hetopt.plans import TrainingPlan
from hetopt.problems import training_plan as judge
from hetopt.result import Status
from hetopt.schema import Instance
from hetopt.schema.splits import FIELDS
from hetopt.schema.targets import TARGETS
from soaking import Contradiction

_TRIES = 8  # plans, of which the most divided is taken

WEIGHT = 200


def draw(rng: Random) -> dict[str, Any]:
    """An instance of 2 to 16 GPUs, a plan that fits, and whether methods are asked."""
    counts = tuple(
        rng.choice([1, 1, 1, 2, 2, 4]) for _ in range(rng.choice([2, 2, 3, 4, 5, 8]))
    )
    tree = drawing.instance(
        rng,
        counts[:5] if sum(counts) > 16 else counts,
        layers=rng.choice([1, 1, 2, 2, 3, 4, 8]),
        batch=rng.choice([1, 2, 3, 4, 6, 8, 10]),
        sizes=rng.choice([(1,), (1,), (1, 2), (2,), (1, 3)]),
        even=rng.random() < 0.7,
        divides=True,
    )
    target = "any" if rng.random() < 0.7 else rng.choice(sorted(TARGETS))
    plan = _made_to_fit(rng, tree, target)
    return {
        "instance": tree,
        "target": target,
        "plan": None if plan is None else plan.model_dump(mode="json"),
        "solve": rng.random() < 0.1,
    }


def _made_to_fit(rng: Random, tree: dict[str, Any], target: str) -> TrainingPlan | None:
    """A plan that breaks no rule once the GPUs have the memory that it needs."""
    gpus = tree["cluster"]["gpus"]
    for gpu in gpus.values():
        gpu["memory_gib"] = drawing.MOST_GIB
    ample = drawing.read(tree).on(target)
    found = [
        (plan, judged.parts["peak_memory_mib"])
        for plan in random_plans(ample, rng, _TRIES)
        if (judged := judge.evaluate(ample, plan)).valid
    ]
    if not found:
        return None
    plan, memory = max(found, key=lambda pair: len(_divided(pair[0])))
    need = dict.fromkeys(gpus, 1)
    for gpu, mib in memory.items():
        kind = ample.planned_cluster.node[gpu.rpartition(":")[0]].gpu
        need[kind] = max(need[kind], mib)
    for kind, gpu in gpus.items():
        mib = int(need[kind] * rng.choice([1, 1, 1, 1.02, 1.2]))
        gpu["memory_gib"] = mib / 1024  # as a binary fraction, which is exact
    return plan


def check(data: dict[str, Any]) -> str:
    """No bound is above the plan, and nothing says that there is none."""
    if data["plan"] is None:
        return "no plan"
    instance = drawing.read(data["instance"]).on(data["target"])
    plan = TrainingPlan.model_validate(data["plan"], strict=False)
    judged = judge.evaluate(instance, plan)
    if not judged.valid:
        return "too large"  # beside more than GPUs may have
    us = judged.objective
    bounds = [training_plan_bound(instance), *derived(instance)]
    told = [f"{bound}" for bound in bounds if bound.value > us]
    told += [f"{reason}" for reason in _reasons(instance) if reason]
    if refuted(instance, us + 1):
        told.append("every grid is refuted at more than its time")
    spent = us * sum(replica.degree for replica in plan.replicas())
    prices = dict.fromkeys(instance.planned_cluster.gpus, Fraction(1))
    least = spending_bound(instance, prices)
    if least.value > spent:
        told.append(f"{least.value} GPU us are spent at the least, {spent} are")
    if data["solve"]:
        result = exactly(instance, 0.1)
        _, below = claim(instance, result)
        if result.status is Status.INFEASIBLE or below is None or below > us:
            told.append(f"{result.status}, {result.bound}, {result.reasons}")
    if told:
        raise Contradiction(f"{us} us, valid: {plan.model_dump_json()}: {told}")
    return f"a plan with {' and '.join(_divided(plan)) or 'nothing'} divided"


def _divided(plan: TrainingPlan) -> list[str]:
    return [field for field in FIELDS if (getattr(plan, field) or 1) > 1]


def _reasons(instance: Instance) -> list[str | None]:
    """What methods would say that leaves no plan, on the whole and of each way."""
    found = [impossible.reason(instance), holding.no_room(instance)]
    if fitting.impossible(instance, Limits(time_s=0.5)):
        found.append("no pipeline fits")
    return found
