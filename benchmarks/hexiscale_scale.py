"""Planning time of `hexiscale` against the number of GPUs, as in the paper's Fig. 9.

Clusters in the proportions of HexiScale's 240-GPU cluster (Appendix B), Llama 30B,
64 sequences for every 4 GPUs; one process, the time is that of the whole planner.
Prints a table and the exponent of a power law; writes one JSON line a size.

    python benchmarks/hexiscale_scale.py [SIZE ...]
"""

import json
import math
import resource
import sys
import time
from pathlib import Path
from typing import Any

from hetopt.planners import hexiscale
from hetopt.problems import training_plan
from hetopt.schema import Instance

SIZES = (64, 128, 192, 256, 320, 512, 1024)
RESULTS = Path(__file__).parent / "results" / "hexiscale_scale.jsonl"
TYPES: dict[str, tuple[float, int, int]] = {  # TFLOPS, GiB, GB/s within a node
    "RTX3090": (80, 24, 24),
    "RTX4090": (165.2, 24, 32),
    "A800": (312, 80, 200),
}
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
        {"name": f"node{i}", "intra_gbytes_per_s": TYPES[node["gpu"]][2], **node}
        for i, node in enumerate(nodes)
    ]
    used = {node["gpu"] for node in named}
    types = {
        name: {"peak_tflops": tflops, "memory_gib": gib}
        for name, (tflops, gib, _) in TYPES.items()
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


def measured(gpus: int) -> dict[str, Any]:
    """One planning run."""
    instance = instance_of(gpus)
    wall, cpu = time.perf_counter(), time.process_time()
    plan, history = hexiscale.plan_with(instance)
    wall, cpu = time.perf_counter() - wall, time.process_time() - cpu
    judged = training_plan.evaluate(instance, plan)
    return {
        "gpus": instance.planned_cluster.gpu_count,
        "planner": "hexiscale",
        "wall_s": round(wall, 2),
        "cpu_s": round(cpu, 2),
        "peak_mib": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024,
        "iteration_us": judged.objective,
        "hfu": round(judged.parts["hfu"], 4),
        "pipelines": len(plan.pipelines),
        "rounds": len(history),
        "rounds_without_plan": sum(r.objective is None for r in history),
    }


def exponent(rows: list[dict[str, Any]]) -> float:
    """Slope of log time against log size, by least squares."""
    points = [(math.log(row["gpus"]), math.log(row["cpu_s"])) for row in rows]
    x = sum(p[0] for p in points) / len(points)
    y = sum(p[1] for p in points) / len(points)
    over = sum((a - x) * (b - y) for a, b in points)
    return over / sum((a - x) ** 2 for a, _ in points)


def main(sizes: list[int]) -> None:
    """Measure, print, write."""
    rows = []
    print(f"{'GPUs':>5} {'wall s':>7} {'CPU s':>7} {'MiB':>5} {'iteration s':>11} HFU")
    for gpus in sizes:
        row = measured(gpus)
        rows.append(row)
        print(
            f"{row['gpus']:>5} {row['wall_s']:>7} {row['cpu_s']:>7} "
            f"{row['peak_mib']:>5} {row['iteration_us'] / 1e6:>11.1f} {row['hfu']:.3f}",
            flush=True,
        )
    if len(rows) > 1:
        print(f"CPU time grows with the {exponent(rows):.2f}th power of the GPUs")
    RESULTS.parent.mkdir(exist_ok=True)
    RESULTS.write_text("".join(json.dumps(row) + "\n" for row in rows))


if __name__ == "__main__":
    main([int(size) for size in sys.argv[1:]] or list(SIZES))
