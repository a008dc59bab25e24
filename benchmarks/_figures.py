"""A paper's figures beside ours, out of the rows of a section.

A figure is `{paper, figure, ours, theirs, unit, reason}`: `theirs` is absent where the
paper has no number, and `reason` says why the two differ. `hetopt bench papers` puts
those that the scripts return into one table.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

Row = dict[str, Any]


@dataclass(frozen=True)
class Column:
    """Where a section has a figure: of every row, or of all rows folded into one."""

    label: str  # the field that names the row; with `fold`, the figure's own name
    ours: str
    theirs: str | float  # the field that holds it, or the paper's one number
    unit: str
    what: str = ""
    fold: Callable[[list[float]], float] | None = None


Columns = Mapping[str, Sequence[Column]]


def figure(
    paper: str, name: str, ours: Any, theirs: Any, unit: str, reason: str
) -> Row:
    """Return one figure."""
    return {
        **{"paper": paper, "figure": name, "ours": ours, "theirs": theirs},
        **{"unit": unit, "reason": reason},
    }


def of_columns(
    paper: str, columns: Sequence[Column], rows: list[Row], why: str
) -> Iterator[Row]:
    """Yield the figures that stand in columns of a section's rows."""
    for column in columns:
        for name, ours, theirs in _values(column, rows):
            yield figure(paper, name, ours, theirs, column.unit, why)


def _values(column: Column, rows: list[Row]) -> Iterator[tuple[str, float, float]]:
    if column.fold is not None:
        assert isinstance(column.theirs, float)
        there = [row[column.ours] for row in rows if row.get(column.ours) is not None]
        if there:
            yield column.label, column.fold(there), column.theirs
        return
    for row in rows:
        ours, theirs = row.get(column.ours), row.get(str(column.theirs))
        if isinstance(ours, int | float) and isinstance(theirs, int | float):
            yield f"{column.what} {row[column.label]}".strip(), ours, theirs
