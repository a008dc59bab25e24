"""A table on a terminal of any width: numbers are never cut, and no column is lost.

Words wrap first. Where that is not enough, the table goes on below itself: each part
repeats the column that names the rows.
"""

from collections.abc import Sequence
from dataclasses import dataclass
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
    """A table for a terminal, whose headings are folded, so that many fit."""

    table: Table

    def __rich_console__(
        self, console: Console, options: ConsoleOptions
    ) -> RenderResult:
        """Yield the parts of the table, as many as the width needs."""
        width, table = options.max_width, self.table
        every = [self._texts(column) for column in range(len(table.headings))]
        whole = [max(map(len, texts)) for texts in every]
        least = [
            most if numeric else _least(texts, most)
            for texts, most, numeric in zip(every, whole, table.numeric, strict=True)
        ]
        # Rows are named by the first column, and by the first one without gaps.
        full = (x for x in range(len(every)) if all(row[x].text for row in table.rows))
        names = sorted({0, next(full, 0)})
        parts: list[list[int]] = [names]
        for column in range(len(every)):
            if column in names:
                continue
            if _width([*parts[-1], column], least) > width:
                fits = _width([*names, column], least) <= width
                parts.append(names if fits else names[:1])
            parts[-1] = sorted({*parts[-1], column})
        for number, part in enumerate(parts):
            if number:
                yield ""
            widths = {x: least[x] for x in part}
            for _ in range(width - _width(part, least)):
                if short := [x for x in part if widths[x] < whole[x]]:
                    widths[min(short, key=widths.__getitem__)] += 1
            yield self._grid(widths)

    def _heading(self, column: int) -> str:
        lines = wrap(self.table.headings[column], _HEADING, break_long_words=False)
        return "\n".join(lines)

    def _texts(self, column: int) -> list[str]:
        """Return the lines of a column, its heading's first."""
        cells = [row[column].text for row in self.table.rows]
        return [*self._heading(column).split("\n"), *cells]

    def _grid(self, widths: dict[int, int]) -> Grid:
        grid = Grid(
            box=None, pad_edge=False, padding=(0, _GAP, 0, 0), header_style="bold"
        )
        for column, letters in widths.items():
            numeric = self.table.numeric[column]
            grid.add_column(
                self._heading(column),
                justify="right" if numeric else "left",
                width=letters,
                no_wrap=numeric,
                overflow="fold",
            )
        for row in self.table.rows:
            grid.add_row(*(Text(row[column].text) for column in widths))
        return grid


def _least(texts: Sequence[str], whole: int) -> int:
    """Return the letters that a column of words cannot do without."""
    longest = max((len(word) for text in texts for word in text.split()), default=0)
    return max(min(longest, _MOST_WORDS), min(whole, _WORDS))


def _width(columns: Sequence[int], least: Sequence[int]) -> int:
    """Return the letters that columns need beside each other."""
    return sum(least[x] for x in columns) + _GAP * (len(columns) - 1)
