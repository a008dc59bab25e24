"""Sheets and tables as text: for a terminal, in Markdown, as CSV, or as a page."""

import csv
import io
import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from textwrap import wrap
from typing import IO

from rich.console import Console, ConsoleOptions, RenderableType, RenderResult
from rich.table import Table as Grid
from rich.text import Text

from ..errors import Unsupported
from ..text import markdown as markup
from ..text.writing import write_bytes, write_text
from . import figures, words
from .sheet import Figure, Sheet, Table

PICTURES = (".png", ".svg", ".pdf")
_TEXTS = (".html", ".md", ".csv", ".json")
_PIPE = 200  # columns of what is no terminal
_GAP = 2  # letters between columns
_HEADING = 10  # letters of a line of a heading that is folded
_WORDS = 16  # letters that a column of words has at least, if it has that many
_MOST_WORDS = 32  # longer words are broken


def check(path: Path | None, *, pictures: bool = True) -> None:
    """`Unsupported`, which lists the suffixes, where the path has none of them."""
    known = (*_TEXTS, *PICTURES) if pictures else _TEXTS
    if path is not None and path.suffix.lower() not in known:
        raise Unsupported(
            f"{path}: found suffix {path.suffix!r}, expected one of {', '.join(known)}"
        )


def write(sheet: Sheet, content: object, path: Path) -> None:
    """Write it as the suffix of the path says; a reader never sees half of it.

    `content` is the document of a .json file.
    """
    draw = _drawn(sheet)
    check(path, pictures=draw is not None)
    suffix = path.suffix.lower()
    if suffix in PICTURES and draw is not None:
        write_bytes(path, figures.picture(draw, suffix[1:]))
    elif suffix == ".json":
        write_text(path, json.dumps(content, indent=1, allow_nan=False) + "\n")
    else:
        writer = {".html": page, ".md": markdown, ".csv": records}[suffix]
        write_text(path, writer(sheet))


def drawing(sheet: Sheet) -> figures.Drawing:
    """Return the picture of a sheet, or its first; `Unsupported` without one."""
    draw = _drawn(sheet)
    if draw is None:
        raise Unsupported(f"{sheet.title}: found no picture; print it, or write a page")
    with figures.settings():
        return draw()


def _drawn(sheet: Sheet) -> Callable[[], figures.Drawing] | None:
    return sheet.picture or next((x.draw for x in sheet.figures), None)


# --- terminal --------------------------------------------------------------------


def console(*, stderr: bool = False, file: IO[str] | None = None) -> Console:
    """A console that shows `[bold]` and `:smile:` in names as they are written.

    A pipe has no width: lines there must not be folded to 80 columns. A `file` gets
    what the console would, without colours.
    """
    here = Console(stderr=stderr)
    width = here.width if here.is_terminal else _PIPE
    told: figures.Look = {"markup": False, "emoji": False, "highlight": False}
    told |= (
        {"stderr": stderr} if file is None else {"file": file, "force_terminal": False}
    )
    return Console(width=width, **told)


def text(sheet: Sheet) -> str:
    """Return what a terminal as wide as this one shows, without colours."""
    told = io.StringIO()
    console(file=told).print(*terminal(sheet), sep="\n")
    return told.getvalue().removesuffix("\n")


def terminal(sheet: Sheet) -> Iterator[RenderableType]:
    """Yield the answer, the facts, and every section that a terminal has room for."""
    if sheet.answer:
        yield Text(words.plain(sheet.answer))
    if sheet.answer and sheet.facts:
        yield ""
    if sheet.facts:
        yield facts(sheet.facts)
    begun = bool(sheet.answer or sheet.facts)
    for section in sheet.sections:
        if section.on_page_only or section.in_files_only or section.is_empty:
            continue
        if begun:
            yield ""
        begun = True
        if section.title:
            yield Text(words.plain(section.title), style="bold")
        yield from (Text(words.plain(note), style="dim") for note in section.notes)
        yield from (Text(words.plain(point)) for point in section.points)
        if section.table is not None:
            yield Columns(section.table)


