"""Gap against time: how soon incumbent and bound of the exact method meet, by family.

    python benchmarks/gap_over_time.py [--limit 60] [--only WORD ...] [--page]

One run an instance of the exact method by itself, from nothing: what it knew at each
second is the trace of its result. Two instances of each family of the library and of
the generated clusters, at 16 and 64 GPUs. `--only` takes those whose names hold one of
the words. Appends to results/gap_over_time.jsonl; `--page` writes
results/gap_over_time.md and .svg from the latest run. Seconds are of this machine: run
it alone. 20 minutes at 60 s.
"""

import argparse
import time
from bisect import bisect_right
from collections.abc import Iterable, Iterator
from typing import Any

import _pages
import matplotlib as mpl
from _measuring import RESULTS, keep, publish
from matplotlib.figure import Figure
from matplotlib.ticker import FixedLocator, LogLocator, NullLocator

import hetopt

LINES, PAGE, PICTURE = (f"gap_over_time.{end}" for end in ("jsonl", "md", "svg"))
SECTION = "gaps"
MARKS = (5, 15, 30, 60)  # seconds
SIZES, SEED = (16, 64), 2
GENERATED = ("equal", "unequal", "islands", "steep", "tight_memory")
FAMILIES = {
    "HexiScale": (
        "hexiscale/setting-1-llama2-7b",
        "hexiscale/setting-3-llama-30b",
    ),
    "AutoHet": (
        "autohet/a100-h20-8x8-gpt3-6.7b",
        "autohet/three-types-24-gpt3-6.7b",
    ),
    "Metis, GPT": ("metis/p100-v100-16-gpt3-6.7b", "metis/t4-v100-64-gpt3-15b"),
    "Metis, MoE": ("metis/t4-v100-16-moe-10b", "metis/p100-t4-32-moe-27b"),
    "Metis, Wide-ResNet": (
        "metis/p100-t4-16-wide-resnet-4b",
        "metis/t4-v100-32-wide-resnet-6.8b",
    ),
    **{
        family.replace("_", " "): tuple(f"generated:{family}/{n}/{SEED}" for n in SIZES)
        for family in GENERATED
    },
}
HEAD = """# Gap over time

Made by `python benchmarks/gap_over_time.py` and then `--page`. One run an instance of
the exact method from nothing, without the planners' plans that `hetopt plan` starts
from; seconds of the wall. A gap is how much slower the best plan so far is than what
is proved so far; – before there are both. A curve ends with its run; gaps beyond 300 %
are not drawn.

![gap against time, a panel a family](gap_over_time.svg)
"""
_ROWS = 2  # panels above each other
_LEAST, _MOST = 1e-3, 3.0  # gaps: drawn as closed, and no more drawn
Point = tuple[float, float]  # seconds, gap


def measured(family: str, name: str, limit_s: float) -> _pages.Row:
    """One run, and the gap at every second at which it changed."""
    result = hetopt.solve(hetopt.load(name), limits=hetopt.Limits(time_s=limit_s))
    points: list[Point] = []
    for point in result.trace:
        if point.incumbent is None or point.bound is None:
            continue
        gap = hetopt.gap(point.incumbent, point.bound)
        if not points or gap < points[-1][1]:
            points.append((round(point.seconds, 3), gap))
    return {
        "family": family,
        "instance": name,
        "status": result.status.value,
        "bound by": result.bound.source if result.bound else None,
        "limit_s": limit_s,
        "seconds": round(sum(result.seconds.values()), 2),
        "gaps": points,
    }


def gap_at(points: list[Point], seconds: float) -> float | None:
    """The gap of the last change by then; None before the first."""
    number = bisect_right([when for when, _ in points], seconds)
    return points[number - 1][1] if number else None


def told(gap: float | None) -> str:
    """A gap as a cell."""
    return "–" if gap is None else "proved" if gap == 0 else f"{gap:.1%}"


