"""Results in a notebook: a table, or a drawing."""

from html import escape

from ..gaps import GapReport
from ..plans import TrainingPlan
from ..problems import get
from ..result import Result
from . import figures, gaps, pipelines, results, words
from .sheet import Table


def of_result(result: Result) -> str:
    """A line of what is known, and the plan: drawn where it is of training."""
    parts = [f"<p>{escape(_headline(result))}</p>"]
    if isinstance(result.plan, TrainingPlan):
        palette = pipelines.colours(result.data.planned_cluster.gpus)
        drawn = figures.svg(lambda: pipelines.drawing(result, palette), "plan")
        parts.append(f'<div style="max-width: 50rem">{drawn}</div>')
    elif result.plan is not None and result.evaluation is not None:
        found = results.table(result.data, result.plan, result.evaluation.parts)
        parts += [] if found is None else [_table(found)]
    parts += [f"<p>{escape(reason)}</p>" for reason in result.reasons]
    return "".join(parts)


def of_gaps(report: GapReport) -> str:
    """A table for each instance, below what is proved of it."""
    sections = gaps.sections(report)
    return "".join(
        f"<h4>{escape(one.title)}</h4><p>{escape(one.notes[0])}</p>{_table(one.table)}"
        for one in sections
        if one.table is not None
    )


def _headline(result: Result) -> str:
    unit = get(result.problem).unit(result.data)
    said = [f"{result.status.value}, by {result.method.name}"]
    if result.objective is not None:
        said.append(words.amount(result.objective, unit))
    if result.bound is not None:
        told = words.amount(result.bound.value, unit)
        said.append(f"proved: none is better than {told} ({result.bound.source})")
    if result.gap is not None:
        said.append(f"gap {words.share(result.gap)}")
    return "; ".join(said)


def _table(table: Table) -> str:
    head = "".join(f"<th>{escape(name)}</th>" for name in table.headings)
    body = "".join(
        "<tr>" + "".join(f"<td>{escape(cell.text)}</td>" for cell in row) + "</tr>"
        for row in table.rows
    )
    return f"<table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>"
