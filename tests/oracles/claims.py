"""What an exact method says of an instance, held against plans: all, or some."""

import time
from collections.abc import Iterator
from random import Random
from unittest.mock import patch

from brute_force_training import best_training_plan
from drawing import MOST_GIB
from flat import flat
from float_judge import FloatJudge
from random_plans import any_plan
from soaking import Contradiction

from hetopt import portfolio
from hetopt.errors import NoPlan, Unsupported
from hetopt.exact import enumeration
from hetopt.modelling import Limits
from hetopt.planners import islands, megatron
from hetopt.plans import TrainingPlan
from hetopt.problems import training_plan as judge
from hetopt.result import Result, Status
from hetopt.schema import Instance

_PLANNER_S = 0.05


def solved(instance: Instance, *, warm: bool, time_s: float) -> Result:
    """The exact method's result; without heuristics first, unless `warm`.

    Where it searches and bounds only, a little of the time will do.
    """
    time_s = time_s if enumeration.is_small(instance) else time_s / 10
    name, value = ("_ROUNDS", 200) if warm else ("_warm_up", lambda *_: None)
    with patch.object(enumeration, name, value):
        return exactly(instance, time_s)


def exactly(instance: Instance, time_s: float) -> Result:
    """The exact method's result, as users have it: of all ways to be divided."""
    limits = Limits(time_s=time_s)
    return portfolio.exactly("training_plan", instance, limits, None, None)


def refuted(instance: Instance, result: Result) -> str:
    """The outcome as a word; `Contradiction` where any plan shows that it is wrong."""
    word, below = claim(instance, result)
    several = max(instance.workload.micro_batch_sizes) > 1
    best = best_training_plan(instance, several_replicas=several, below=below)
    if best is not None:
        contradict(result, *best)
    if result.status is Status.INFEASIBLE and _one_whole(instance):
        _reason_holds(instance, result.reasons[0])
    return word


def _one_whole(instance: Instance) -> bool:
    """Whether a plan chooses no way to be divided, nor divides experts or states again.

    Otherwise the reason is one of many: which of them memory helps, nobody tells.
    """
    splits = instance.workload.splits
    return len(splits) == splits[0].experts == splits[0].groups == 1


def _reason_holds(instance: Instance, reason: str) -> None:
    """Memory is the reason where more of it would do, and only there.

    With memory for everything, a plan is one whose pipelines have one stage each, which
    is found with one layer as well.
    """
    tree = flat(instance, exclude_unset=True)
    model, costs = tree["model"], tree["workload"]["costs"]
    runs, layers = costs.pop("interleave", 1), model["layers"]
    model |= {"layers": 1, "dense_layers": 0, "vocabulary": 0}
    model |= {"layer_kinds": None, "layer_shapes": None, "mtp_layers": 0}
    for field in ("layer_parameters", "active_layer_parameters"):
        if model.get(field):
            model[field] = model[field][:1]
    for row in costs.get("profile", ()):
        for field in ("layer_us", "backward_us", "update_us"):
            if row.get(field):
                row[field] = row[field][:1]
        row["layer_mib"] = row["activation_mib"] = None
    costs |= {"reserve_mib": 0, "zero": 0}
    tree["workload"]["alternatives"] = {}
    for gpu in tree["cluster"]["gpus"].values():
        gpu["memory_gib"] = MOST_GIB
    several = max(instance.workload.micro_batch_sizes) > 1
    ample = Instance.model_validate(tree, strict=False)
    held = best_training_plan(ample, several_replicas=several) is not None
    kind = reason.partition(":")[0]
    if kind == "memory" and not held and _states_exceed(instance):
        return  # there are two reasons, and this one is true
    layers += 2 * (costs.get("layout") == "told")  # the ends may have none
    if kind != ("layers" if runs > layers else "memory" if held else "batch"):
        raise Contradiction(f"the reason is {reason!r}; ample memory helps: {held}")


