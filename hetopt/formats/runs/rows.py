"""Rows of runs: JSON or YAML as `hetopt.costs.runs.rows` says, and CSV.

The columns of a CSV file are the fields of a run; its first line names them. An empty
cell is null. Other columns are left alone, as other fields of JSON are. The layers of
stages are `12 14` or `[12, 14]`.
"""

from collections.abc import Iterator
from typing import Any

from ...costs.runs.rows import MOST_ROWS, Run, runs_of
from ...errors import InstanceError
from ...text.complaints import listed
from . import cells
from .facts import Given, check_run
from .source import Form, Source

_SOME = "model, layers, hidden, gpu, gpus, tp, pp, mbs, gbs, seq, iteration_s"


def _is_tree(source: Source) -> bool:
    return source.kind == "tree"


def _tree_runs(source: Source, given: Given) -> list[Run]:
    return given.filled(runs_of(source.tree, source.path), source.path)


def _is_table(source: Source) -> bool:
    return source.kind == "table"


def _table_runs(source: Source, given: Given) -> list[Run]:
    columns = source.table.columns
    if not any(name in Run.model_fields for name in columns):
        raise InstanceError.at(
            source.path,
            "line 1",
            f"found the columns {listed(columns)}, expected some of {_SOME}; name the "
            "columns in the first line",
        )
    rows = list(_rows(source))
    if not rows:
        raise InstanceError.at(
            source.path, None, "found no rows, expected some below the header; add them"
        )
    return given.filled(rows, source.path)


def _rows(source: Source) -> Iterator[Run]:
    for index, (number, row) in enumerate(source.table.rows):
        if index == MOST_ROWS:
            raise InstanceError.at(
                source.path,
                f"line {number}",
                f"found more rows, expected at most {MOST_ROWS}; split the file",
            )
        yield _row(source, number, row)


def _row(source: Source, number: int, row: dict[Any, Any]) -> Run:
    if None in row or None in row.values():
        whole = len(source.table.columns)
        extra = len(row.get(None, ()))
        count = whole + extra if extra else sum(v is not None for v in row.values())
        raise InstanceError.at(
            source.path,
            f"line {number}",
            f"found {count} cells, expected {whole} as in the header; correct the line",
        )
    fields = {
        name: cells.value(name, text)
        for name, text in row.items()
        if name in Run.model_fields
    }
    return check_run(
        fields, source.path, lambda field: f"line {number}, column {field}"
    )


TREE = Form("json", "JSON or YAML rows", "tree", _is_tree, _tree_runs)
TABLE = Form("csv", "CSV rows with a header", "table", _is_table, _table_runs)
