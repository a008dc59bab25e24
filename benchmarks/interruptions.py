"""What an interruption costs along public spot traces, by when states are saved.

    python benchmarks/interruptions.py [FOLDER] [--series NAME;...] [--page]

The job, the traces and FOLDER are those of spot_traces.py; AutoHet's recovery moves it,
by plans of planners that no clock stops. A save stops training for 20 s, a change of
plan for 1.5 s and the moves; a spot GPU costs 0.35 of a rented one. Appends rows to
results/interruptions.jsonl and writes results/interruptions.md with all rows that are
there. Takes a few minutes.
"""

import argparse
import json
import os
from collections.abc import Iterator
from pathlib import Path
from statistics import median
from typing import Any

from _measuring import RESULTS, keep, publish
from _pages import grid
from spot_traces import CASES, Case, cluster

import hetopt
from hetopt.api.replaying import renting_document, saving_document
from hetopt.plans import TrainingPlan
from hetopt.report import words
from hetopt.schema import Instance

LINES, PAGE = "interruptions.jsonl", "interruptions.md"
METHOD, STALL_S, SPOT = "autohet_recovery", 20.0, 0.35
# Planners that end by themselves: another run comes to the same.
PLANNERS = ("autohet", "megatron", "hexiscale")
RESTART_S = 1.5
# Fixed intervals beside the policies: what the paper's traces are replayed with.
INTERVALS_S = (600.0,)
# USD per hour of one rented GPU: list prices of clouds, rounded.
PRICES = {"A100": 4.0, "H20": 2.5}

NOTES = """
**How to read it.** An interruption costs training that does not count: saves, the work
since the last one, and what its writing held up. Moving states and planning anew are
not in it. *To the best*: how much less of the training counts than with the best policy
of the series; *to the bound*: than any policy could keep that knows when GPUs will
leave. `searched` is the best of 400 equal intervals for this very trace; `adaptive`
knows nothing beforehand.

**Renting.** Iterations and money where nodes that are away are rented at list prices:
never, always, or once they have been away for the time that is best for this trace.
Bound: no choice of when to rent has an iteration for less. Prices are assumed: 4.0 USD
an hour of an A100, 2.5 of an H20, 0.35 of that on the spot market. What pays depends on
the planners, too, which here are autohet, megatron and hexiscale: these end unasked.
"""


def rows_of(
    folder: Path, case: Case, old: tuple[Instance, TrainingPlan]
) -> dict[str, Any]:
    """Replay a case: what policies make of it."""
    found = hetopt.replay(
        old[1],
        old[0],
        folder / "traces" / case.file,
        series=case.series,
        old_instance=old[0],
        methods=[METHOD],
        planners=PLANNERS,
        planning_s=None,
        restart_s=RESTART_S,
        known=False,
        limits=None,
    )
    saved = found.saving(stall_s=STALL_S, intervals_s=INTERVALS_S)[METHOD]
    return {
        "series": case.series,
        "digest": found.instance.digest,
        "seconds": found.end_us / 10**6,
        "changes": found.changes,
        "saving": saving_document(saved),
        "renting": renting_document(found.renting(SPOT)[METHOD]),
    }


def priced() -> Instance:
    """The job of spot_traces.py, on GPUs that have prices."""
    tree = cluster().model_dump(mode="json")
    for name, usd in PRICES.items():
        tree["cluster"]["gpus"][name]["usd_per_hour"] = usd
    return Instance.model_validate_json(json.dumps(tree))


def page(rows: list[dict[str, Any]]) -> Iterator[str]:
    """The Markdown page."""
    yield "# What an interruption costs"
    yield ""
    yield (
        "Made by `python benchmarks/interruptions.py`: GPT-3 6.7B on 8 nodes of 2 A100 "
        f"and 8 of 2 H20, along public traces; a save stops training for {STALL_S:g} s."
    )
    yield ""
    heads = ["series", "changes", "losses", "policy", "interval", "iterations"]
    heads += ["an interruption costs", "to the best", "to the bound"]
    yield from grid(heads, _saved(rows))
    yield ""
    yield f"Over {len(rows)} series, of the iterations that the best policy keeps:"
    yield ""
    yield from grid(["policy", "fewer by, median", "at worst"], _summary(rows))
    yield ""
    heads = ["series", "renting", "after", "iterations", "USD", "USD per iteration"]
    yield from grid([*heads, "to the bound"], _rented(rows))
    yield NOTES.rstrip()


def _saved(rows: list[dict[str, Any]]) -> Iterator[list[str]]:
    for row in rows:
        for one in row["saving"]["policies"]:
            yield [
                row["series"],
                str(row["changes"]),
                str(row["saving"]["losses"]),
                one["policy"],
                words.duration(one["interval_s"]),
                f"{one['iterations']:,}",
                words.duration(one["lost_per_loss_s"]),
                words.share(one["gap_to_best"]),
                words.share(one["gap_to_bound"]),
            ]


def _summary(rows: list[dict[str, Any]]) -> Iterator[list[str]]:
    gaps: dict[str, list[float]] = {}
    for row in rows:
        for one in row["saving"]["policies"]:
            gaps.setdefault(one["policy"], []).append(one["gap_to_best"])
    for policy, found in gaps.items():
        yield [policy, words.share(median(found)), words.share(max(found))]


def _rented(rows: list[dict[str, Any]]) -> Iterator[list[str]]:
    for row in rows:
        for one in row["renting"]["policies"]:
            yield [
                row["series"],
                one["policy"],
                words.duration(one["after_s"] or None),
                f"{one['iterations']:,.0f}",
                f"{one['usd']:,.0f}",
                f"{one['usd_per_iteration']:.4f}",
                words.share(one["gap_to_bound"]),
            ]


def main(told: list[str] | None = None) -> None:
    """Run, keep, write."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", nargs="?", type=Path)
    parser.add_argument("--series", help="only these, separated by semicolons")
    parser.add_argument("--page", action="store_true", help="only write the page")
    asked = parser.parse_args(told)
    if not asked.page:
        replay(asked)
    kept = [json.loads(line) for line in (RESULTS / LINES).read_text().splitlines()]
    last = {row["series"]: row for row in kept}
    publish(PAGE, "\n".join(page([*last.values()])) + "\n", LINES)


def replay(asked: argparse.Namespace) -> None:
    """Replay the job along the traces; keep what comes of it."""
    folder = asked.folder or Path(os.environ.get("HETOPT_DATA", "."))
    wanted = asked.series.split(";") if asked.series else [c.series for c in CASES]
    instance = priced()
    plan = hetopt.plan(instance, "autohet", known=False).plan
    for case in CASES:
        if case.series in wanted:
            keep(LINES, rows_of(folder, case, (instance, plan)), "ortools")


if __name__ == "__main__":
    main()
