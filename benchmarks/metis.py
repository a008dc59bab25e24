"""Metis's evaluation again: search time, distance from the oracle, figures 4 and 5.

    python benchmarks/metis.py [SECTION ...] [--seeds N] [--time-limit S] [--page]

Sections: `seconds` (search of the planner and of the oracle, 4 to 64 GPUs), `gaps`
(Metis, AMP, Alpa and Galvatron on generated clusters against the proved optimum of one
pipeline), `figures` (its clusters and models, figures 4 and 5). Every row goes to
results/metis.jsonl; results/metis.md shows the last row of each, `--page` writes it
alone. Single runs; seconds are of this machine, CPU seconds beside wall seconds.
"""

import argparse
import json
import time
from collections.abc import Callable, Iterator
from statistics import fmean
from typing import Any

from _measuring import RESULTS, keep
from _metis_instances import NON_UNIFORM, PAIRS, generated, uniform

import hetopt
from hetopt.result import Result

LINES, PAGE = "metis.jsonl", "metis.md"
PLANNERS = ("metis", "amp", "alpa_like", "galvatron_like")
ORACLE = "one_pipeline"
PAPER_SECONDS = {4: 0.1, 8: 0.5, 16: 1.7, 32: 58.9, 64: 600.0}
SEARCHED = {
    4: "metis/t4-v100-4-gpt3-1.3b",
    8: "metis/t4-v100-8-gpt3-2.6b",
    16: "metis/t4-v100-16-gpt3-6.7b",
    32: "metis/t4-v100-32-gpt3-15b",
    64: "metis/t4-v100-64-gpt3-15b",
}
Row = dict[str, Any]


def run(instance: Any, method: str, limit_s: float) -> tuple[Result, Row]:
    """One solve, and what a row says of it."""
    cpu = time.process_time()
    result = hetopt.solve(instance, method, time_limit=limit_s)
    proved = result.problem == ORACLE
    return result, {
        "us": result.objective,
        "seconds": round(result.seconds["solve"], 2),
        "cpu_s": round(time.process_time() - cpu, 2),
        "status": result.status.value,
        "stop": result.stop.value,
        "bound_us": result.bound.value if proved and result.bound else None,
    }


def all_methods(instance: Any, limit_s: float) -> dict[str, Row]:
    """The oracle and every planner on one instance."""
    return {name: run(instance, name, limit_s)[1] for name in (ORACLE, *PLANNERS)}


# --- sections ----------------------------------------------------------------------


def seconds(asked: argparse.Namespace) -> Iterator[Row]:
    """Search of the planner and of the oracle, and the gap between them."""
    for gpus, name in SEARCHED.items():
        instance = hetopt.load(name)
        found = {
            m: run(instance, m, 4 * asked.time_limit)[1] for m in (ORACLE, "metis")
        }
        yield {"case": name, "gpus": gpus, "paper_s": PAPER_SECONDS[gpus], **found}


def gaps(asked: argparse.Namespace) -> Iterator[Row]:
    """Planners against the oracle on generated clusters."""
    for made in generated(asked.seeds):
        yield {
            "case": made.instance.name,
            "gpus": made.gpus,
            "slower": made.slower,
            "memory": made.memory,
            **all_methods(made.instance, asked.time_limit),
        }


def figures(asked: argparse.Namespace) -> Iterator[Row]:
    """Figure 4, then figure 5."""
    for model, pair, gpus, name in uniform():
        found = all_methods(hetopt.load(name), asked.time_limit)
        yield {"case": name, "model": model, "pair": pair, "gpus": gpus, **found}
    for which in NON_UNIFORM:
        name = f"metis/nonuniform-{which}"
        found = all_methods(hetopt.load(name), asked.time_limit)
        yield {"case": name, "model": "gpt3", "pair": "non-uniform", **found}


SECTIONS: dict[str, Callable[[argparse.Namespace], Iterator[Row]]] = {
    "seconds": seconds,
    "gaps": gaps,
    "figures": figures,
}


