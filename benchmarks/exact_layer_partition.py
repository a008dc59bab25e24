"""Exact layer partition: seconds to a proof, by layers, stages, kinds and order.

    python benchmarks/exact_layer_partition.py [--many-kinds] [--runs 5]

Layers of uneven work, stages of seeded random speed, memory and hop; 64 micro-batches.
`--many-kinds` takes free orders of stages that all differ, which may end with a gap.
Rows go to benchmarks/results/exact_layer_partition.jsonl as well.
"""

import argparse
from random import Random
from typing import Any

from _measuring import keep, measured, row, show

from hetopt import Limits
from hetopt.exact import layer_partition
from hetopt.problems.layer_partition import Data, Stage

FILE = "exact_layer_partition.jsonl"
# layers, stages, kinds of stage, order
SIZES = (
    (96, 32, 32, "given"),
    (192, 64, 64, "given"),
    (1000, 128, 128, "given"),
    (96, 8, 4, "free"),
    (96, 16, 4, "free"),
    (96, 32, 4, "free"),
    (96, 16, 6, "free"),
)
MANY_KINDS = ((48, 12, 12, "free"), (96, 16, 16, "free"), (96, 32, 32, "free"))
SEEDS = (0, 1, 2)


def pipeline(
    layers: int, stages: int, kinds: int, order: str, objective: str, seed: int
) -> Data:
    """Uneven layers; memory from barely to amply enough for an equal share."""
    random = Random(seed)
    work = [random.randint(80, 120) for _ in range(layers)]
    share = 330 * layers // stages
    drawn = [
        {
            "speed": random.randint(100, 1000),
            "memory_mib": random.randint(5 * share // 4, 5 * share // 2),
            "hop_us": random.randint(0, 3000),
        }
        for _ in range(kinds)
    ]
    listed = [drawn[n % kinds] for n in range(stages)]
    return Data(
        layer_mib=tuple(random.randint(300, 350) for _ in work),
        in_flight_mib=(5,) * layers,
        micro_batches=64,
        objective=objective,
        order=order,
        stages=tuple(
            Stage(
                name=f"s{n}",
                memory_mib=kind["memory_mib"],
                hop_us=kind["hop_us"],
                layer_us=tuple(kind["speed"] * w // 10 for w in work),
            )
            for n, kind in enumerate(listed)
        ),
    )


def main() -> None:
    """Measure every size, objective and seed."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--many-kinds", action="store_true")
    parser.add_argument("--runs", type=int, default=5)
    parser.add_argument("--time-limit", type=float, default=60.0)
    asked = parser.parse_args()
    limits = Limits(time_s=asked.time_limit)
    for layers, stages, kinds, order in MANY_KINDS if asked.many_kinds else SIZES:
        for objective in ("iteration", "bottleneck"):
            for seed in SEEDS:
                data = pipeline(layers, stages, kinds, order, objective, seed)

                def solve(data: Data = data) -> Any:
                    return layer_partition.solve(data, limits=limits)

                result, seconds = measured(solve, asked.runs)
                name = f"{layers} layers, {stages} stages of {kinds}, {order}"
                found = row(f"{name}, {objective}, {seed}", result, seconds, asked.runs)
                show(found)
                keep(FILE, found)


if __name__ == "__main__":
    main()
