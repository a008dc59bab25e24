"""Columns of tables under the names that people give them, and rows as records.

A column is known by its name, or by another usual one, however words are joined
(`gpu_count`, `GPU Count`, `gpuCount`).
"""

import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TypeVar

from pydantic import BaseModel, ValidationError

from ..errors import InstanceError
from .complaints import shown
from .parsing import Table

R = TypeVar("R", bound=BaseModel)


def known(columns: Sequence[str], names: Mapping[str, Sequence[str]]) -> dict[str, str]:
    """Return the columns of a table by our names.

    `names` are the usual ones, beside ours; a column with our very name goes first.
    """
    found: dict[str, str] = {}
    plain = {_plain(column): column for column in reversed(columns)}
    for ours, usual in names.items():
        if ours in columns:
            found[ours] = ours
            continue
        there = (plain.get(_plain(name)) for name in (ours, *usual))
        if (one := next(filter(None, there), None)) is not None:
            found[ours] = one
    return found


def as_record(
    record: type[R], path: Path, line: int, cells: Mapping[str, str | None]
) -> R:
    """Return a line of a table as a record, whose fields say what cells they expect.

    Empty cells are none. `InstanceError` with file, line, column, what was found, what
    was expected and the remedy.
    """
    texts = {name: (cell or "").strip() for name, cell in cells.items()}
    told = {name: text for name, text in texts.items() if text}
    try:
        return record.model_validate(told)
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
    place = ": ".join([f"line {line}", *map(str, first["loc"][:1])])
    if first["type"] == "value_error":
        raise InstanceError.at(path, place, str(first["ctx"]["error"]))
    column = str(first["loc"][0])
    found = shown(told[column]) if column in told else "nothing"
    expected = record.model_fields[column].description
    words = f"found {found}, expected {expected}; correct or remove the line"
    raise InstanceError.at(path, place, words)


def with_names(table: Table, columns: Mapping[str, str]) -> Table:
    """Return a table that has its columns by our names as well."""
    rows = (
        (line, cells | {ours: cells.get(name) for ours, name in columns.items()})
        for line, cells in table.rows
    )
    return Table([*dict.fromkeys((*table.columns, *columns))], rows)


def _plain(name: str) -> str:
    return re.sub(r"[^a-z0-9]+", "", name.lower())
