"""Rows of measured runs, in JSON, YAML and CSV.

JSON and YAML hold a list of rows, or an object with `runs`. The columns of a CSV file
are the fields of a run (`hetopt.costs.runs.rows.Run`), named in its first line; a blank
cell is null, a list or a plan is JSON. Columns and fields beyond these are left alone.
"""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from ...costs.runs.rows import Run, Served
from ...errors import InstanceError, Place
from ...text.complaints import expectation, listed, shown
from ...text.parsing import read_table
from .source import Source
from .trainer import is_log

MOST_ROWS = 100_000
_TREES = ("stage_layers", "nodes", "plan", "lora_targets")
_SOME = "model, layers, hidden, gpu, gpus, tp, pp, mbs, gbs, seq, iteration_s"


def read(path: Place) -> list[Run | Served]:
    """Return the runs of a file, in its order.

    All are rows of serving where the first one has tokens of a prompt or an answer.
    Raises `InstanceError` that names the file, the row or line, and the field.
    """
    place = Path(path)
    source = Source(place)
    rows = _of_table(source)
    if source.kind == "tree":
        tree = source.tree
        held = tree.get("runs") if isinstance(tree, dict) else tree
        of_tree = held if isinstance(held, list) else []
        rows = ((f"[{index}]", row) for index, row in enumerate(of_tree))
    found: list[Run | Served] = []
    record: type[Run | Served] = Run
    for at, row in rows:
        if not found and isinstance(row, dict) and {"isl", "osl"} & row.keys():
            record = Served
        if len(found) == MOST_ROWS:
            raise InstanceError.at(
                place,
                at,
                f"found more rows, expected at most {MOST_ROWS}; split the file",
            )
        found.append(_run(row, record, place, at))
    if not found:
        raise InstanceError.at(
            place,
            None,
            "found no rows, expected a list, an object with runs, or lines; add them",
        )
    return found


def _of_table(source: Source) -> Iterator[tuple[str, object]]:
    if is_log(source):
        raise InstanceError.at(
            source.path,
            None,
            "found the log of a trainer, expected rows of runs; compare a log with its "
            "prediction by `hetopt check --from LOG --instance X`",
        )
    table = read_table(source.path)
    if {*Run.model_fields, *Served.model_fields}.isdisjoint(table.columns):
        raise InstanceError.at(
            source.path,
            "line 1",
            f"found the columns {listed(table.columns)}, expected some of {_SOME}; "
            "name the columns in the first line",
        )
    for number, cells in table.rows:
        if None in cells.values():
            count, whole = sum(c is not None for c in cells.values()), len(cells)
            raise InstanceError.at(
                source.path,
                f"line {number}",
                f"found {count} cells, expected {whole} as in the header; correct it",
            )
        fields = ((name, _value(name, text or "")) for name, text in cells.items())
        yield f"line {number}", {name: x for name, x in fields if x is not None}


def _value(name: str, text: str) -> Any:
    """Return the value of a cell, yet to be checked; None for a blank one."""
    bare = text.strip()
    if name == "fsdp" and bare.isdecimal():
        return int(bare)
    if name in _TREES and bare[:1] in ("[", "{"):
        try:
            return json.loads(bare)
        except (ValueError, RecursionError):
            return text
    return text if bare else None


def _run(row: object, record: type[Run | Served], path: Path, at: str) -> Run | Served:
    try:
        return record.model_validate(row)
    except ValidationError as error:
        first = error.errors()[0]
        field = str(first["loc"][0]) if first["loc"] else ""
        wanted = "an object with the fields of a run"
        if field:
            schema = record.model_json_schema()
            wanted = expectation(schema, schema["properties"][field])
        raise InstanceError.at(
            path,
            f"{at}.{field}".removesuffix("."),
            f"found nothing, expected {wanted}; add it"
            if first["type"] == "missing"
            else f"found {shown(first['input'])}, expected {wanted}; correct it, or "
            "leave it out where it is not known",
        ) from None