# --- the page ----------------------------------------------------------------------


def page(rows: list[Row]) -> str:
    """The Markdown of all rows."""
    parts = {name: [r for r in rows if r["section"] == name] for name in SECTIONS}
    text = [
        "# Metis, again\n",
        "Made by `python benchmarks/metis.py`; the numbers are the judge's, gaps are "
        "to the proved optimum of one pipeline (the oracle's space). Single runs. A "
        "dash: no plan, or no figure. `metis.jsonl` names machine and load.\n",
    ]
    if parts["seconds"]:
        text += [
            "## Search, T4 + V100, GPT-3 (section 5.4)\n",
            *_seconds(parts["seconds"]),
        ]
    if parts["gaps"]:
        text += [
            "\n## Distance from the oracle, generated clusters\n",
            *_gaps(parts["gaps"]),
        ]
    if parts["figures"]:
        text += [
            "\n## Figures 4 and 5: seconds an iteration\n",
            *_figures(parts["figures"]),
        ]
    return "\n".join(text) + "\n"


def _table(headings: list[str], rows: list[list[str]]) -> list[str]:
    lines = ["| " + " | ".join(headings) + " |", "|" + "---|" * len(headings)]
    return lines + ["| " + " | ".join(row) + " |" for row in rows]


def _s(us: float | None) -> str:
    return "–" if us is None else f"{us / 1e6:.3f}"


def _gap(row: Row, method: str) -> float | None:
    """Relative distance from the proved optimum; None without a plan or a proof."""
    best = row[ORACLE]
    if best["status"] != "optimal" or row[method]["us"] is None:
        return None
    return float(row[method]["us"] / best["us"] - 1)


def _per_cent(gap: float | None) -> str:
    return "–" if gap is None else f"{gap:.1%}"


def _seconds(rows: list[Row]) -> list[str]:
    return _table(
        [
            "GPUs",
            "paper's search, s",
            "metis, CPU s (wall)",
            "oracle, CPU s (wall)",
            "oracle proved",
            "metis above the oracle",
        ],
        [
            [
                str(r["gpus"]),
                f"{r['paper_s']:g}",
                f"{r['metis']['cpu_s']:.2f} ({r['metis']['seconds']:.2f})",
                f"{r[ORACLE]['cpu_s']:.2f} ({r[ORACLE]['seconds']:.2f})",
                "yes" if r[ORACLE]["status"] == "optimal" else "no",
                _per_cent(_gap(r, "metis")),
            ]
            for r in rows
        ],
    )


def _gaps(rows: list[Row]) -> list[str]:
    groups: list[tuple[str, list[Row]]] = [("all", rows)]
    groups += [(f"{g} GPUs", [r for r in rows if r["gpus"] == g]) for g in (8, 16)]
    groups += [
        (
            "equal GPUs" if x == 1 else f"one type {x:g} times slower",
            [r for r in rows if r["slower"] == x],
        )
        for x in sorted({r["slower"] for r in rows})
    ]
    groups += [
        (f"{m} memory", [r for r in rows if r["memory"] == m])
        for m in ("tight", "loose")
    ]
    lines = []
    for name, mine in groups:
        proved = [r for r in mine if r[ORACLE]["status"] == "optimal"]
        cells = [name, str(len(mine)), str(len(proved))]
        for method in PLANNERS:
            found = [g for r in proved if (g := _gap(r, method)) is not None]
            if found:
                none = len(proved) - len(found)
                cells.append(
                    f"{fmean(found):.1%} / {max(found):.1%}"
                    + (f" ({none})" * (none > 0))
                )
            else:
                cells.append("–")
        lines.append(cells)
    none = sum(r[ORACLE]["status"] == "infeasible" for r in rows)
    slowest = max((r[ORACLE] for r in rows), key=lambda found: found["cpu_s"])
    return [
        *_table(["clusters", "number", "proved", *PLANNERS], lines),
        "\nMean / worst gap; in brackets clusters where the planner found no plan, "
        f"which are not in the mean. {none} of the clusters have no plan, proved. "
        f"Slowest oracle: {slowest['cpu_s']:.1f} CPU s.",
    ]


