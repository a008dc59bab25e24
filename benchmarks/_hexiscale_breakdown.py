"""FSDP, and where an iteration's time goes: Fig. 4, 5, 7 and 11 of `hexiscale.py`.

Nothing here is typed in: the parts are the judge's, stage by stage, and the bubbles
those of the simulator, which runs every pipeline event by event.
"""

import time
from collections.abc import Iterator
from fractions import Fraction
from typing import Any

from _hexiscale_sections import batched, instance_of, seconds, table_5

from hetopt import registry
from hetopt.costs import CostTable
from hetopt.errors import NoPlan
from hetopt.explaining.simulator import simulate
from hetopt.explaining.times import gpu_times, stage_times
from hetopt.planners import hexiscale, megatron
from hetopt.plans import Pipeline, Replica, Stage, TrainingPlan
from hetopt.problems import training_plan
from hetopt.schema import Instance, set_fields

Row = dict[str, Any]
HOMOGENEOUS = [
    f"homogeneous-{link}-{model}"
    for model in ("llama2-7b", "llama2-13b", "llama-30b")
    for link in ("ethernet", "rdma")
]
HETEROGENEOUS = (
    "setting-1-llama2-7b",
    "setting-1-llama2-13b",
    "setting-2-llama2-7b",
    "setting-2-llama2-13b",
    "setting-3-llama-30b",
)
#: What the paper's three words are of the judge's parts; `idle` is a GPU not used.
COMPUTATION = ("compute", "head", "update", "overhead")
COMMUNICATION = ("tensor_parallel", "hops", "sync", "tied")
BUBBLES = (
    *("slower_stage", "filling", "slower_pipeline", "slower_sync", "slower_update"),
    "idle",
)
# What a GPU keeps of its micro-batch; Eq. 11 has the inputs of its layers alone.
ACTIVATIONS: dict[str, dict[str, Any]] = {
    "layers' inputs, Eq. 11": {},
    "all activations": {"activations": "standard", "flash": True, "recompute": "none"},
}


# --- Fig. 4 and 5: FSDP ----------------------------------------------------------


def fsdp(limit_s: float) -> Iterator[Row]:
    """Fig. 4 and 5: FSDP alone on the homogeneous settings."""
    for name in HOMOGENEOUS:
        instance = instance_of(name)
        others = {
            "megatron, s": seconds(instance, megatron.plan(instance)),
            "hexiscale, s": seconds(instance, hexiscale.plan(instance)),
        }
        for held in ACTIVATIONS:
            best = best_fsdp(instance, held)
            yield {"setting": name, "a GPU keeps": held, **best, **others}


def best_fsdp(instance: Instance, held: str) -> Row:
    """The fastest of the powers of two that a GPU may take at a time."""
    found, gpus = [], instance.planned_cluster.gpu_count
    most = instance.workload.global_batch // gpus
    for b in (1 << e for e in range(most.bit_length())):
        sharded = fsdp_instance(instance, b, held)
        judged = training_plan.evaluate(sharded, fsdp_plan(sharded, b))
        if judged.valid:
            found.append((judged.parts["iteration_us"], b, judged.parts))
    if not found:
        return {"sequences a GPU": None}
    alone = found[0][0] if found[0][1] == 1 else None
    iteration_us, b, judged = min(found, key=lambda one: one[:2])
    slowest_us = max(judged["pipeline_us"])
    hidden_us = max(slowest_us, judged["sync_us"])
    return {
        "sequences a GPU": b,
        "times gathered": most // b,
        "computation, s": slowest_us / 1e6,
        "communication, s": judged["sync_us"] / 1e6,
        "FSDP, s": iteration_us / 1e6,
        "MFU, %": 100 * judged["mfu"],
        "if all is hidden, s": hidden_us / 1e6,
        "one sequence a GPU, s": alone / 1e6 if alone else None,
    }


def fsdp_instance(instance: Instance, b: int, held: str) -> Instance:
    """ZeRO 3 that gathers weights for every pass, `b` sequences on each GPU."""
    gpus = instance.planned_cluster.gpu_count
    document = instance.model_dump(mode="json")
    document["name"] += f", FSDP of {b}"
    document["workload"]["micro_batch_sizes"] = [b * gpus]
    set_fields(
        document["workload"]["costs"],
        {
            "zero": 3,
            "gathers": "micro_batch",
            **ACTIVATIONS[held],
        },
    )
    return Instance.model_validate(document, strict=False)


