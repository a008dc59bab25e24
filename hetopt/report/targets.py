"""Targets beside each other: what each of them costs an iteration, a row a target."""

from itertools import groupby

from ..api.targets import TargetReport, TargetRow
from ..findings import Entries
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


def able(found: Entries) -> Sheet:
    """One row a target, one column a feature of the plan, under a list of these."""
    rows = found.rows
    features = list(rows[0]["features"]) if rows else []
    listed = "; ".join(f"({i}) {name}" for i, name in enumerate(features, 1))
    own = listed or "no feature that limits where it can run"
    columns = [f"({i})" for i in range(1, len(features) + 1)]
    cells = []
    for row in rows:
        has = dict(zip(columns, row["features"].values(), strict=True))
        lacking = ", ".join(column for column, each in has.items() if not each)
        told = f"lacks {lacking}" if lacking else "; ".join(row["reasons"])
        if (unsupported := row["unsupported"]) is not None:
            told = f"not supported: {unsupported}"
        marks = ("yes" if each else "NO" for each in has.values())
        releases = f"from {row['oldest']} (tested: {', '.join(row['held_against'])})"
        cells.append((row["name"], releases, *marks, told or "can run it"))
    headings = ("target", "releases", *columns, "verdict")
    table = Table.of(headings, cells, texts=headings)
    return Sheet("Targets", (Section(table=table),), answer=f"The plan has {own}")
