"""The judge against plain floats and the fast evaluator; cheap bounds; broken plans."""

import json
from random import Random
from typing import Any

import drawing
from float_judge import FloatJudge
from random_plans import any_plan

from hetopt.bounds import impossible
from hetopt.bounds.training_plan import training_plan_bound
from hetopt.costs import under
from hetopt.exact.training_plan import holding
from hetopt.plans import TrainingPlan
from hetopt.problems import training_plan as judge
from hetopt.problems.training_plan.shapes import split_of
from hetopt.schema import Instance
from hetopt.schema.splits import FIELDS
from hetopt.search.fast_cost import FastCost
from soaking import Contradiction

_PLANS, _TRIES = 2, 5
_MIB = 2**20

WEIGHT = 180


def draw(rng: Random) -> dict[str, Any]:
    """An instance of 2 to 60 GPUs, and the seed of its plans."""
    counts = tuple(
        rng.choice([1, 1, 1, 2, 2, 4, 8])
        for _ in range(rng.choice([2, 2, 2, 2, 2, 3, 3, 4, 6, 12]))
    )
    tree = drawing.instance(
        rng,
        counts[:7] if sum(counts) > 60 else counts,
        layers=rng.choice([1, 1, 2, 2, 3, 5, 8]),
        batch=rng.choice([1, 2, 3, 5, 8, 16]),
        sizes=rng.choice([(1,), (1, 2), (2,), (1, 3), (2, 3), (4,), (1, 2, 5)]),
        divides=rng.random() < 0.5,
    )
    return {"instance": tree, "plans": rng.randrange(10**9)}


def check(data: dict[str, Any]) -> str:
    """Compare times, memory, bounds and violations of a few random plans."""
    instance = drawing.read(data["instance"])
    rng = Random(data["plans"])
    plans = [any_plan(instance, rng) for _ in range(_TRIES)]
    plans = [plan for plan in plans if plan is not None][:_PLANS]
    if not plans:
        return "no plan"
    bound, outcome = training_plan_bound(instance), "too large"
    for plan in plans:
        judged = judge.evaluate(instance, plan)
        _fast_agrees(instance, plan, judged)
        _times_agree(instance, plan, judged)
        if judged.valid:
            outcome = "valid"
            reason = impossible.reason(instance) or holding.no_room(instance)
            if judged.objective < bound.value or reason:
                raise Contradiction(
                    f"bound {bound}, {reason}, a plan of {judged.objective} us is "
                    f"valid: {plan.model_dump_json()}"
                )
        _broken_is_rejected(instance, plan, rng)
    return outcome


def _fast_agrees(instance: Instance, plan: TrainingPlan, judged: Any) -> None:
    """The fast evaluator has the judge's time, and says whether all of it fits."""
    zero = instance.workload.costs.zero if plan.zero is None else plan.zero
    cost = FastCost(under(instance, zero=zero, split=split_of(instance, plan)))
    pipes = cost.compact(plan)
    if pipes is None:  # stages of several replicas
        return
    fits = all(cost.fits(pipe, len(pipes)) for pipe in pipes)
    rules = {broken.rule for broken in judged.violations}
    wrong = rules <= {"memory", "interleave", "zero_groups"} and fits != (not rules)
    if cost.iteration_us(pipes) != judged.objective or wrong:
        raise Contradiction(
            f"judged {judged.objective} us, {rules}; {cost.iteration_us(pipes)} us, "
            f"{fits} by the fast evaluator: {plan.model_dump_json()}"
        )


def _times_agree(instance: Instance, plan: TrainingPlan, judged: Any) -> None:
    split = split_of(instance, plan)
    if split.experts > 1:  # whose times floats do not know
        return
    floats = FloatJudge(under(instance, split=split), zero=plan.zero)
    ours, theirs = judged.objective, 1e6 * floats.iteration(plan)
    if abs(ours - theirs) > 1e-9 * theirs + floats.roundings(plan):
        raise Contradiction(
            f"judged {ours} us, floats say {theirs}: {plan.model_dump_json()}"
        )
    holders = floats.holders(plan)
    told = {v.where for v in judged.violations if v.rule == "memory"}
    for i, pipeline in enumerate(plan.pipelines):
        for j, stage in enumerate(pipeline.stages):
            for r, replica in enumerate(stage.replicas):
                need = floats.under(stage.recompute).memory(
                    range(*stage.layers),
                    replica.degree,
                    replica.samples,
                    pipeline.micro_batches,
                    len(pipeline.stages),
                    j,
                    holders,
                    replica.node,
                )
                said = judged.parts["peak_memory_mib"][replica.gpus[0]]
                low, high = need * (1 - 1e-9), need * (1 + 1e-9)
                # Weighed layers add a difference of two rounded activations.
                if not low - _MIB <= said * _MIB <= high + 7 * _MIB:
                    raise Contradiction(
                        f"judged {said} MiB, floats say {need / _MIB} at "
                        f"{(i, j, r)}: {plan.model_dump_json()}"
                    )
                gpu = floats.cluster.gpus[floats.nodes[replica.node].gpu]
                room = int(gpu.memory_gib * 1024 * (1 + 1e-12))
                where = f"pipelines[{i}].stages[{j}].replicas[{r}]"
                if (where in told) != (said > room):
                    raise Contradiction(f"{said} of {room} MiB, yet {told}")


