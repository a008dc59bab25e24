"""A table on a terminal of any width: numbers are never cut, and no column is lost.

Words wrap first. Where that is not enough, the table goes on below itself: each part
repeats the column that names the rows.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from math import ceil
from textwrap import wrap

from rich.console import Console, ConsoleOptions, RenderResult
from rich.table import Table as Grid
from rich.text import Text

from .sheet import Table

_GAP = 2  # letters between columns
_HEADING = 10  # letters of a line of a heading that is folded
_WORDS = 16  # letters that a column of words has at least, if it has that many
_MOST_WORDS = 32  # longer words are broken


@dataclass(frozen=True)
class Columns:
    """A table for a terminal; `narrow` folds its headings, so that many fit."""

    table: Table
    narrow: bool = True

    def __rich_console__(
        self, console: Console, options: ConsoleOptions
    ) -> RenderResult:
        """Yield the parts of the table, as many as the width needs."""
        for number, part in enumerate(self._parts(options.max_width)):
            if number:
                yield ""
            yield self._grid(part, options.max_width)

    def _heading(self, column: int) -> str:
        heading = self.table.headings[column]
        if not self.narrow:
            return heading
        return "\n".join(wrap(heading, _HEADING, break_long_words=False))

    def _texts(self, column: int) -> list[str]:
        """Return the lines of a column, its heading's among them."""
        cells = [row[column].text for row in self.table.rows]
        return [*self._heading(column).split("\n"), *cells]

    def _whole(self, column: int) -> int:
        """Return the letters of a column in which nothing wraps."""
        return max(len(text) for text in self._texts(column))

    def _least(self, column: int) -> int:
        """Return the letters that a column cannot do without."""
        whole = self._whole(column)
        if self.table.numeric[column]:
            return whole
        longest = max(
            (len(word) for text in self._texts(column) for word in text.split()),
            default=0,
        )
        return max(min(longest, _MOST_WORDS), min(whole, _WORDS))

    def _names(self) -> list[int]:
        """Return the columns that name a row: the first, and the first without gaps."""
        full = (
            column
            for column in range(len(self.table.headings))
            if all(row[column].text for row in self.table.rows)
        )
        return sorted({0, next(full, 0)})

    def _parts(self, width: int) -> list[list[int]]:
        """Return the columns of each part of the table, about as many in each."""
        every = [*range(len(self.table.headings))]
        if self._width(every) <= width:
            return [every]
        names = self._names()
        others = [column for column in every if column not in names]
        parts = self._filled(names, others, width, len(others))
        alike = self._filled(names, others, width, ceil(len(others) / len(parts)))
        return alike if len(alike) == len(parts) else parts

    def _filled(
        self, names: Sequence[int], others: Sequence[int], width: int, most: int
    ) -> list[list[int]]:
        """Return parts of at most so many columns, each as full as the width allows."""
        parts: list[list[int]] = [[]]
        for column in others:
            part = parts[-1]
            wider = self._width([*names, *part, column])
            if part and (len(part) == most or wider > width):
                parts.append([])
            parts[-1].append(column)
        return [sorted({*names, *part}) for part in parts]

    def _width(self, columns: Sequence[int]) -> int:
        """Return the letters that columns need beside each other."""
        return sum(map(self._least, columns)) + _GAP * (len(columns) - 1)

    def _widths(self, columns: Sequence[int], width: int) -> dict[int, int]:
        """Return the letters of each column; the narrowest grows first."""
        found = {column: self._least(column) for column in columns}
        wrapped = [x for x in columns if found[x] < self._whole(x)]
        for _ in range(width - self._width(columns)):
            if not wrapped:
                break
            narrowest = min(wrapped, key=found.__getitem__)
            found[narrowest] += 1
            if found[narrowest] == self._whole(narrowest):
                wrapped.remove(narrowest)
        return found

    def _grid(self, columns: Sequence[int], width: int) -> Grid:
        grid = Grid(
            box=None, pad_edge=False, padding=(0, _GAP, 0, 0), header_style="bold"
        )
        for column, letters in self._widths(columns, width).items():
            numeric = self.table.numeric[column]
            grid.add_column(
                self._heading(column),
                justify="right" if numeric else "left",
                width=letters,
                no_wrap=numeric,
                overflow="fold",
            )
        for row in self.table.rows:
            grid.add_row(*(Text(row[column].text) for column in columns))
        return grid