def _figures(rows: list[Row]) -> list[str]:
    lines = []
    for r in rows:
        metis = r["metis"]["us"]
        lines.append(
            [
                r["case"].removeprefix("metis/"),
                *(_s(r[m]["us"]) for m in (ORACLE, *PLANNERS)),
                *(_times(r[m]["us"], metis) for m in ("amp", "alpa_like")),
                _per_cent(_gap(r, "metis")),
            ]
        )
    heads = [
        "instance",
        "oracle",
        *PLANNERS,
        "over AMP",
        "over Alpa",
        "above the oracle",
    ]
    return [*_table(heads, lines), "", *_speedups(rows)]


def _times(other: float | None, metis: float | None) -> str:
    return "–" if other is None or metis is None else f"{other / metis:.2f}x"


def _speedups(rows: list[Row]) -> list[str]:
    """Mean speed-ups beside those that the paper's text states."""
    even = [r for r in rows if r["pair"] in PAIRS]
    groups: list[tuple[str, list[Row], str, str]] = [
        ("figure 4, all", even, "2.65x", "2.02x"),
        ("P100 + T4", [r for r in even if r["pair"] == "p100-t4"], "", "1.66x"),
        ("T4 + V100", [r for r in even if r["pair"] == "t4-v100"], "", "1.69x"),
        ("P100 + V100", [r for r in even if r["pair"] == "p100-v100"], "", "2.15x"),
        ("GPT-3", [r for r in even if r["model"] == "gpt3"], "1.89x, both", ""),
        ("MoE", [r for r in even if r["model"] == "moe"], "2.42x, both", ""),
        (
            "Wide-ResNet",
            [r for r in even if r["model"] == "wide-resnet"],
            "2.93x, both",
            "",
        ),
        (
            "Wide-ResNet, 8 T4 + V100",
            [r for r in even if r["case"] == "metis/t4-v100-8-wide-resnet-2b"],
            "3.66x",
            "2.66x",
        ),
        (
            "figure 5, non-uniform",
            [r for r in rows if r["pair"] == "non-uniform"],
            "9.1x",
            "2.7x",
        ),
    ]
    lines = []
    for name, mine, *papers in groups:
        cells = [name]
        for method, paper in zip(("amp", "alpa_like"), papers, strict=True):
            found = [
                r[method]["us"] / r["metis"]["us"]
                for r in mine
                if r[method]["us"] and r["metis"]["us"]
            ]
            span = f" ({min(found):.2f} to {max(found):.2f})" if found else ""
            cells += [f"{fmean(found):.2f}x{span}" if found else "–", paper or "–"]
        lines.append(cells)
    heads = [
        "mean speed-up of metis",
        "over AMP (range)",
        "paper",
        "over Alpa (range)",
        "paper",
    ]
    return _table(heads, lines)


def _rows() -> list[Row]:
    """The last row of every case."""
    latest: dict[tuple[str, str], Row] = {}
    for line in (RESULTS / LINES).read_text().splitlines():
        row = json.loads(line)
        latest[row["section"], row["case"]] = row
    return list(latest.values())


def main() -> None:
    """Run the sections asked for, and write the page."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("sections", nargs="*", default=list(SECTIONS))
    parser.add_argument("--seeds", type=int, default=2)
    parser.add_argument("--time-limit", type=float, default=30.0)
    parser.add_argument("--page", action="store_true")
    asked = parser.parse_args()
    for name in [] if asked.page else asked.sections:
        for row in SECTIONS[name](asked):
            keep(LINES, {"section": name, **row})
            shown = {m: _s(row[m]["us"]) for m in (ORACLE, *PLANNERS) if m in row}
            print(row["case"], shown, f"{row[ORACLE]['cpu_s']} s", flush=True)
    (RESULTS / PAGE).write_text(page(_rows()))


if __name__ == "__main__":
    main()
