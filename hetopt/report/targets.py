"""Targets beside each other: what each of them costs an iteration, a row a target."""

from collections.abc import Iterator
from itertools import groupby

from rich.console import RenderableType
from rich.text import Text

from ..api.targets import TargetReport, TargetRow
from . import words, writers
from .sheet import Cell, Section, Sheet, Table

HEADINGS = (
    *("target", "iteration", "no faster than", "gap", "slower than the best"),
    *("proved at least", "at most", "pipelines", "stages", "status"),
)
_FIELDS = (
    *("instance", "target", "status", "iteration_us", "bound_us", "gap"),
    *("slower", "slower_at_least", "slower_at_most", "planning_s", "reasons"),
)
_NOTE = (
    "The best plan that each target can run. What is proved is of the best plans of "
    "all: so much slower is the target than the freest one, which runs every plan that "
    "the architecture allows."
)


def terminal(report: TargetReport) -> Iterator[RenderableType]:
    """A table for each instance."""
    for part in _sections(report):
        yield Text(words.plain(part.title), style="bold")
        assert part.table is not None
        yield writers.terminal(part.table)
        yield ""


def _sections(report: TargetReport) -> Iterator[Section]:
    for name, rows in groupby(report.rows, lambda row: row.instance):
        cells = (_cells(row) for row in rows)
        yield Section(name, table=Table.of(HEADINGS, cells, texts=("target", "status")))


def _cells(row: TargetRow) -> list[Cell]:
    result = row.result
    bound = result.bound.value if result.bound else None
    pipelines = result.plan.pipelines if result.plan else None
    replicas = pipelines and sum(len(p.stages[0].replicas) for p in pipelines)
    stages = pipelines and max(len(p.stages) for p in pipelines)
    reason = f": {'; '.join(result.reasons)}" if result.reasons else ""
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
        Cell.of(result.status.value + reason),
    ]


def _fields(row: TargetRow) -> dict[str, object]:
    result = row.result
    values = (
        *(row.instance, row.target, result.status.value, result.objective),
        *(result.bound.value if result.bound else None, result.gap),
        *(row.slower, row.slower_at_least, row.slower_at_most),
        *(sum(result.seconds.values()), "; ".join(result.reasons)),
    )
    return dict(zip(_FIELDS, values, strict=True))


def _sheet(report: TargetReport) -> Sheet:
    sections = (Section(notes=(_NOTE,)), *_sections(report))
    return Sheet("What each trainer's best plan costs", sections, kind="targets")


def _comma_separated(report: TargetReport) -> str:
    return writers.comma_separated(list(_FIELDS), map(_fields, report.rows))


FILES = writers.Files[TargetReport](
    {
        ".html": lambda report: writers.page(_sheet(report)),
        ".md": lambda report: writers.markdown(_sheet(report)),
        ".csv": _comma_separated,
        ".json": lambda report: writers.document(report.to_json()),
    }
)
