"""The page of Metis's benchmark: tables beside the paper's figures, and words."""

from statistics import fmean
from typing import Any

from _metis_instances import PAIRS

PLANNERS = ("metis", "amp", "alpa_like", "galvatron_like")
ORACLE = "one_pipeline"
Row = dict[str, Any]

_SECONDS = (
    "Metis's planner looks at at most 500,000 partial plans, which are all up to 16 "
    "GPUs; the paper's seconds are of its authors' machine. The oracle proves that no "
    "single pipeline is faster. The paper's exhaustive oracle takes 17 times as long "
    "as Metis at 4 GPUs and more than 5 million times at 64 (table 4); beyond 16 GPUs "
    "its authors changed plans by hand, and found about 5 %."
)
_GAPS = (
    "Where Metis loses, as the plans show: layers in proportion to compute do not see "
    "hops, so that a stage before a slow link is the slowest; all GPUs are used; "
    "degrees above 1 are tried only where memory lacks; sizes of groups are powers of "
    "two, and a stage's GPUs stand next to each other in a row of types. Averages cost "
    "the more, the more the types differ."
)
_FIGURES = (
    "Speeds are peaks and not measurements (`instances/README.md`): ratios compare, "
    "seconds do not. What holds: Metis is ahead of both on all but the MoE of 27B, the "
    "more the further the types are apart, most on Wide-ResNet. What does not: AMP "
    "and Alpa choose alike on GPT-3 and MoE, where equal parts are the best that "
    "averages allow; in the paper Alpa is ahead of AMP there. On non-uniform clusters "
    "the paper gives AMP and Alpa more machines of one GPU, ours keep the machines. On "
    "the MoE of 27B on 32 GPUs memory decides: Metis, AMP and Alpa give a node two or "
    "three layers; the oracle lets the types take turns, a node of the faster with a "
    "dense layer on both sides of its MoE layer, a node of the slower with one MoE "
    "layer, and is 1.4 to 1.5 times as fast. A row of types has no such turns."
)


def page(rows: list[Row]) -> str:
    """The Markdown of all rows."""
    names = ("seconds", "gaps", "figures")
    parts = {name: [r for r in rows if r["section"] == name] for name in names}
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
            f"\n{_SECONDS}",
        ]
    if parts["gaps"]:
        text += [
            "\n## Distance from the oracle, generated clusters\n",
            *_gaps(parts["gaps"]),
            f"\n{_GAPS}",
        ]
    if parts["figures"]:
        text += [
            "\n## Figures 4 and 5: seconds an iteration\n",
            *_figures(parts["figures"]),
            f"\n{_FIGURES}",
        ]
    return "\n".join(text) + "\n"


def shown(row: Row) -> str:
    """A row on the terminal."""
    found = ", ".join(
        f"{name} {_s(row[name]['us'])} s" for name in (ORACLE, *PLANNERS) if name in row
    )
    return f"{row['case']}: {found}; oracle in {row[ORACLE]['cpu_s']} CPU s"


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
    idle = sum((r[ORACLE]["gpus_used"] or r["gpus"]) < r["gpus"] for r in rows)
    slowest = max((r[ORACLE] for r in rows), key=lambda found: found["cpu_s"])
    return [
        *_table(["clusters", "number", "proved", *PLANNERS], lines),
        "\nMean / worst gap; in brackets clusters where the planner found no plan, "
        f"which are not in the mean. {none} of the clusters have no plan, proved. "
        f"Slowest oracle: {slowest['cpu_s']:.1f} CPU s. {idle} optimal plans leave "
        "GPUs idle.",
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
