"""Statements: the largest instance that each proves on each back end within a limit.

    python benchmarks/statements.py [--time-limit 60] [--only STATEMENT,...] [--page]

Every ladder of instances is climbed until a rung is not proved. A proof is one by the
rules of formulations/README.md: `optimal`, as the judge confirms it. The row says so
where CP-SAT was asked again, as floats prove nothing there, and where a solver that
computes in floats has ended, and its bound confirms the plan to 1e-6 only. Single runs,
one thread. Rows go to results/statements.jsonl, the last of each to its page.
"""

import argparse
import time
from collections.abc import Callable, Iterator
from random import Random
from typing import Any

from _hexiscale_milp import small
from _measuring import keep, kept, publish

from hetopt import Limits, registry
from hetopt.errors import Unsupported
from hetopt.files import load_problem
from hetopt.problems.device_grouping import Data as Grouping
from hetopt.problems.device_grouping import DeviceType
from hetopt.problems.layer_partition import Data as Partition
from hetopt.problems.layer_partition import Stage
from hetopt.result import Stop
from hetopt.solving import statements

Row = dict[str, Any]
LINES, PAGE = "statements.jsonl", "statements.md"
SEED = 0
CLAIMED = 1e-5  # a gap that is left by tolerances, not by the search
_UNKNOWN = {"undecided": "no plan", "unsupported": "refused as too large"}


# type, dense fp16 GFLOP/s, MiB
GPUS = (
    ("A100", 312_000, 81_920),
    ("H800", 989_000, 81_920),
    ("H20", 148_000, 98_304),
    ("V100", 125_000, 32_768),
)