def facts(pairs: Iterable[tuple[str, str]]) -> Grid:
    """Pairs of a name and what is known, one a line of a terminal."""
    grid = Grid.grid(padding=(0, 2))
    grid.add_column(no_wrap=True)
    grid.add_column(overflow="fold")
    for heading, text in pairs:
        grid.add_row(Text(heading, style="dim"), Text(words.plain(text)))
    return grid


@dataclass(frozen=True)
class Columns:
    """A table on a terminal of any width: no number is cut, and no column is lost.

    Headings are folded, then words. Where that is not enough, the table goes on below
    itself: each part repeats the column that names the rows.
    """

    table: Table

    def __rich_console__(
        self, console: Console, options: ConsoleOptions
    ) -> RenderResult:
        """Yield the parts of the table, as many as the width needs."""
        width, table = options.max_width, self.table
        every = [
            [*self._heading(at).split("\n"), *(row[at].text for row in table.rows)]
            for at in range(len(table.headings))
        ]
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


# --- text ------------------------------------------------------------------------


def comma_separated(fields: Sequence[str], rows: Iterable[Mapping[str, object]]) -> str:
    """One line a row; raw values, empty where nothing is known."""
    buffer = io.StringIO()
    writer = csv.DictWriter(buffer, fields, lineterminator="\n", extrasaction="ignore")
    writer.writeheader()
    for row in rows:
        writer.writerow({name: words.cell(value) for name, value in row.items()})
    return buffer.getvalue()


def records(sheet: Sheet) -> str:
    """Return the rows of the sheet as CSV: raw ones, or those of its first table."""
    if sheet.records is not None:
        rows = list(sheet.records())
    else:
        table = next(
            (one.table for one in sheet.sections if one.table), Table.of((), ())
        )
        cells = (
            [x.text if x.value is None else x.value for x in row] for row in table.rows
        )
        rows = [dict(zip(table.headings, row, strict=True)) for row in cells]
    return comma_separated(list(rows[0]) if rows else (), rows)


def markdown(sheet: Sheet) -> str:
    """Headings, sentences and tables; pictures are on the page."""
    blocks = [f"# {escaped(sheet.title)}"]
    blocks += [escaped(sheet.answer)] if sheet.answer else []
    if sheet.facts:
        told = (f"- {escaped(name)}: {escaped(value)}" for name, value in sheet.facts)
        blocks.append("\n".join(told))
    for section in sheet.sections:
        if section.on_page_only:
            continue
        if section.title:
            blocks.append(f"## {escaped(section.title)}")
        blocks += map(escaped, section.notes)
        if section.points:
            blocks.append("\n".join(f"- {escaped(point)}" for point in section.points))
        if section.table is not None:
            table = section.table
            rule = ["---:" if numeric else "---" for numeric in table.numeric]
            body = [[escaped(cell.text) for cell in row] for row in table.rows]
            lines = [[*map(escaped, table.headings)], rule, *body]
            blocks.append("\n".join(map(markup.line, lines)))
    return "\n\n".join(blocks) + "\n"


def escaped(text: str) -> str:
    """Text that Markdown shows as it is: no cell, tag or link is begun by a name."""
    return markup.escaped(words.plain(text))


# --- page ------------------------------------------------------------------------


def page(sheet: Sheet, *, whole: bool = True) -> str:
    """One HTML page that needs nothing else: no network, no other file.

    Or the piece of it that a notebook shows.
    """
    # A table needs none of it, and it takes as long to load as all tables.
    from jinja2 import Environment, PackageLoader, StrictUndefined

    environment = Environment(
        loader=PackageLoader("hetopt.report", "."),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    template = environment.get_template("sheet.html.j2")
    return template.render(sheet=sheet, plain=words.plain, svg=_svg, whole=whole)


def _svg(figure: Figure) -> str:
    title, told = words.plain(figure.title), words.plain(figure.told or figure.note)
    return figures.svg(figure.draw, title, told)
