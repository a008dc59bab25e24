"""Columns of tables under the names that people give them, and times in their cells.

A column is known by its name, or by another usual one, with or without a unit behind
it (`submit_time`, `Duration (min)`). A time is a number in that unit, `1-02:03:04` as
Slurm prints it, or a time stamp; time stamps, and numbers that are too late for
anything else, are moments, counted from `ORIGIN`.
"""

import re
from collections.abc import Iterator, Mapping, Sequence
from datetime import UTC, datetime
from typing import NamedTuple

from .parsing import Table

ORIGIN = datetime(2010, 1, 1, tzinfo=UTC).timestamp()
_EPOCH = 10.0**9  # seconds since 1970 from here on, and milliseconds a thousandfold
_UNITS = {
    **dict.fromkeys(("s", "sec", "secs", "second", "seconds"), 1.0),
    **dict.fromkeys(("m", "min", "mins", "minute", "minutes"), 60.0),
    **dict.fromkeys(("h", "hr", "hrs", "hour", "hours"), 3600.0),
    **dict.fromkeys(("d", "day", "days"), 86_400.0),
    **dict.fromkeys(("ms", "msec", "millis", "milliseconds"), 0.001),
}
_CLOCK = re.compile(
    r"(?:([0-9]{1,5})-)?([0-9]{1,4}):([0-9]{2})(?::([0-9]{2}))?(\.\d+)?"
)
_DAY = re.compile(r"[0-9]{4}[-/][0-9]{2}[-/][0-9]{2}")


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


def tells_unit(name: str) -> bool:
    """Return whether a column's name ends with a unit of time."""
    return _plain(name).rpartition("_")[2] in _UNITS


def in_milliseconds(cell: str) -> bool:
    """Return whether a cell is a moment that is counted in milliseconds."""
    try:
        return float(cell) > _EPOCH * 1000
    except ValueError:
        return False


def with_names(table: Table, columns: Mapping[str, Column]) -> Table:
    """Return a table that has its columns by our names as well."""
    return Table([*dict.fromkeys((*table.columns, *columns))], _rows(table, columns))


def _rows(
    table: Table, columns: Mapping[str, Column]
) -> Iterator[tuple[int, dict[str, str | None]]]:
    for line, cells in table.rows:
        yield line, cells | {ours: cells.get(one.name) for ours, one in columns.items()}


def seconds(cell: str, unit_s: float = 1.0) -> float | None:
    """Return the seconds that a cell tells; None for a cell that tells no time."""
    text = cell.strip()
    try:
        value = float(text)
    except ValueError:
        pass
    else:
        if unit_s < 1:  # a month of milliseconds is no moment
            value, unit_s = value * unit_s, 1.0
        if value < _EPOCH or value == float("inf"):
            return value * unit_s
        return (value / 1000 if value > _EPOCH * 1000 else value) - ORIGIN
    if clock := _CLOCK.fullmatch(text):
        days, hours, minutes, rest, part = clock.groups()
        if rest is None:  # Slurm's minutes and seconds; with days hours and minutes
            hours, minutes, rest = (
                (hours, minutes, "0") if days else ("0", hours, minutes)
            )
        whole = (
            (int(days or 0) * 24 + int(hours)) * 3600 + int(minutes) * 60 + int(rest)
        )
        return whole + float(part or 0)
    return _moment(text)


def _moment(text: str) -> float | None:
    """Return the seconds from `ORIGIN` to a time stamp, by UTC where it has no zone."""
    if not _DAY.match(text):
        return None
    text = re.sub(r" (?:UTC|GMT)$", "+00:00", text.replace("/", "-"))
    try:
        moment = datetime.fromisoformat(text)
    except ValueError:
        return None
    if moment.tzinfo is None:
        moment = moment.replace(tzinfo=UTC)
    return moment.timestamp() - ORIGIN


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
