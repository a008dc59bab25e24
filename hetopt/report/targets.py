"""Targets beside each other: what each of them costs an iteration, a row a target."""

from itertools import groupby

from ..api.targets import TargetReport, TargetRow
from . import words
from .sheet import Cell, Section, Sheet, Table

HEADINGS = (
    *("target", "iteration", "no faster than", "gap", "slower than the best"),
    *("pipelines", "stages", "status"),
)
_NOTE = "The best plan that each target can run, next to the best of all of them."


def _cells(row: TargetRow) -> list[Cell]:
    result = row.result
    bound = result.bound.value if result.bound else None
    status = ": ".join(filter(None, (result.status.value, "; ".join(result.reasons))))
    if row.unsupported is not None:
        status = f"not supported: {row.unsupported}"
    pipelines = result.plan.pipelines if result.plan else None
    replicas = pipelines and sum(len(p.stages[0].replicas) for p in pipelines)
    stages = pipelines and max(len(p.stages) for p in pipelines)
    return [
        Cell.of(row.target),
        Cell.of(result.objective, words.amount(result.objective, "us")),
        Cell.of(bound, words.amount(bound, "us")),
        Cell.of(result.gap, words.share(result.gap)),
        Cell.of(row.slower, words.share(row.slower)),
        Cell.of(replicas),
        Cell.of(stages),
        Cell.of(status),
    ]


def sheet(report: TargetReport) -> Sheet:
    """Return a table for each instance."""
    sections = [Section(notes=(_NOTE,))]
    for name, rows in groupby(report.rows, lambda row: row.instance):
        cells = (_cells(row) for row in rows)
        table = Table.of(HEADINGS, cells, texts=("target", "status"))
        sections.append(Section(name, table=table))
    title = "What each trainer's best plan costs"
    return Sheet(title, tuple(sections), kind="targets")