def fsdp_plan(instance: Instance, b: int) -> TrainingPlan:
    """All layers on every GPU: one stage whose replicas are the GPUs."""
    ids = instance.planned_cluster.gpu_ids()
    replicas = tuple(Replica(gpus=(gpu,), samples=b) for gpu in ids)
    together = b * len(replicas)
    return TrainingPlan(
        pipelines=(
            Pipeline(
                micro_batches=instance.workload.global_batch // together,
                micro_batch_size=together,
                stages=(Stage(layers=(0, instance.model.layers), replicas=replicas),),
            ),
        )
    )


# --- Fig. 7 and 11: parts of an iteration ----------------------------------------


def breakdown(limit_s: float) -> Iterator[Row]:
    """Fig. 7: communication, computation and bubbles, beside Galvatron."""
    for name in HETEROGENEOUS:
        instance = instance_of(name)
        for planner in ("hexiscale", "galvatron_like"):
            try:
                plan = registry.entry("planners", planner).plan(
                    instance, seed=0, deadline=time.monotonic() + limit_s
                )
            except NoPlan:
                plan = None
            row = {"setting": name, "planner": planner}
            yield row | (divided(instance, plan) if plan else {"iteration, s": None})


def breakdown_metis(limit_s: float) -> Iterator[Row]:
    """Fig. 11: the same on setting 3, Llama 30B, beside Metis."""
    instance = instance_of("setting-3-llama-30b")
    wide = batched(instance)
    document = instance.model_dump(mode="json")
    document["workload"]["micro_batch_sizes"] = [8]
    eight = Instance.model_validate(document, strict=False)
    yield {"plan": "hexiscale"} | divided(instance, hexiscale.plan(instance))
    yield {"plan": "Metis, Table 5"} | divided(eight, table_5(eight))
    try:
        ours = registry.entry("planners", "metis").plan(
            wide, seed=0, deadline=time.monotonic() + limit_s
        )
    except NoPlan:
        return
    yield {"plan": "metis, ours"} | divided(wide, ours)


def divided(instance: Instance, plan: TrainingPlan) -> Row:
    """An iteration of a plan, mean of all GPUs, and the simulator's beside it.

    The judge's three parts add up to its iteration. A plan that needs more memory than
    there is is divided as well.
    """
    judged = training_plan.evaluate(instance, plan)
    iteration_us = int(judged.parts["iteration_us"])
    gpus = instance.planned_cluster.gpu_count
    rows = stage_times(CostTable(instance), plan, judged.parts)
    total = gpu_times(rows, gpus, iteration_us)

    def mean_s(names: tuple[str, ...]) -> float:
        return sum(total[name] for name in names) / gpus / 1e6

    bubble_s = mean_s(BUBBLES)
    simulated_us, idle = simulated(instance, plan)
    return {
        "pipelines x stages": shape(plan),
        "iteration, s": iteration_us / 1e6,
        "computation, s": mean_s(COMPUTATION),
        "communication, s": mean_s(COMMUNICATION),
        "bubble, s": bubble_s,
        "bubble, %": 100 * bubble_s / (iteration_us / 1e6),
        "simulated, s": simulated_us / 1e6,
        "simulated bubble, %": 100 * idle,
    }


def simulated(instance: Instance, plan: TrainingPlan) -> tuple[float, float]:
    """The simulator's iteration in us, and the share of it in which GPUs are idle.

    A GPU is idle between passes, after those of its pipeline while a slower one works,
    and where the plan does not use it. Synchronisation keeps all of them busy.
    """
    run = simulate(instance, plan)
    idle, used = Fraction(0), 0
    slowest = max(line.total_us for line in run.timelines)
    for pipeline, line in zip(plan.pipelines, run.timelines, strict=True):
        for stage, waits in zip(pipeline.stages, line.idle_us, strict=True):
            count = sum(replica.degree for replica in stage.replicas)
            idle += count * (waits + slowest - line.total_us)
            used += count
    gpus = instance.planned_cluster.gpu_count
    idle = run.pipeline_factor * idle + (gpus - used) * run.iteration_us
    return float(run.iteration_us), float(idle / (gpus * run.iteration_us))


def shape(plan: TrainingPlan) -> str:
    """Stages of every pipeline, the same ones counted."""
    depths = [len(pipeline.stages) for pipeline in plan.pipelines]
    return ", ".join(f"{depths.count(d)} x {d}" for d in sorted(set(depths)))
