"""A plan as the page draws it: blocks with layers, times and memory, all judged."""

from collections import Counter

from .. import api
from ..api import margins
from ..plans import Stage, TrainingPlan
from ..problems import Evaluation
from ..problems.training_plan.shapes import split_of
from ..report.pipelines import colours
from ..result import known_gap
from ..schema import Cluster, Instance, exact
from ..text.documents import Document

Drawn = Document


def of_instance(instance: Instance) -> Drawn:
    """Return what there is: cards with their colours, nodes, links, model, workload."""
    cluster, work = instance.planned_cluster, instance.workload
    shade = colours(cluster.gpus)
    counts = Counter[str]()
    for node in cluster.nodes:
        counts[node.gpu] += node.count
    calibrated = work.costs.compute.layer_times == "calibrated"
    cards = [
        {
            "name": name,
            "colour": shade[name],
            "gpus": counts[name],
            "memory_gib": card.memory_gib,
            "peak_tflops": card.peak_tflops,
            "timed_by_peak": work.costs.compute.layer_times == "analytic",
            "efficiency": None if calibrated else card.efficiency,
        }
        for name, card in sorted(cluster.gpus.items())
    ]
    return {
        "digest": instance.digest,
        "name": instance.name,
        "source": instance.source,
        "gpus": cluster.gpu_count,
        "model": {
            "name": instance.model.name,
            "layers": instance.model.layers,
            "parameters": instance.model.total_parameters,
        },
        "cards": cards,
        "nodes": [
            node.model_dump(include={"name", "gpu", "count", "intra_gbytes_per_s"})
            for node in cluster.nodes
        ],
        "network": {
            "gbytes_per_s": cluster.inter.gbytes_per_s,
            "latency_us": cluster.inter.latency_us,
            "pairs": len(cluster.inter.pairs),
        },
        "workload": {
            "global_batch": work.global_batch,
            "sequence_length": work.sequence_length,
            "micro_batch_sizes": list(work.micro_batch_sizes),
            "runs_on": work.runs_on,
            "recomputes": list(work.recomputes),
            "calibrated": calibrated,
        },
    }


def of_plan(instance: Instance, plan: TrainingPlan) -> tuple[Drawn, Evaluation]:
    """The plan judged: blocks, violations by name, totals, what lies idle."""
    judged = api.check(plan, instance)
    cluster = instance.planned_cluster
    interleave = split_of(instance, plan).interleave
    return {
        "objective_us": judged.objective,
        "pipelines": [
            _pipeline(cluster, plan, judged, number, interleave)
            for number in range(len(plan.pipelines))
        ],
        "totals": _totals(judged.parts),
        "settings": _settings(plan),
        "idle": _idle(cluster, plan),
        "violations": [
            {"rule": v.rule, "where": v.where, "by": v.by} for v in judged.violations
        ],
        "warnings": list(margins.warnings(instance, judged)),
    }, judged


def beside(objective: int | None, other: int | None) -> float | None:
    """Return how much longer than another, relative to that; negative where shorter."""
    gap = known_gap(objective, other)
    if gap is None or objective is None or other is None:
        return None
    return gap if objective >= other else -gap


def _pipeline(
    cluster: Cluster,
    plan: TrainingPlan,
    judged: Evaluation,
    number: int,
    interleave: int,
) -> Drawn:
    pipeline, times = plan.pipelines[number], judged.parts.get("stages")
    whole = judged.parts.get("pipeline_us")
    rows = times[number] if times else [None] * len(pipeline.stages)
    held = pipeline.held(interleave)
    return {
        "micro_batches": pipeline.micro_batches,
        "micro_batch_size": pipeline.micro_batch_size,
        "us": whole[number] if whole else None,
        "stages": [
            _stage(cluster, stage, row, judged.parts.get("peak_memory_mib", {}))
            | {"runs": [[run.start, run.stop] for run in runs if run]}
            for stage, row, runs in zip(pipeline.stages, rows, held, strict=True)
        ],
    }


def _stage(
    cluster: Cluster, stage: Stage, row: dict[str, int] | None, peaks: dict[str, int]
) -> Drawn:
    groups = []
    for replica in stage.replicas:
        node = cluster.node.get(replica.node)
        card = None if node is None else cluster.gpus[node.gpu]
        groups.append(
            {
                "node": replica.node,
                "card": None if node is None else node.gpu,
                "gpus": [gpu.rpartition(":")[2] for gpu in replica.gpus],
                "samples": replica.samples,
                "memory_mib": peaks.get(replica.gpus[0]),
                "room_mib": card and int(exact(card.memory_gib) * 1024),
            }
        )
    return {
        "layers": list(stage.layers),
        "recompute": stage.recompute,
        "groups": groups,
        "compute_us": row and row["compute_us"],
        "hop_us": row and row["hop_us"],
        "backward_us": row and row["backward_us"],
    }


def _totals(parts: dict[str, object]) -> Drawn:
    names = (
        *("sync_us", "update_us", "tied_us", "overhead_us", "pipeline_us"),
        *("tokens_per_second", "mfu", "low_s", "high_s", "least_headroom_mib"),
    )
    return {name: parts.get(name) for name in names}


def _settings(plan: TrainingPlan) -> Drawn:
    """Return what the plan chose as a whole."""
    fields = {"zero", "context_parallel", "expert_parallel", "interleave"}
    return plan.model_dump(include=fields, exclude_none=True)


def _idle(cluster: Cluster, plan: TrainingPlan) -> list[Drawn]:
    """Nodes with GPUs that the plan does not use, and how many."""
    used = Counter(gpu for replica in plan.replicas() for gpu in replica.gpus)
    busy = Counter(gpu.rpartition(":")[0] for gpu in used)
    return [
        {"node": node.name, "card": node.gpu, "gpus": node.count - busy[node.name]}
        for node in cluster.nodes
        if busy[node.name] < node.count
    ]
