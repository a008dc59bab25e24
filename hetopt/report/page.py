"""A gap report as one HTML page that needs nothing else: no network, no other file."""

from dataclasses import dataclass

from ..gaps import GapReport
from ..result import Result
from . import drawing, words
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
        palette=palette,
        plain=words.plain,
        summary_headings=list(SUMMARY_HEADINGS.values()),
        summary=summary_rows(report),
        drawing=drawing,
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
