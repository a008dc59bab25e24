"""A job on spot GPUs along public availability traces, by three ways to recover.

    python benchmarks/spot_traces.py [FOLDER] [--series NAME;...] [--checkpoint S]

FOLDER, or HETOPT_DATA, holds `traces/spot_bamboo.csv` and `traces/spot_sailor_a100.csv`
(series, time_s, gpus), the availability that Bamboo and Sailor measured. GPT-3 6.7B is
trained on 32 GPUs in nodes of 2, half A100 and half H20; every node leaves and arrives
whole. Appends rows to results/spot_traces.jsonl and writes results/spot_traces.md, with
a picture of the mixed case. Takes about 15 minutes on two cores.
"""

import argparse
import json
import os
from collections.abc import Iterator
from pathlib import Path
from time import perf_counter
from typing import Any, NamedTuple

from _measuring import RESULTS, keep, publish
from _pages import grid

import hetopt
from hetopt.api.replaying import Replayed
from hetopt.plans import TrainingPlan
from hetopt.report import replay as report
from hetopt.schema import Instance

LINES, PAGE, PICTURE = "spot_traces.jsonl", "spot_traces.md", "spot_traces.svg"
BAMBOO, SAILOR = "spot_bamboo.csv", "spot_sailor_a100.csv"
LIMIT_S = 1.0  # of each exact recovery
MIXED = "A100=gcp_a100x1-east1b,H20=gcp_v100x1-east1c"


class Case(NamedTuple):
    """A series of a file, on all nodes or, by GPU type, on those of each."""

    file: str
    series: str


CASES = (
    Case(BAMBOO, "aws_p3"),
    Case(BAMBOO, "aws_g4dn"),
    Case(BAMBOO, "gcp_a100x1-east1b"),
    Case(BAMBOO, "gcp_v100x1-east1c"),
    Case(SAILOR, "a100_trace_original"),
    Case(SAILOR, "a100_trace"),
    Case(SAILOR, "a100_trace_16"),
    Case(BAMBOO, MIXED),
)


def cluster() -> Instance:
    """GPT-3 6.7B on 8 nodes of 2 A100 and 8 nodes of 2 H20."""
    document = hetopt.load("autohet/a100-h20-8x8-gpt3-6.7b").model_dump(mode="json")
    document["name"] = "spot/a100-h20-16x16-gpt3-6.7b"
    document["cluster"]["nodes"] = [
        {**node, "name": f"{node['gpu'].lower()}-{i}", "count": 2}
        for node in document["cluster"]["nodes"]
        for i in range(8)
    ]
    return Instance.model_validate_json(json.dumps(document))


def one(
    folder: Path, case: Case, old: tuple[Instance, TrainingPlan], checkpoint_s: float
) -> tuple[Replayed, list[dict[str, Any]]]:
    """Replay one case; a row for each method is kept and returned."""
    started = perf_counter()
    found = hetopt.replay(
        old[1],
        old[0],
        folder / "traces" / case.file,
        series=case.series,
        old_instance=old[0],
        checkpoint_s=checkpoint_s,
        limits=LIMIT_S,
    )
    wall_s = perf_counter() - started
    document = found.to_json()
    shared = {name: document[name] for name in ("instance", "digest", "series")}
    shared |= {"seconds": document["seconds"], "changes": document["changes"]}
    shared |= {"clusters_planned": found.planned, "checkpoint_s": checkpoint_s}
    rows = []
    for told in document["methods"]:
        del told["legs"]
        row = {**shared, **told, "wall_s": round(wall_s, 1)}
        keep(LINES, row, "ortools", "pulp")
        rows.append(row)
    return found, rows


# --- the page --------------------------------------------------------------------

