"""Exact provisioning: seconds to a proof, or the gap that a minute leaves.

    python benchmarks/exact_provisioning.py [--large] [--runs 5]

Espresso's four jobs (56 GPUs of 4 types, up to 16 stages, d = 1 .. 16) under 10
deadlines each, from the least that can be met to the one that binds nothing any more,
and their whole fronts; `--large` takes 8 types, 512 GPUs and up to 24 stages instead.
Every row goes to benchmarks/results/exact_provisioning.jsonl as well.
"""

import argparse
import json
from statistics import median
from typing import Any

from _measuring import keep, measured

from hetopt import Instance, Limits, catalogue
from hetopt.exact import provisioning
from hetopt.files import load_instance
from hetopt.problems.provisioning import Data, data

FILE = "exact_provisioning.jsonl"
JOBS = ("llama-1.3b", "llama-3b", "llama-7b", "vit")
DEGREES = (1, 2, 4, 8, 16)
DEADLINES = 10
# GB/s of network for each GPU
NETWORK = {
    "H100": 12.5,
    "A100-80": 6.25,
    "A100-40": 6.25,
    "L40S": 3.125,
    "V100": 3.125,
    "A10G": 1.5625,
    "L4": 1.5625,
    "T4": 1.5625,
}


def job(name: str) -> Data:
    """One of Espresso's jobs at every degree, asked nothing yet."""
    instance = load_instance(f"espresso/{name}")
    listed = json.loads(instance.model_dump_json())
    listed["search"]["data_parallel"] = list(DEGREES)
    listed["requirements"] = {}
    return data(Instance.model_validate_json(json.dumps(listed)))


def large() -> Data:
    """70 layers of width 4096 on the market's 8 types, 64 GPUs of each."""
    offers = [
        {
            "gpu": gpu,
            "quota": 64,
            "usd_per_hour": card.usd_per_hour,
            "peak_tflops": card.tflops,
            "memory_gib": card.memory_gib,
            "efficiency": 0.45,
            "gbytes_per_s": NETWORK[gpu],
        }
        for gpu, card in catalogue.family("market").items()
    ]
    instance = {
        "name": "market-512",
        "model": {
            "name": "70 layers",
            "layers": 70,
            "hidden": 4096,
            "heads": 32,
            "vocabulary": 32000,
        },
        "workload": {
            "sequence_length": 4096,
            "global_batch": 128,
            "iterations": 1000,
            "costs": {"head": "omit", "flash": True, "sync_overlap": "backward"},
        },
        "offers": offers,
        "search": {
            "micro_batches": 16,
            "data_parallel": list(DEGREES),
            "max_stages": 24,
        },
    }
    return data(Instance.model_validate_json(json.dumps(instance)))


def deadlines(posed: Data, limits: Limits) -> list[float]:
    """Geometric steps from the least deadline found to that of the cheapest plan."""
    cheapest = provisioning.solve(posed, limits=limits)
    rich = posed.model_copy(update={"budget_usd": 1e9})
    fastest = provisioning.solve(rich, limits=limits)
    low = fastest.evaluation.parts["total_s"]
    high = cheapest.evaluation.parts["total_s"]
    steps = [low * (high / low) ** (i / (DEADLINES - 1)) for i in range(DEADLINES)]
    return [round(step + 0.001, 3) for step in steps]


def measure(posed: Data, runs: int, limits: Limits) -> dict[str, Any]:
    """One row: the result, and the median of the seconds of some runs."""
    result, seconds = measured(lambda: provisioning.solve(posed, limits=limits), runs)
    return {
        "deadline_s": posed.deadline_s,
        "status": result.status.value,
        "usd": None if result.objective is None else float(result.objective),
        "gap": result.gap,
        "stages": None if result.plan is None else len(result.plan.stages),
        "data_parallel": None if result.plan is None else result.plan.data_parallel,
        "runs": runs,
        "seconds": round(seconds, 3),
    }


def measure_front(posed: Data, runs: int, limits: Limits) -> dict[str, Any]:
    """One row: how many points the front has, and the seconds it took."""
    fronts = [provisioning.frontier(posed, limits=limits) for _ in range(runs)]
    return {
        "front": len(fronts[-1].points),
        "status": fronts[-1].stop.value,
        "runs": runs,
        "seconds": round(median(front.seconds for front in fronts), 3),
    }


def show(name: str, row: dict[str, Any]) -> None:
    """One line on the terminal, one in the file."""
    asked = f"front of {row['front']}" if "front" in row else f"{row['deadline_s']} s"
    usd, gap = row.get("usd"), row.get("gap")
    print(
        f"{name:12} {asked:>16} {row['status']:>10}"
        f" {'' if usd is None else f'{usd:.4f} USD':>16}"
        f" {'' if gap is None else f'gap {gap:.4%}':>14} {row['seconds']:9.3f} s",
        flush=True,
    )
    keep(FILE, {"instance": name, **row})


def main() -> None:
    """Measure what the command line asks for."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--large", action="store_true")
    parser.add_argument("--runs", type=int, default=5)
    parser.add_argument("--time-limit", type=float, default=60.0)
    asked = parser.parse_args()
    limits = Limits(time_s=asked.time_limit, gap=0.01 if asked.large else None)
    problems = {"market-512": large()} if asked.large else {n: job(n) for n in JOBS}
    for name, posed in problems.items():
        for deadline_s in [*deadlines(posed, limits), None]:
            due = posed.model_copy(update={"deadline_s": deadline_s})
            show(name, measure(due, asked.runs, limits))
        if not asked.large:
            show(name, measure_front(posed, asked.runs, limits))


if __name__ == "__main__":
    main()