def cluster(gpus: int, types: int) -> Grouping:
    """That many GPUs, as equally of each type as can be."""
    counts = [gpus // types + (i < gpus % types) for i in range(types)]
    return Grouping(
        gpus=tuple(
            DeviceType(type=name, count=count, gflops=gflops, memory_mib=memory)
            for count, (name, gflops, memory) in zip(counts, GPUS, strict=False)
        ),
        minimum_memory_mib=134 * 1024,
        micro_batches=16,
    )


def pipeline(layers: int, stages: int, order: str) -> Partition:
    """Uneven layers; memory from barely to amply enough for an equal share."""
    random = Random(SEED)
    work = [random.randint(80, 120) for _ in range(layers)]
    share = 330 * layers // stages
    drawn = [
        {
            "speed": random.randint(100, 1000),
            "memory_mib": random.randint(5 * share // 4, 5 * share // 2),
            "hop_us": random.randint(0, 3000),
        }
        for _ in range(stages)
    ]
    return Partition(
        layer_mib=tuple(random.randint(300, 350) for _ in work),
        in_flight_mib=(5,) * layers,
        micro_batches=64,
        objective="iteration",
        order=order,
        stages=tuple(
            Stage(
                name=f"s{n}",
                memory_mib=kind["memory_mib"],
                hop_us=kind["hop_us"],
                layer_us=tuple(kind["speed"] * w // 10 for w in work),
            )
            for n, kind in enumerate(drawn)
        ),
    )


def grouping(types: int) -> Iterator[tuple[str, Any]]:
    """Equal numbers of AutoHet's GPUs, a floor of 134 GiB, K = 16."""
    for gpus in (6, 8, 12, 16, 24, 32, 64, 96, 128):
        yield f"{gpus} GPUs", cluster(gpus, types)


def partition(order: str) -> Iterator[tuple[str, Any]]:
    """Uneven layers on stages that all differ; iterations of 64 micro-batches."""
    for layers, stages in ((12, 3), (16, 4), (24, 6), (48, 8), (96, 16)):
        data = pipeline(layers, stages, order)
        yield f"{layers} layers, {stages} stages", data


def provisioning() -> Iterator[tuple[str, Any]]:
    """Espresso's LLaMA-7B within 5500 s on 56 GPUs of 4 types."""
    _, data = load_problem("espresso/llama-7b")
    for stages in (3, 4, 6, 8, 12, 16):
        yield f"{stages} stages", data.model_copy(update={"max_stages": stages})


def training() -> Iterator[tuple[str, Any]]:
    """HexiScale's setting 1 in small: half RTX3090, half RTX4090, slowly linked."""
    for gpus in (4, 6, 8, 10, 12):
        yield f"{gpus} GPUs", small(gpus)


LADDERS: dict[str, dict[str, Callable[[], Iterator[tuple[str, Any]]]]] = {
    "device_grouping": {"2 types": lambda: grouping(2)},
    "device_grouping_counts": {"3 types": lambda: grouping(3)},
    "device_grouping_patterns": {
        "3 types": lambda: grouping(3),
        "4 types": lambda: grouping(4),
    },
    "layer_partition": {
        order: lambda order=order: partition(order) for order in ("given", "free")
    },
    "layer_partition_cuts": {
        order: lambda order=order: partition(order) for order in ("given", "free")
    },
    "layer_partition_runs": {
        order: lambda order=order: partition(order) for order in ("given", "free")
    },
    "layer_partition_lattice": {
        order: lambda order=order: partition(order) for order in ("given", "free")
    },
    "provisioning": {"espresso/llama-7b": provisioning},
    "provisioning_allocations": {"espresso/llama-7b": provisioning},
    "hexiscale_milp": {"setting 1 in small": training},
}


def climbed(statement: str, ladder: str, backend: str, limit_s: float) -> Row:
    """The last rung that is proved, and what becomes of the next."""
    problem = registry.entry("formulations", statement).problem
    found: Row = {
        "statement": statement,
        "ladder": ladder,
        "backend": backend,
        "limit_s": limit_s,
        "proved": None,
        "next": None,
    }
    for name, data in LADDERS[statement][ladder]():
        begun = time.monotonic()
        try:
            result = statements.solve(
                problem, data, statement, backend, limits=Limits(time_s=limit_s)
            )
        except Unsupported:  # it says that it is too large
            found["next"] = {"case": name, "status": "unsupported", "gap": None}
            break
        seconds = round(time.monotonic() - begun, 2)
        gap = None if result.gap is None else float(result.gap)
        claimed = result.stop is Stop.GAP and gap is not None and gap < CLAIMED
        if not claimed and result.status.value not in ("optimal", "infeasible"):
            found["next"] = {"case": name, "status": result.status.value, "gap": gap}
            break
        found["proved"] = {
            "case": name,
            "seconds": seconds,
            "by": result.bound.source if result.bound else "no plan",
            "claimed": claimed,
        }
    return found


def shown(row: Row) -> str:
    """A row in words."""
    proved, after = row["proved"], row["next"]
    words = "none"
    if proved:
        asked = ", by CP-SAT" if proved["by"].startswith("cpsat dual of") else ""
        asked = ", to 1e-6" if proved["claimed"] else asked
        words = f"{proved['case']}, {proved['seconds']:.1f} s{asked}"
    if after:
        known = _UNKNOWN.get(after["status"], "no bound")
        if after["gap"] is not None:
            known = f"gap {after['gap']:.1%}"
        words += f" ({after['case']}: {known})"
    return words


def page(rows: list[Row]) -> str:
    """The table: statements and ladders by back end."""
    names = registry.names("backends")
    lines = [
        "# What statements prove",
        "",
        "By `python benchmarks/statements.py`: the largest instance that is proved",
        f"within {rows[-1]['limit_s']:g} s of a solver, one thread, 2 cores shared,",
        "single runs; seconds are of the wall, from the instance to the judged",
        "plan; in brackets the next, which is not. *By CP-SAT*: floats prove nothing",
        "at that size of sums, and CP-SAT proved it in the time that was left, from",
        "the plan that was found. *To 1e-6*: the solver has ended, and its bound,",
        "weakened by its tolerance, confirms its plan to a millionth.",
        "",
        f"| statement | instances | {' | '.join(names)} |",
        "|---|---|" + "---|" * len(names),
    ]
    cells = {(r["statement"], r["ladder"], r["backend"]): shown(r) for r in rows}
    for statement, ladders in LADDERS.items():
        for ladder in ladders:
            told = [cells.get((statement, ladder, name), "-") for name in names]
            lines.append(f"| `{statement}` | {ladder} | {' | '.join(told)} |")
    return "\n".join(lines) + "\n"


def _rows() -> list[Row]:
    """The last row of every climb."""
    latest: dict[tuple[str, str, str], Row] = {}
    for row in kept(LINES):
        latest[row["statement"], row["ladder"], row["backend"]] = row
    return list(latest.values())


def main(words: list[str] | None = None) -> None:
    """Climb the ladders asked for, and write the page."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--time-limit", type=float, default=60.0)
    parser.add_argument("--only", default=",".join(LADDERS))
    parser.add_argument("--page", action="store_true")
    asked = parser.parse_args(words)
    for statement in [] if asked.page else asked.only.split(","):
        module = registry.entry("formulations", statement)
        for ladder in LADDERS[statement]:
            for backend in getattr(module, "backends", registry.names("backends")):
                row = climbed(statement, ladder, backend, asked.time_limit)
                keep(LINES, row, "ortools", "pyscipopt", "pulp")
                print(statement, ladder, backend, shown(row), flush=True)
    publish(PAGE, page(_rows()), LINES)


if __name__ == "__main__":
    main()
