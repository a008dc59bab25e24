"""A sheet is the answer of a command: a sentence, facts, tables and pictures.

Each report makes one of what was found, and `writers` has a writer for each format.
"""

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from ..errors import InternalError
from . import words
from .figures import Drawing


@dataclass(frozen=True)
class Cell:
    """Words, what they are sorted by (None where nothing is known), and a colour."""

    text: str
    value: Any = None
    mark: str = ""  # "best" or "bad"

    @classmethod
    def of(cls, value: object, text: str | None = None) -> "Cell":
        """A cell of a value; a dash where there is none."""
        if value is None:
            return cls(words.NONE)
        if isinstance(value, str):
            value = words.plain(value)
        return cls(words.plain(str(value) if text is None else text), value)


@dataclass(frozen=True)
class Table:
    """Headings, which of them are of numbers, and rows of cells."""

    headings: tuple[str, ...]
    numeric: tuple[bool, ...]
    rows: tuple[tuple[Cell, ...], ...]

    @classmethod
    def of(
        cls,
        headings: Sequence[str],
        rows: Iterable[Iterable[Cell | str]],
        *,
        texts: Collection[str] | None = None,
    ) -> "Table":
        """A table of cells or words; `texts` are the columns of no numbers."""
        texts = headings[:1] if texts is None else texts
        cells = tuple(
            tuple(
                Cell(words.plain(one)) if isinstance(one, str) else one for one in row
            )
            for row in rows
        )
        if any(len(row) != len(headings) for row in cells):
            raise InternalError(f"a row has more or fewer cells than {headings}")
        numeric = tuple(heading not in texts for heading in headings)
        return cls(tuple(headings), numeric, cells)

    @property
    def sortable(self) -> bool:
        """Return whether there is anything to sort by."""
        return any(cell.value is not None for row in self.rows for cell in row)


@dataclass(frozen=True)
class Figure:
    """A picture for a page, which Matplotlib draws when it is needed.

    `told` says what is drawn to those who do not see it.
    """

    title: str
    note: str
    draw: Callable[[], Drawing]
    told: str = ""


@dataclass(frozen=True)
class Section:
    """A heading and what stands below it; without one it goes on with the sheet's."""

    title: str = ""
    notes: tuple[str, ...] = ()
    points: tuple[str, ...] = ()
    table: Table | None = None
    figures: tuple[Figure, ...] = ()
    folded: bool | None = None  # None: always open; else whether it begins closed
    on_page_only: bool = False
    in_files_only: bool = False  # too long for a terminal
    table_folded: str = ""  # on a page: the words behind which the table lies

    @property
    def is_empty(self) -> bool:
        """Return whether there is nothing to say; pictures are for pages."""
        return not (self.title or self.notes or self.points or self.table)


@dataclass(frozen=True)
class Sheet:
    """An answer: its title, and its sections in order.

    `answer` says it in a sentence, first of all. A page says what `kind` of report it
    is. `picture` draws it as a file, in place of the first figure; `records` are rows
    of raw values for CSV, in place of the first table's.
    """

    title: str
    sections: tuple[Section, ...] = ()
    kind: str = ""
    facts: tuple[tuple[str, str], ...] = ()  # names and values
    answer: str = ""
    picture: Callable[[], Drawing] | None = None
    records: Callable[[], Iterable[Mapping[str, object]]] | None = None

    @property
    def figures(self) -> list[Figure]:
        """Return the pictures of all sections."""
        return [figure for section in self.sections for figure in section.figures]