def run(limit_s: float, words: list[str]) -> None:
    """Measure what is asked for, and keep each row as soon as it is known."""
    begun = time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime())
    for family, name in asked(words):
        row = measured(family, name, limit_s)
        at = (f"{mark} s {told(gap_at(row['gaps'], mark))}" for mark in marks(limit_s))
        print(f"{name:40}", *at, sep="   ", flush=True)
        line = {"section": SECTION, "run": begun, "limit_s": limit_s, "row": row}
        keep(LINES, line, "ortools")


def asked(words: list[str]) -> Iterator[tuple[str, str]]:
    """Families and names that hold one of the words; all without words."""
    for family, names in FAMILIES.items():
        for name in names:
            if not words or any(word in name for word in words):
                yield family, name


def marks(limit_s: float) -> list[int]:
    """Seconds of the table that a run reaches."""
    return [mark for mark in MARKS if mark <= limit_s]


def write() -> None:
    """The page and the picture of the latest run."""
    rows = _pages.latest(LINES, SECTION)
    reached = marks(min(row["limit_s"] for row in rows))
    headers = ["family", "instance", *(f"{mark} s" for mark in reached), "bound by"]
    cells = (
        [
            row["family"],
            f"`{row['instance']}`",
            *(told(gap_at(row["gaps"], mark)) for mark in reached),
            _pages.shown(row["bound by"]),
        ]
        for row in rows
    )
    table = "\n".join(_pages.grid(headers, cells))
    text = f"{HEAD}\n{table}\n\n{_pages.ran(LINES, SECTION)}\n"
    publish(PAGE, text, LINES)
    draw(rows)


def draw(rows: list[_pages.Row]) -> None:
    """A panel a family, a line an instance."""
    families = list(dict.fromkeys(row["family"] for row in rows))
    across = -(-len(families) // _ROWS)
    figure = Figure(figsize=(2.6 * across, 2.6 * _ROWS), layout="constrained")
    panels = figure.subplots(_ROWS, across, squeeze=False, sharex=True, sharey=True)
    for panel in panels.flat[len(families) :]:
        panel.set_axis_off()
    for panel, family in zip(panels.flat, families, strict=False):
        _lines(panel, (row for row in rows if row["family"] == family))
        panel.set_title(family, fontsize=9)
    figure.supxlabel("seconds", fontsize=9)
    figure.supylabel("gap, %", fontsize=9)
    with mpl.rc_context({"svg.hashsalt": "gap_over_time"}):
        figure.savefig(RESULTS / PICTURE, metadata={"Date": None})


def short(name: str) -> str:
    """An instance within its family: without it, and of generated ones the GPUs."""
    rest = name.split("/")[1]
    return f"{rest} GPUs" if name.startswith("generated:") else rest


def _lines(panel: Any, rows: Iterable[_pages.Row]) -> None:
    for row in rows:
        points = [(when, 100 * max(gap, _LEAST)) for when, gap in row["gaps"]]
        if not points:
            continue
        points.append((max(points[-1][0], row["seconds"]), points[-1][1]))
        seconds, gaps = zip(*points, strict=True)
        panel.step(seconds, gaps, where="post", label=short(row["instance"]))
    panel.set(xscale="log", yscale="log", ylim=(80 * _LEAST, 100 * _MOST))
    panel.xaxis.set_major_locator(FixedLocator([1, *MARKS]))
    panel.xaxis.set_major_formatter(lambda value, _: f"{value:g}")
    panel.yaxis.set_major_locator(LogLocator(subs=(1, 2, 5)))
    panel.yaxis.set_major_formatter(lambda value, _: f"{value:.3g}")
    for axis in (panel.xaxis, panel.yaxis):
        axis.set_minor_locator(NullLocator())
    panel.tick_params(labelsize=7)
    if panel.lines:
        panel.legend(fontsize=6, frameon=False)


def main(words: list[str] | None = None) -> None:
    """Measure, or write the page."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0])
    parser.add_argument("--limit", type=float, default=60.0)
    parser.add_argument("--only", nargs="*", default=[])
    parser.add_argument("--page", action="store_true")
    given = parser.parse_args(words)
    if not given.page:
        run(given.limit, given.only)
    write()


if __name__ == "__main__":
    main()
