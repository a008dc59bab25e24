"""What is proved without a search, where memory is just enough for some plan.

Plans choose how they are divided; GPUs have what a random plan needs, and little more.
"""

from collections.abc import Iterator
from fractions import Fraction
from random import Random
from typing import Any

import drawing
from claims import claim, exactly, random_plans

from hetopt.bounds import covering, impossible
from hetopt.bounds.training_plan import spending_bound, training_plan_bound
from hetopt.costs import under
from hetopt.plans import TrainingPlan
from hetopt.problems import training_plan as judge
from hetopt.problems.training_plan.shapes import split_of
from hetopt.result import Status
from hetopt.schema import Instance
from hetopt.schema.groups import FIELDS
from hetopt.schema.targets import TARGETS
from soaking import Contradiction

_DRAWS = 12  # of instances, until one divides what is wanted
_TRIES = 8  # plans, of which the most divided is taken

WEIGHT = 200


def draw(rng: Random) -> dict[str, Any]:
    """An instance of 2 to 16 GPUs, a plan that fits, and whether methods are asked.

    The plan divides what is wanted, most likely: each field in its turn.
    """
    wanted = rng.choice(FIELDS)
    for _ in range(_DRAWS):
        tree = _drawn(rng)
        if max(_offered(tree["workload"], wanted)) > 1:
            break
    target = "any" if rng.random() < 0.7 else rng.choice(sorted(TARGETS))
    plan = _made_to_fit(rng, tree, target, wanted)
    return {
        "instance": tree,
        "target": target,
        "plan": None if plan is None else plan.model_dump(mode="json"),
        "solve": rng.random() < 0.05,
    }


def _drawn(rng: Random) -> dict[str, Any]:
    """Half of the nodes have one GPU each: what lies in several is in several nodes."""
    alone = (1,) * rng.randint(2, 10)
    several = tuple(rng.choice([1, 1, 2, 2, 4]) for _ in range(rng.randint(2, 4)))
    return drawing.instance(
        rng,
        rng.choice([alone, several]),
        layers=rng.choice([1, 1, 1, 2, 2, 3, 4, 8]),
        batch=rng.choice([1, 2, 3, 4, 6, 8, 10]),
        sizes=rng.choice([(1,), (1,), (1, 2), (2,), (1, 3)]),
        even=rng.random() < 0.7,
        divides=True,
    )


def _offered(workload: dict[str, Any], field: str) -> list[int]:
    return [workload["costs"][field], *workload["alternatives"].get(field, ())]


def _made_to_fit(
    rng: Random, tree: dict[str, Any], target: str, wanted: str
) -> TrainingPlan | None:
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
    plan, memory = max(
        found, key=lambda pair: (wanted in _divided(pair[0]), len(_divided(pair[0])))
    )
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
    zero = instance.workload.costs.zero if plan.zero is None else plan.zero
    way = under(instance, zero=zero, split=split_of(instance, plan))
    # The least over all ways is no more than what is said of the plan's own.
    told = [*_none_fits(instance), *_none_fits(way)]
    if (bound := training_plan_bound(way)).value > us:
        told.append(f"{bound}")
    spent = us * sum(replica.degree for replica in plan.replicas())
    least = spending_bound(way, dict.fromkeys(way.planned_cluster.gpus, Fraction(1)))
    if least.value > spent:
        told.append(f"{least.value} GPU us are spent at the least, {spent} are")
    if data["solve"]:
        if (bound := training_plan_bound(instance)).value > us:
            told.append(f"{bound} of all ways")
        result = exactly(instance, 0.1)
        _, below = claim(instance, result)
        if result.status is Status.INFEASIBLE or below is None or below > us:
            told.append(f"{result.status}, {result.bound}, {result.reasons}")
    if told:
        raise Contradiction(f"{us} us, valid: {plan.model_dump_json()}: {told}")
    return f"a plan with {' and '.join(_divided(plan)) or 'nothing'} divided"


def _divided(plan: TrainingPlan) -> list[str]:
    return [field for field in FIELDS if (getattr(plan, field) or 1) > 1]


def _none_fits(instance: Instance) -> Iterator[str]:
    """What says that an instance, or a way to be divided, has no plan."""
    for reason in (impossible.reason(instance), covering.reason(instance)):
        if reason is not None:
            yield reason
