"""A gap report as one HTML page that needs nothing else: no network, no other file."""

from collections.abc import Iterator
from dataclasses import dataclass

from ..gaps import GapReport
from ..performance_profiles import profiles
from ..result import Result, known_gap
from . import charts, drawing, words
from .rows import COLUMNS, SUMMARY_HEADINGS, Row, Section, sections, summary_rows
from .templates import template


@dataclass(frozen=True)
class Picture:
    """A plan's drawing, and what is written above it."""

    title: str
    note: str
    drawing: drawing.Drawing


def html(report: GapReport) -> str:
    """The page: for each instance a table that sorts, and its plans drawn."""
    parts = sections(report)
    palette = drawing.colours(
        gpu for part in parts for gpu in part.results[0].data.planned_cluster.gpus
    )
    return template("page.html.j2").render(
        columns=COLUMNS,
        sections=[(part, _pictures(part, palette)) for part in parts],
        charts=[chart for chart in _charts(report) if chart is not None],
        palette=palette,
        plain=words.plain,
        summary_headings=list(SUMMARY_HEADINGS.values()),
        summary=summary_rows(report),
        drawing=drawing,
    )


def _charts(report: GapReport) -> Iterator[charts.Chart | None]:
    """How the planners compare over all instances, and how the gaps closed."""
    costs: dict[str, dict[str, float | None]] = {}
    curves = {}
    for row in report.rows:
        label, value = Row.of(row).label, row.result.objective
        mine = costs.setdefault(label, {})
        mine[row.instance] = float(value) if value else None
        curve = [
            (max(point.seconds, 0.001), distance)
            for point in row.result.trace
            if (distance := known_gap(point.incumbent, point.bound)) is not None
        ]
        if curve:
            curves[f"{row.instance}, {label}"] = curve
    if len({row.instance for row in report.rows}) > 1:
        yield charts.profile_chart(
            "Performance profile",
            "The share of all instances on which a planner's plan is within a factor "
            "of the best plan of this page (Dolan and Moré).",
            profiles(costs),
        )
    yield charts.trace_chart(
        "Gap against time",
        "How far the best plan so far was from the bound that was proved by then.",
        curves,
    )


def _pictures(section: Section, palette: dict[str, str]) -> list[Picture]:
    pairs = zip(section.rows, section.results, strict=True)
    return [
        Picture(row.label, _note(row, result), picture)
        for row, result in pairs
        if (picture := drawing.drawing(result, palette)) is not None
    ]


def _note(row: Row, result: Result) -> str:
    parts = result.evaluation.parts if result.evaluation else {}
    return (
        f"{words.amount(row.iteration_us, 'us')} an iteration, of which "
        f"{words.amount(parts.get('sync_us'), 'us')} synchronisation; "
        f"{row.pipelines} pipelines, {row.stages} stages, "
        f"{words.memory(row.headroom_mib)} of memory to spare on the fullest GPU"
    )
