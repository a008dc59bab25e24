"""The papers' figures beside ours: what `hetopt bench papers` makes row by row.

`TABLES` has a function for each table or figure of a paper: it takes a time limit in
seconds and yields `{paper, figure, ours, theirs, unit, reason}`, `theirs` absent where
the paper has no number, `reason` why the two differ. Most are sections of the scripts
of this folder, which also tell more; `SECTIONS` there says why.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from importlib import import_module
from statistics import mean
from typing import Any

from paper_figures_by_hand import BY_HAND

Row = dict[str, Any]
Table = Callable[[float], Iterator[Row]]


@dataclass(frozen=True)
class Column:
    """Where a section has a figure: of every row, or of all rows folded into one."""

    label: str  # the field that names the row; with `fold`, the figure's own name
    ours: str
    theirs: str | float  # the field that holds it, or the paper's one number
    unit: str
    what: str = ""
    fold: Callable[[list[float]], float] | None = None


HFU = "HFU calibrated, %"
COLUMNS: dict[str, dict[str, tuple[Column, ...]]] = {
    "hexiscale": {
        "case_study": (
            Column("plan", "total, s", "paper's total", "s", "iteration"),
            Column("plan", "sync, s", "paper's sync", "s", "synchronisation"),
        ),
        "table_2": (Column("plan", HFU, "paper, %", "% HFU", "Table 2"),),
        "settings": (Column("setting", HFU, "paper, %", "% HFU", "Table 3"),),
        "optimality": (
            Column(
                "setting",
                "best known over hexiscale",
                "paper: MILP over HexiScale",
                "times",
                "Table 6",
            ),
        ),
        "ablations": (
            Column("one degree costs at most", "slower by, %", 23.0, "%", fold=max),
            Column("one degree costs on average", "slower by, %", 15.0, "%", fold=mean),
            Column(
                "no accumulation costs at most",
                "slower by, %, too",
                15.0,
                "%",
                fold=max,
            ),
        ),
        "convergence": (
            Column("setting", "gain, %", "paper, %", "%", "Fig. 8, over random groups"),
        ),
        "large": tuple(
            Column(
                "instance",
                f"{planner} / hexiscale",
                f"paper: {name} / HexiScale",
                "times",
                f"Fig. 10, over {planner}:",
            )
            for planner, name in (("metis", "metis"), ("galvatron_like", "galvatron"))
        ),
        "metis_plan": (Column("plan", HFU, "paper, %", "% HFU", "Fig. 10, left"),),
        "bandwidth": (Column("GB/s", HFU, "paper, %", "% HFU", "Appendix E, at GB/s"),),
    },
    "autohet": {
        "averages": tuple(
            Column("family", f"over {who}{k}", theirs, "times", f"over {name}{k}")
            for k in ("", ", K = 16")
            for who, theirs, name in (
                ("megatron", "paper", "Megatron-LM"),
                ("whale, equal layers", "paper, over Whale", "Whale"),
            )
        ),
        "breakdown": (
            Column("step", "over one of single GPUs", "paper", "times", "Fig. 9"),
        ),
        "grouping": (
            Column("devices", "method, s", "paper, s", "s", "grouping, devices:"),
        ),
    },
}
NAMES = {"hexiscale": "HexiScale", "autohet": "AutoHet"}


def figures(script: str, section: str, limit_s: float) -> Iterator[Row]:
    """The figures of one section of a script."""
    make, why = import_module(script).SECTIONS[section]
    rows = list(make(limit_s))
    for column in COLUMNS[script][section]:
        shared = {"paper": NAMES[script], "unit": column.unit, "reason": why}
        for label, ours, theirs in _values(column, rows):
            yield {"figure": label, "ours": ours, "theirs": theirs, **shared}


def _values(
    column: Column, rows: list[Row]
) -> Iterator[tuple[str, float, float | None]]:
    if column.fold is not None:
        assert isinstance(column.theirs, float)
        there = [row[column.ours] for row in rows if row.get(column.ours) is not None]
        yield column.label, column.fold(there), column.theirs
        return
    for row in rows:
        ours, theirs = row.get(column.ours), row.get(str(column.theirs))
        if isinstance(ours, int | float) and isinstance(theirs, int | float):
            yield f"{column.what} {row[column.label]}".strip(), ours, theirs


TABLES: dict[str, Table] = {
    f"{script}_{section}": partial(figures, script, section)
    for script, sections in COLUMNS.items()
    for section in sections
} | BY_HAND
