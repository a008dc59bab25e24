"""Exact device grouping: seconds to a proof, by number and types of GPUs.

    python benchmarks/exact_device_grouping.py [--runs 5] [--time-limit 60]
    python benchmarks/exact_device_grouping.py --literal [--time-limit 60]

AutoHet's GPUs (A100, H800, H20) and three more, 16 micro-batches; `small groups` have
a floor of 134 GiB (2 or 3 GPUs), `large groups` one of 15 GPUs of 80 GiB, `no floor`
none. `--literal` sets the method beside AutoHet's own statement on SCIP, in the same
run. Rows go to benchmarks/results/exact_device_grouping.jsonl as well.
"""

import argparse
from typing import Any

from _measuring import keep, measured, row, show

from hetopt import Limits, Status
from hetopt.exact import device_grouping
from hetopt.problems.device_grouping import Data, DeviceType
from hetopt.solving import statements

FILE = "exact_device_grouping.jsonl"
# type, dense fp16 GFLOP/s, MiB
GPUS = (
    ("A100", 312_000, 81_920),
    ("H800", 989_000, 81_920),
    ("H20", 148_000, 98_304),
    ("V100", 125_000, 32_768),
    ("T4", 65_000, 16_384),
    ("L40", 181_000, 49_152),
)
FLOORS = {"small groups": 137_216, "large groups": 15 * 81_920, "no floor": 0}
SIZES = ((16, 3), (32, 3), (64, 3), (128, 3), (256, 3), (64, 4), (256, 4), (60, 6))


def cluster(gpus: int, types: int, floor_mib: int, **fields: Any) -> Data:
    """That many GPUs, as equally of each type as can be."""
    counts = [gpus // types + (i < gpus % types) for i in range(types)]
    return Data(
        gpus=tuple(
            DeviceType(type=name, count=count, gflops=gflops, memory_mib=memory)
            for count, (name, gflops, memory) in zip(counts, GPUS, strict=False)
        ),
        minimum_memory_mib=floor_mib,
        **({"micro_batches": 16} | fields),
    )


def problems() -> dict[str, Data]:
    """The suite: sizes x floors, 1,024 GPUs, and K from a global batch."""
    found = {
        f"{gpus} GPUs, {types} types, {floor}": cluster(gpus, types, FLOORS[floor])
        for gpus, types in (*SIZES, (1024, 4))
        for floor in FLOORS
    }
    for gpus, types in SIZES:
        found[f"{gpus} GPUs, {types} types, batch of 1024"] = cluster(
            gpus,
            types,
            FLOORS["small groups"],
            micro_batches=None,
            global_batch_micro_batches=1024,
        )
    return found


def suite(runs: int, limits: Limits) -> None:
    """Every problem of the suite."""
    for name, data in problems().items():

        def solve(data: Data = data) -> Any:
            return device_grouping.solve(data, limits=limits)

        result, seconds = measured(solve, runs)
        found = row(name, result, seconds, runs)
        show(found)
        keep(FILE, found)


def literal(runs: int, limits: Limits) -> None:
    """The method beside the paper's statement, one run of the latter."""
    for gpus in (8, 10, 12, 16):
        data = cluster(gpus, 3, FLOORS["small groups"])
        exact, seconds = measured(
            lambda data=data: device_grouping.solve(data, limits=limits), runs
        )
        stated, slow = measured(
            lambda data=data: statements.solve(
                "device_grouping", data, "device_grouping", "scip", limits=limits
            ),
            1,
        )
        if stated.status is Status.OPTIMAL and stated.objective != exact.objective:
            raise SystemExit(f"{gpus} GPUs: {stated.objective} != {exact.objective}")
        for kind, result, took, times in (
            ("exact", exact, seconds, runs),
            ("literal on SCIP", stated, slow, 1),
        ):
            found = row(f"{gpus} GPUs, 3 types, {kind}", result, took, times)
            show(found)
            keep(FILE, found, "pyscipopt")
        print(f"{'':44} {slow / seconds:.0f} times as long", flush=True)


def main() -> None:
    """Measure what the command line asks for."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--literal", action="store_true")
    parser.add_argument("--runs", type=int, default=5)
    parser.add_argument("--time-limit", type=float, default=60.0)
    asked = parser.parse_args()
    measure = literal if asked.literal else suite
    measure(asked.runs, Limits(time_s=asked.time_limit))


if __name__ == "__main__":
    main()