def _broken_is_rejected(instance: Instance, plan: TrainingPlan, rng: Random) -> None:
    name = rng.choice(sorted(_BREAKS))
    tree = json.loads(plan.model_dump_json())
    if not _BREAKS[name](tree, instance, rng):
        return
    broken = TrainingPlan.model_validate_json(json.dumps(tree))
    if judge.evaluate(instance, broken).valid:
        raise Contradiction(f"{name} is accepted: {json.dumps(tree)}")


def _stage(tree: dict[str, Any], rng: Random) -> dict[str, Any]:
    return rng.choice(rng.choice(tree["pipelines"])["stages"])


def _layer_dropped(tree: dict[str, Any], instance: Instance, rng: Random) -> bool:
    stage = _stage(tree, rng)
    stage["layers"][0] += 1
    return stage["layers"][0] < stage["layers"][1]


def _layer_twice(tree: dict[str, Any], instance: Instance, rng: Random) -> bool:
    stage = _stage(tree, rng)
    stage["layers"][0] -= 1
    return stage["layers"][0] >= 0


def _beyond_the_model(tree: dict[str, Any], instance: Instance, rng: Random) -> bool:
    tree["pipelines"][0]["stages"][-1]["layers"][1] += 1
    return True


def _gpu_twice(tree: dict[str, Any], instance: Instance, rng: Random) -> bool:
    one, other = (rng.choice(_stage(tree, rng)["replicas"]) for _ in range(2))
    if one is other:
        return False
    one["gpus"] = other["gpus"]
    return True


def _unknown_gpu(tree: dict[str, Any], instance: Instance, rng: Random) -> bool:
    _stage(tree, rng)["replicas"][0]["gpus"] = [rng.choice(["n0:4096", "elsewhere:0"])]
    return True


def _across_nodes(tree: dict[str, Any], instance: Instance, rng: Random) -> bool:
    replica = rng.choice(_stage(tree, rng)["replicas"])
    nodes = [node.name for node in instance.planned_cluster.nodes]
    other = rng.choice([n for n in nodes if not replica["gpus"][0].startswith(n + ":")])
    replica["gpus"].append(f"{other}:0")
    return True


def _sample_too_many(tree: dict[str, Any], instance: Instance, rng: Random) -> bool:
    rng.choice(_stage(tree, rng)["replicas"])["samples"] += 1
    return True


def _batch_too_large(tree: dict[str, Any], instance: Instance, rng: Random) -> bool:
    rng.choice(tree["pipelines"])["micro_batches"] += 1
    return True


def _size_not_offered(tree: dict[str, Any], instance: Instance, rng: Random) -> bool:
    pipeline = rng.choice(tree["pipelines"])
    pipeline["micro_batch_size"] = 1 + max(instance.workload.micro_batch_sizes)
    return True


def _order(tree: dict[str, Any], instance: Instance, rng: Random) -> bool:
    stages = rng.choice(tree["pipelines"])["stages"]
    stages.reverse()
    return len(stages) > 1


def _zero_not_offered(tree: dict[str, Any], instance: Instance, rng: Random) -> bool:
    others = set(range(4)) - set(instance.workload.zeros)
    tree["zero"] = min(others, default=None)
    # What is measured as a whole is not divided: such a plan is no question.
    weighed = any(row.layer_mib for row in instance.workload.costs.profile)
    return bool(others) and not weighed


def _rule_not_offered(tree: dict[str, Any], instance: Instance, rng: Random) -> bool:
    others = sorted({*drawing.RULES} - {*instance.workload.recomputes})
    _stage(tree, rng)["recompute"] = others[0] if others else None
    return bool(others)


def _split_not_offered(tree: dict[str, Any], instance: Instance, rng: Random) -> bool:
    number = rng.randrange(len(FIELDS))
    offered = {split[number] for split in instance.workload.splits}
    tree[FIELDS[number]] = 1 + max(offered)
    return True


_WAYS = (
    _layer_dropped,
    _layer_twice,
    _beyond_the_model,
    _gpu_twice,
    _unknown_gpu,
    _across_nodes,
    _sample_too_many,
    _batch_too_large,
    _size_not_offered,
    _order,
    _zero_not_offered,
    _rule_not_offered,
    _split_not_offered,
)
_BREAKS = {way.__name__.strip("_"): way for way in _WAYS}
