"""Planning time of `hexiscale` against the number of GPUs, as in the paper's Fig. 9.

Clusters in the proportions of HexiScale's 240-GPU cluster (Appendix B), Llama 30B,
64 sequences for every 4 GPUs; one process, the time is that of the whole planner.
"""

import resource
import time
from statistics import median
from typing import Any

from hetopt import catalogue
from hetopt.planners import hexiscale
from hetopt.problems import training_plan
from hetopt.schema import Instance

SIZES = (64, 128, 192, 256, 320, 512, 1024)
TYPES = catalogue.family("hexiscale")
SHARES = (("RTX3090", 8, 40), ("RTX3090", 4, 24), ("RTX4090", 8, 160), ("A800", 8, 16))


def cluster_of(gpus: int) -> dict[str, Any]:
    """Nodes with `gpus` GPUs in all (a multiple of 8), spread over the types."""
    nodes: list[dict[str, Any]] = []
    for gpu, size, share in SHARES:
        for _ in range(round(share * gpus / 240 / size)):
            nodes.append({"gpu": gpu, "count": size})
    missing = (gpus - sum(node["count"] for node in nodes)) // 8
    nodes += [{"gpu": "RTX4090", "count": 8}] * max(0, missing)
    while (over := sum(node["count"] for node in nodes) - gpus) > 0:
        nodes.remove(next(node for node in nodes if node["count"] <= over))
    named = [
        {
            "name": f"node{i}",
            "intra_gbytes_per_s": TYPES[node["gpu"]].intra_gbytes_per_s,
            **node,
        }
        for i, node in enumerate(nodes)
    ]
    used = {node["gpu"] for node in named}
    types = {
        name: {"peak_tflops": card.tflops, "memory_gib": card.memory_gib}
        for name, card in TYPES.items()
        if name in used
    }
    return {"gpus": types, "nodes": named, "inter": {"gbytes_per_s": 0.7}}


def instance_of(gpus: int) -> Instance:
    """Llama 30B on `gpus` GPUs."""
    document = {
        "name": f"hexiscale-scale-{gpus}",
        "model": {
            "name": "llama-30b",
            "layers": 60,
            "hidden": 6656,
            "heads": 52,
            "vocabulary": 32000,
            "parameters_per_layer": 12 * 6656**2,
        },
        "workload": {
            "sequence_length": 4096,
            "global_batch": 16 * gpus,
            "costs": {
                "bytes_per_parameter": 8,
                "head": "omit",
                "activations": "checkpoint",
                "in_flight": "one",
            },
        },
        "cluster": cluster_of(gpus),
    }
    return Instance.model_validate(document, strict=False)


def measured(gpus: int, runs: int) -> dict[str, Any]:
    """Medians of some planning runs, and what the judge says of the plan."""
    instance = instance_of(gpus)
    walls, cpus = [], []
    for _ in range(runs):
        wall, cpu = time.perf_counter(), time.process_time()
        plan, history = hexiscale.plan_with(instance)
        walls.append(time.perf_counter() - wall)
        cpus.append(time.process_time() - cpu)
    judged = training_plan.evaluate(instance, plan)
    return {
        "instance": instance.name,
        "digest": instance.digest,
        "planner": "hexiscale",
        "gpus": instance.planned_cluster.gpu_count,
        "runs": runs,
        "seconds": round(median(walls), 2),
        "cpu_seconds": round(median(cpus), 2),
        "peak_mib": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024,
        "objective": judged.objective,
        "hfu": round(judged.parts["hfu"], 4),
        "pipelines": len(plan.pipelines),
        "rounds": len(history),
        "rounds_without_plan": sum(r.objective is None for r in history),
    }
