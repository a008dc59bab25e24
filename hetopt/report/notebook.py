"""Results in a notebook: a table, a drawing, a data frame."""

from collections.abc import Iterable, Iterator
from dataclasses import asdict
from html import escape
from importlib import import_module

from ..errors import Unsupported
from ..gaps import GapReport
from ..plans import TrainingPlan
from ..problems import get
from ..result import Result
from ..text.documents import Fields
from . import figures, gaps, pipelines, results, words
from .sheet import Table

_FRAMES = ("pandas", "polars")
Row = Fields


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


def frame_of_result(result: Result) -> object:
    """A row a stage of a training plan, with seconds; else the plan's own parts."""
    if result.plan is None or result.evaluation is None:
        raise Unsupported("there is no plan, so no rows: see the result's reasons")
    if isinstance(result.plan, TrainingPlan):
        return _frame(_stages(result))
    found = results.table(result.data, result.plan, result.evaluation.parts)
    if found is None:
        raise Unsupported(f"plans of {result.problem} have no rows")
    texts = ([cell.text for cell in row] for row in found.rows)
    return _frame(dict(zip(found.headings, row, strict=True)) for row in texts)


def frame_of_gaps(report: GapReport) -> object:
    """A row a method and instance; times in microseconds and in seconds."""
    rows = (asdict(gaps.Row.of(row)) for row in report.rows)
    return _frame(_with_seconds(row) for row in rows)


def _stages(result: Result) -> Iterator[Row]:
    assert result.evaluation is not None
    assert result.plan is not None
    node = result.data.planned_cluster.node
    timed = result.evaluation.parts["stages"]
    for p, (pipeline, rows) in enumerate(
        zip(result.plan.pipelines, timed, strict=True)
    ):
        for s, (stage, row) in enumerate(zip(pipeline.stages, rows, strict=True)):
            types = {node[replica.node].gpu for replica in stage.replicas}
            yield {
                "pipeline": p,
                "stage": s,
                "first_layer": stage.layers[0],
                "layers": len(stage.span),
                "gpus": sum(replica.degree for replica in stage.replicas),
                "types": ", ".join(sorted(types)),
                "nodes": ", ".join(sorted({r.node for r in stage.replicas})),
                "micro_batches": pipeline.micro_batches,
                **_with_seconds(
                    {k: v for k, v in row.items() if isinstance(v, int | float)}
                ),
            }


def _with_seconds(row: Row) -> dict[str, object]:
    """The row, with seconds beside its microseconds."""
    more = {
        f"{name.removesuffix('_us')}_s": None if value is None else float(value) / 1e6
        for name, value in row.items()
        if name.endswith("_us")
    }
    return {**row, **more}


def _frame(rows: Iterable[Row]) -> object:
    for name in _FRAMES:
        try:
            library = import_module(name)
        except ImportError:
            continue
        return library.DataFrame(list(rows))
    raise Unsupported(f"data frames need {' or '.join(_FRAMES)}: pip install pandas")


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