def _states_exceed(instance: Instance) -> bool:
    """Whether states alone exceed all memory, or a layer's any node, in floats."""
    model, cluster = instance.model, instance.planned_cluster
    floats = FloatJudge(instance, zero=max(instance.workload.zeros))
    reserve = floats.costs.reserve_mib * 2**20
    rooms = [
        node.count * max(0.0, cluster.gpus[node.gpu].memory_gib * 2**30 - reserve)
        for node in cluster.nodes
    ]
    rows = [row for row in floats.costs.profile if row.layer_mib]
    most = min(cluster.gpu_count, instance.workload.global_batch)
    # Each context-parallel part of a group has all that the others have.
    held = [floats.costs.context_parallel * p for p in model.parameters]
    layers = [floats.parameter(1, floats.narrow) * p for p in held]
    alone = [floats.parameter(most, floats.narrow) * p for p in held]
    if rows:
        layers = alone = [
            2**20 * min(row.tensor_parallel * row.layer_mib[x] for row in rows)
            for x in range(model.layers)
        ]
    ends = 0 if floats.costs.head == "omit" else 1 if model.tied_embeddings else 2
    ends *= floats.parameter(1, floats.wide) * model.vocabulary * model.hidden
    slack = 2**20  # what roundings to MiB leave open
    return sum(layers) + ends > sum(rooms) - slack or max(alone) > max(rooms) - slack


def random_plans(instance: Instance, rng: Random, count: int) -> Iterator[TrainingPlan]:
    """So many tries of a random plan; it may need too much memory."""
    for _ in range(count):
        plan = any_plan(instance, rng)
        if plan is not None:
            yield plan


def tightened(instance: Instance, plan: TrainingPlan) -> Instance:
    """Return the instance whose GPUs have just the memory that a valid plan needs."""
    cluster, most = instance.planned_cluster, dict[str, int]()
    needs = judge.evaluate(instance, plan).parts["peak_memory_mib"]
    for replica in plan.replicas():
        kind = cluster.node[replica.node].gpu
        most[kind] = max(most.get(kind, 1), *(needs[gpu] for gpu in replica.gpus))
    gpus = {
        kind: gpu.model_copy(update={"memory_gib": most.get(kind, 1) / 1024})
        for kind, gpu in cluster.gpus.items()
    }
    cluster = cluster.model_copy(update={"gpus": gpus})
    return instance.model_copy(update={"cluster": cluster})


def some_plans(
    instance: Instance, rng: Random, count: int = 30
) -> Iterator[TrainingPlan]:
    """Random plans, and those of two planners."""
    yield from random_plans(instance, rng, count)
    deadline = time.monotonic() + _PLANNER_S
    for planner in (islands, megatron):
        try:
            yield planner.plan(instance, deadline=deadline)
        except (NoPlan, Unsupported):
            continue


def least_us(instance: Instance, rng: Random) -> int | None:
    """The least time of a few plans that are valid; None where none is."""
    plans = some_plans if rng.random() < 0.25 else random_plans
    judged = [judge.evaluate(instance, plan) for plan in plans(instance, rng, 6)]
    return min((one.objective for one in judged if one.valid), default=None)


def claim(instance: Instance, result: Result) -> tuple[str, int | None]:
    """The outcome as a word, and the time that no plan is below; None: there is none.

    `Contradiction` where its own plan is not what it says.
    """
    if result.plan is not None:
        judged = judge.evaluate(instance, result.plan)
        if not judged.valid or judged.objective != result.objective:
            raise Contradiction(
                f"said {result.objective}, the plan is {judged.objective}, "
                f"{list(map(str, judged.violations))}"
            )
    bound = int(result.bound.value) if result.bound else 0
    if result.plan is not None and bound > result.objective:
        raise Contradiction(f"bound {bound} is above its own plan {result.objective}")
    words = {
        Status.OPTIMAL: "optimal",
        Status.FEASIBLE: "bound",
        Status.UNDECIDED: "bound alone",
        Status.INFEASIBLE: "infeasible",
    }
    below = None if result.status is Status.INFEASIBLE else bound
    return words[result.status], below


def contradict(result: Result, us: int, plan: TrainingPlan) -> None:
    """Tell of a plan that shows a result to be wrong."""
    raise Contradiction(
        f"said {result.status} with bound {result.bound}, a plan of {us} us "
        f"is valid: {plan.model_dump_json()}"
    )