NOTES = """
**How to read it.** Useful are the GPU hours of iterations that count in the end, as a
share of all GPU hours that were there; redone are iterations after the last checkpoint
when nodes of the plan left; recovering is the time of re-planning (1.5 s each, and 1 s
for the exact method, charged in full) and of moving states. The rest went to iterations
that were cut short and to GPUs that no plan used. Speed-up is of samples that count,
over `varuna`. A series' largest count stands for all GPUs that follow it; which nodes
leave is drawn, with one seed for all methods. Plans are made once for clusters that are
alike, and shared by the methods.

**What is not modelled.** Notice before a preemption; the time to start processes and
communicators anew (`--restart` adds it); the time to write checkpoints.

Planners are stopped by the clock, so another run may find other plans: one of
gcp_a100x1-east1b gave 8,916, 11,318 and 11,327 iterations instead.
"""


HEADERS = [
    *("series", "hours", "changes", "clusters", "method", "iterations", "samples/s"),
    *("speed-up", "useful", "redone", "recovering", "idle", "recovery, s"),
    *("lost work, s", "re-plans", "moves", "proved"),
]


def page(rows: list[dict[str, Any]], checkpoint_s: float) -> Iterator[str]:
    """The Markdown page."""
    yield "# A job on spot GPUs, replayed"
    yield ""
    yield (
        "Made by `python benchmarks/spot_traces.py`: GPT-3 6.7B, 8 nodes of 2 A100 and "
        f"8 of 2 H20, a checkpoint every {checkpoint_s:g} s. One run."
    )
    yield ""
    yield from grid(HEADERS, [*_cells(rows)])
    yield ""
    walls = dict.fromkeys((row["series"], row["wall_s"]) for row in rows)
    yield (
        "Wall seconds of each, all methods together, on two busy cores: "
        + ", ".join(f"{wall:g}" for _, wall in walls)
        + "."
    )
    yield ""
    yield f"![GPUs, throughput and progress]({PICTURE})"
    yield ""
    yield "The picture is of the last trace: each GPU type follows its own series."
    yield NOTES.rstrip()


def _cells(rows: list[dict[str, Any]]) -> Iterator[list[str]]:
    first: dict[str, int] = {}
    for row in rows:
        base = first.setdefault(row["series"], row["samples"])
        share = {kind: s / row["available_gpu_s"] for kind, s in row["gpu_s"].items()}
        proved = row["moves_proved_fastest"]
        yield [
            row["series"],
            f"{row['seconds'] / 3600:.1f}",
            str(row["changes"]),
            str(row["clusters_planned"]),
            row["method"],
            f"{row['iterations']:,}",
            f"{row['samples_per_second']:.2f}",
            f"{row['samples'] / base:.3f}" if base else "–",
            *(f"{share[k]:.1%}" for k in ("useful", "redone", "recovering", "idle")),
            f"{row['recovery_s']:,.0f}",
            f"{row['lost_s']:,.0f}",
            str(row["replans"]),
            str(row["moves"]),
            "–" if proved is None else f"{proved} of {row['moves']}",
        ]


def main(words: list[str] | None = None) -> None:
    """Run, show, write."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", nargs="?", type=Path)
    parser.add_argument("--series", help="only these; the page is then shown, not kept")
    parser.add_argument("--checkpoint", type=float, default=600.0)
    asked = parser.parse_args(words)
    folder = asked.folder or Path(os.environ.get("HETOPT_DATA", "."))
    instance = cluster()
    plan = hetopt.plan(instance, "autohet", limits=20).plan
    cases = [
        c for c in CASES if asked.series is None or c.series in asked.series.split(";")
    ]
    rows: list[dict[str, Any]] = []
    for case in cases:
        found, more = one(folder, case, (instance, plan), asked.checkpoint)
        rows += more
        for row in more:
            print(
                f"{row['series']:24} {row['method']:17} {row['iterations']:7,} "
                f"iterations, recovery {row['recovery_s']:9,.0f} s, lost "
                f"{row['lost_s']:9,.0f} s, wall {row['wall_s']:6.1f} s",
                flush=True,
            )
    text = "\n".join(page(rows, asked.checkpoint)) + "\n"
    if asked.series is None:
        report.FILES.write(found, RESULTS / PICTURE)
        publish(PAGE, text)
    else:
        print(text)


if __name__ == "__main__":
    main()
