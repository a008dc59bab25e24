"""Ten seeds of each generated family: how far the exact method gets by itself.

    python benchmarks/families.py [--limit 60] [--only WORD ...] [--page]

One run a cluster, from nothing, in CPU seconds of one core, so that a busy machine
changes little. `--only` takes those whose names hold one of the words. A run is a line
of results/families.jsonl; what is there by the code of today is not run again. `--page`
writes results/families.md, and `python benchmarks/proofs.py --page` the table of
README.md, of the seeds that were run. 100 minutes at 60 s.
"""

from collections.abc import Iterator
from statistics import median
from typing import Any

import _pages
from _measuring import (
    RESULTS,
    asked,
    by_cpu_clock,
    commit,
    keep,
    kept,
    publish,
    wanted,
)

import hetopt
from hetopt.bench import journal
from hetopt.result import uninterrupted

LINES, PAGE = "families.jsonl", "families.md"
FAMILIES = ("equal", "unequal", "islands", "steep", "tight_memory")
SIZES, SEEDS = (16, 64), 10
HEADERS = ("clusters", "instances", "proved", "median gap", "worst gap")


def names() -> Iterator[tuple[str, str]]:
    """Families as the page calls them, and their clusters."""
    for size in SIZES:
        for family in FAMILIES:
            for seed in range(SEEDS):
                yield (
                    f"generated {family}, {size} GPUs",
                    f"generated:{family}/{size}/{seed}",
                )


def measured(name: str, limit_s: float) -> dict[str, Any]:
    """What the exact method knows of a cluster after so many CPU seconds."""
    result = by_cpu_clock(
        lambda: uninterrupted(
            hetopt.solve(hetopt.load(name), limits=hetopt.Limits(time_s=limit_s))
        )
    )
    return {
        "instance": name,
        "limit_s": limit_s,
        "status": result.status.value,
        "gap": result.gap,
        "cpu_s": round(sum(result.seconds.values()), 1),
    }


def known() -> dict[str, dict[str, Any]]:
    """The last run of each cluster, by its name.

    Of those that were not run here, what the suite `proofs` and the page of gaps over
    time have, within 60 s of the wall.
    """
    found = {row["instance"]: row for row in journal.read(RESULTS / "proofs")[1]}
    for line in kept("gap_over_time.jsonl"):
        row = line["row"]
        gap = row["gaps"][-1][1] if row["gaps"] else None
        found[row["instance"]] = {**row, "gap": gap}
    return found | {line["instance"]: line for line in kept(LINES)}


def counted() -> list[list[str]]:
    """Rows of the table: each family with the seeds that were run."""
    latest = known()
    groups: dict[str, list[dict[str, Any]]] = {}
    for family, name in names():
        if name in latest:
            groups.setdefault(family, []).append(latest[name])
    return [_row(family, found) for family, found in groups.items()]


def _row(family: str, found: list[dict[str, Any]]) -> list[str]:
    gaps = [line["gap"] for line in found if line["gap"] is not None]
    proved = sum(line["status"] in ("optimal", "infeasible") for line in found)
    spread = (f"{median(gaps):.1%}", f"{max(gaps):.1%}") if gaps else ("–", "–")
    none = sum(line["status"] == "infeasible" for line in found)
    seeds = f"{len(found)}" + f", {none} infeasible" * bool(none)
    return [family, seeds, str(proved), *spread]


def page() -> str:
    """The table, and every run."""
    latest = known()
    runs = (
        [f"`{name}`", x["status"], _pages.shown(x["gap"]), _pages.shown(x.get("cpu_s"))]
        for name, x in ((name, latest.get(name)) for _, name in names())
        if x is not None
    )
    text = [
        "# Generated families",
        "",
        f"By `python benchmarks/families.py`: up to {SEEDS} seeds of each family, by",
        "the exact method from nothing, 60 CPU seconds of one core each. Where none is",
        "told, the run is one of the suite `proofs` or of [gaps over",
        "time](gap_over_time.md), 60 s of the wall. Missing seeds were not run.",
        "",
        *_pages.grid(HEADERS, counted()),
        "",
        *_pages.grid(("cluster", "status", "gap", "CPU s"), runs),
    ]
    return "\n".join(text) + "\n"


def main() -> None:
    """Measure what is asked for and not there yet, and write the page."""
    given = asked(__doc__, 60.0)
    ours = commit()
    done = {
        (line["instance"], line["limit_s"])
        for line in kept(LINES)
        if line["machine"].get("commit") == ours
    }
    for name in wanted((name for _, name in names()), given):
        if (name, given.limit) not in done:
            found = measured(name, given.limit)
            keep(LINES, found, "ortools")
            print(*found.values(), flush=True)
    publish(PAGE, page(), LINES)


if __name__ == "__main__":
    main()
