"""Targets beside each other: what each of them costs an iteration, a row a target."""

from collections.abc import Iterator
from dataclasses import replace
from itertools import groupby
from typing import TYPE_CHECKING

from rich.console import RenderableType
from rich.text import Text

from ..api.targets import TargetReport, TargetRow
from . import figures, words, writers
from .sheet import Cell, Figure, Section, Sheet, Table

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure as Drawing

HEADINGS = (
    *("target", "iteration", "no faster than", "gap", "slower than the best"),
    *("proved at least", "at most", "pipelines", "stages", "status"),
)
_FIELDS = (
    *("instance", "target", "status", "iteration_us", "bound_us", "gap"),
    *("slower", "slower_at_least", "slower_at_most", "planning_s", "reasons"),
)
_NOTE = (
    "The best plan that each target can run. The proved range compares best plans: "
    "how much slower the target is than one that runs every plan that the "
    "architecture allows."
)


def terminal(report: TargetReport) -> Iterator[RenderableType]:
    """A table for each instance."""
    for part in _sections(report):
        yield Text(words.plain(part.title), style="bold")
        assert part.table is not None
        yield writers.terminal(part.table)
        yield ""


def _instances(report: TargetReport) -> list[tuple[str, list[TargetRow]]]:
    grouped = groupby(report.rows, lambda row: row.instance)
    return [(name, list(rows)) for name, rows in grouped]


def _sections(report: TargetReport) -> Iterator[Section]:
    for name, rows in _instances(report):
        cells = (_cells(row) for row in rows)
        table = Table.of(HEADINGS, cells, texts=("target", "status"))
        yield Section(name, table=table)


def _cells(row: TargetRow) -> list[Cell]:
    result = row.result
    bound = result.bound.value if result.bound else None
    pipelines = result.plan.pipelines if result.plan else None
    replicas = pipelines and sum(len(p.stages[0].replicas) for p in pipelines)
    stages = pipelines and max(len(p.stages) for p in pipelines)
    return [
        Cell.of(row.target),
        Cell.of(result.objective, words.amount(result.objective, "us")),
        Cell.of(bound, words.amount(bound, "us")),
        Cell.of(result.gap, words.share(result.gap)),
        Cell.of(row.slower, words.share(row.slower)),
        Cell.of(row.slower_at_least, words.share(row.slower_at_least)),
        Cell.of(row.slower_at_most, words.share(row.slower_at_most)),
        Cell.of(replicas),
        Cell.of(stages),
        Cell.of(_status(row)),
    ]


def _status(row: TargetRow) -> str:
    """Return what is known of the target's plans, and why there is none."""
    if row.unsupported is not None:
        return f"not supported: {row.unsupported}"
    result = row.result
    reason = f": {'; '.join(result.reasons)}" if result.reasons else ""
    return result.status.value + reason


def _fields(row: TargetRow) -> dict[str, object]:
    result = row.result
    status = "not supported" if row.unsupported else result.status.value
    values = (
        *(row.instance, row.target, status, result.objective),
        *(result.bound.value if result.bound else None, result.gap),
        *(row.slower, row.slower_at_least, row.slower_at_most),
        *(sum(result.seconds.values()), "; ".join(result.reasons)),
    )
    return dict(zip(_FIELDS, values, strict=True))


def _sheet(report: TargetReport) -> Sheet:
    parts = zip(_sections(report), _instances(report), strict=True)
    drawn = (replace(part, figures=_figures(rows)) for part, (_, rows) in parts)
    sections = (Section(notes=(_NOTE,)), *drawn)
    return Sheet("What each trainer's best plan costs", sections, kind="targets")


# --- pictures --------------------------------------------------------------------


def _figures(rows: list[TargetRow]) -> tuple[Figure, ...]:
    """Bars of those targets that have a plan."""
    if not _rows_with_plan(rows):
        return ()

    def drawn(width: float) -> "Drawing":
        figure = figures.canvas(width, _height(rows))
        _bars(figure.subplots(), rows)
        return figure

    told = "One bar per target, and a mark at the proved lower bound of its plans."
    wide, narrow = (lambda: drawn(figures.WIDTH)), (lambda: drawn(figures.NARROW))
    return (
        Figure("Time per iteration of each target's best plan", "", wide, narrow, told),
    )


def picture(report: TargetReport) -> "Drawing":
    """The Matplotlib figure: for each instance a bar a target."""
    parts = _instances(report)
    heights = [_height(rows) for _, rows in parts]
    figure = figures.canvas(figures.WIDTH, sum(heights))
    found = figure.subfigures(len(parts), 1, height_ratios=heights, squeeze=False)
    for part, (name, rows) in zip(found[:, 0], parts, strict=True):
        part.suptitle(words.plain(name), x=0.01, ha="left", weight="bold")
        if _rows_with_plan(rows):
            _bars(part.subplots(), rows)
        else:
            part.text(0.01, 0.4, "no target has a plan")
    return figure


def _rows_with_plan(rows: list[TargetRow]) -> list[TargetRow]:
    return [row for row in rows if row.result.objective is not None]


def _height(rows: list[TargetRow]) -> float:
    return 1.2 + 0.3 * max(1, len(_rows_with_plan(rows)))  # inches


def _bars(axes: "Axes", rows: list[TargetRow]) -> None:
    """A bar a target, and a mark at its own bound."""
    planned = _rows_with_plan(rows)
    times = [float(row.result.objective or 0) / 1e6 for row in planned]
    told = [words.amount(row.result.objective, "us") for row in planned]
    figures.bars(axes, [row.target for row in planned], times, told)
    for place, row in enumerate(planned):
        if row.result.bound is not None:
            proved = float(row.result.bound.value) / 1e6
            axes.vlines(proved, place - 0.42, place + 0.42, colors=figures.INK)
    axes.set_xlabel("iteration time, s; line: proved bound", loc="left")


def _comma_separated(report: TargetReport) -> str:
    return writers.comma_separated(list(_FIELDS), map(_fields, report.rows))


FILES = writers.Files[TargetReport](
    {
        ".html": lambda report: writers.page(_sheet(report)),
        ".md": lambda report: writers.markdown(_sheet(report)),
        ".csv": _comma_separated,
        ".json": lambda report: writers.document(report.to_json()),
        **dict.fromkeys(writers.PICTURES, picture),
    }
)
