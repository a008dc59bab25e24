"""Columns of tables under the names that people give them, and rows as records.

A column is known by its name, or by another usual one, with or without a unit behind
it (`price_per_hour`, `Price (hour)`).
"""

import re
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple, TypeVar

from pydantic import BaseModel, ValidationError

from ..errors import InstanceError
from .complaints import shown
from .parsing import Table

R = TypeVar("R", bound=BaseModel)

_UNITS = {
    **dict.fromkeys(("s", "sec", "secs", "second", "seconds"), 1.0),
    **dict.fromkeys(("m", "min", "mins", "minute", "minutes"), 60.0),
    **dict.fromkeys(("h", "hr", "hrs", "hour", "hours"), 3600.0),
    **dict.fromkeys(("d", "day", "days"), 86_400.0),
    **dict.fromkeys(("ms", "msec", "millis", "milliseconds"), 0.001),
}


class Column(NamedTuple):
    """A column as a table has it, and the seconds of its unit."""

    name: str
    unit_s: float = 1.0


def known(
    columns: Sequence[str], names: Mapping[str, Sequence[str]]
) -> dict[str, Column]:
    """Return the columns of a table by our names.

    `names` are the usual ones, beside ours; a column with our very name goes first.
    """
    found: dict[str, Column] = {}
    plain = {column: _plain(column) for column in columns}
    for ours, usual in names.items():
        if ours in columns:
            found[ours] = Column(ours)
            continue
        for name in (ours, *usual):
            one = next((c for c in columns if _unit(plain[c], _plain(name))), None)
            if one is not None:
                found[ours] = Column(one, _unit(plain[one], _plain(name)) or 1.0)
                break
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


def with_names(table: Table, columns: Mapping[str, Column]) -> Table:
    """Return a table that has its columns by our names as well."""
    return Table([*dict.fromkeys((*table.columns, *columns))], _rows(table, columns))


def _rows(
    table: Table, columns: Mapping[str, Column]
) -> Iterator[tuple[int, dict[str, str | None]]]:
    for line, cells in table.rows:
        yield line, cells | {ours: cells.get(one.name) for ours, one in columns.items()}


def _plain(name: str) -> str:
    return re.sub(r"[^a-z0-9]+", "_", _snake(name).lower()).strip("_")


def _snake(name: str) -> str:
    """Return `JobID` and `submitTime` with the parts of the name apart."""
    return re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "_", name)


def _unit(column: str, name: str) -> float | None:
    """Return the seconds of a column's unit; None for another column than `name`."""
    if column.replace("_", "") == name.replace("_", ""):
        last = column.rpartition("_")[2]
        return _UNITS.get(last, 1.0)
    start, _, last = column.rpartition("_")
    return _UNITS.get(last) if start.replace("_", "") == name.replace("_", "") else None
