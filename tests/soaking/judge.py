"""The judge against plain floats and the fast evaluator; cheap bounds."""

from random import Random
from typing import Any

import drawing
from float_judge import FloatJudge
from random_plans import any_plan

from hetopt.bounds import covering, impossible
from hetopt.bounds.training_plan import training_plan_bound
from hetopt.costs import under
from hetopt.plans import TrainingPlan
from hetopt.problems import training_plan as judge
from hetopt.problems.training_plan.shapes import split_of
from hetopt.schema import Instance
from hetopt.schema.groups import WHOLE
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
        fixed={
            "layout": rng.choice(["equal", "equal", "told"]),
            **rng.choice([{}, {}, {"recompute": rng.choice(drawing.RULES)}]),
        },
    )
    return {"instance": tree, "plans": rng.randrange(10**9)}


def check(data: dict[str, Any]) -> str:
    """Compare times, memory and bounds of a few random plans."""
    instance = drawing.read(data["instance"])
    rng = Random(data["plans"])
    plans = [any_plan(instance, rng) for _ in range(_TRIES)]
    plans = [plan for plan in plans if plan is not None][:_PLANS]
    if not plans:
        return "no plan"
    bound, outcome = training_plan_bound(instance), "too large"
    for plan in plans:
        judged = judge.evaluate(instance, plan)
        if any(broken.rule == "layout" for broken in judged.violations):
            continue
        _fast_agrees(instance, plan, judged)
        _times_agree(instance, plan, judged)
        if judged.valid:
            outcome = "valid"
            reason = impossible.reason(instance) or covering.reason(instance)
            if judged.objective < bound.value or reason:
                raise Contradiction(
                    f"bound {bound}, {reason}, a plan of {judged.objective} us is "
                    f"valid: {plan.model_dump_json()}"
                )
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
    told = any(stage.runs for stage in plan.stages())
    if split.experts > 1 or told or set(instance.workload.recomputes) - {*WHOLE}:
        return  # which floats do not know
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
