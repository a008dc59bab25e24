"""Sheets and tables as text: for a terminal, in Markdown, as CSV, or as a page."""

import csv
import io
import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path

from rich import table as rich_tables
from rich.console import RenderableType
from rich.text import Text

from ..errors import Unsupported
from ..text import markdown as markup
from ..text.writing import write_bytes, write_text
from . import figures, words
from .columns import Columns
from .sheet import Figure, Sheet, Table

PICTURES = (".png", ".svg", ".pdf")
_TEXTS = (".html", ".md", ".csv", ".json")


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
    draw = sheet.picture or next((x.draw for x in sheet.figures), None)
    check(path, pictures=draw is not None)
    suffix = path.suffix.lower()
    if suffix in PICTURES and draw is not None:
        write_bytes(path, figures.picture(draw, suffix[1:]))
    elif suffix == ".json":
        write_text(path, document(content))
    else:
        write_text(path, as_text(sheet, suffix))


def as_text(sheet: Sheet, suffix: str) -> str:
    """Return the sheet as a page, Markdown or CSV."""
    writer = {".html": page, ".md": markdown, ".csv": records}[suffix]
    return writer(sheet)


# --- terminal --------------------------------------------------------------------


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
        if section.on_page_only or section.in_files_only:
            continue
        if begun:
            yield ""
        begun = True
        if section.title:
            yield Text(words.plain(section.title), style="bold")
        yield from (Text(words.plain(note), style="dim") for note in section.notes)
        yield from (Text(words.plain(point)) for point in section.points)
        if section.table is not None:
            yield grid(section.table)


def grid(table: Table) -> Columns:
    """Return the table for a terminal."""
    return Columns(table)


def facts(pairs: Iterable[tuple[str, str]]) -> rich_tables.Table:
    """Pairs of a name and what is known, one a line of a terminal."""
    grid = rich_tables.Table.grid(padding=(0, 2))
    grid.add_column(no_wrap=True)
    grid.add_column(overflow="fold")
    for heading, text in pairs:
        grid.add_row(Text(heading, style="dim"), Text(words.plain(text)))
    return grid


# --- text ------------------------------------------------------------------------


def document(content: object) -> str:
    """A document as JSON."""
    return json.dumps(content, indent=1, allow_nan=False) + "\n"


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
            blocks.append(_markdown_table(section.table))
    return "\n\n".join(blocks) + "\n"


def _markdown_table(table: Table) -> str:
    rule = ["---:" if numeric else "---" for numeric in table.numeric]
    body = [[escaped(cell.text) for cell in row] for row in table.rows]
    lines = [[escaped(heading) for heading in table.headings], rule, *body]
    return "\n".join(map(markup.line, lines))


def escaped(text: str) -> str:
    """Text that Markdown shows as it is: no cell, tag or link is begun by a name."""
    return markup.escaped(words.plain(text))


# --- page ------------------------------------------------------------------------


def page(sheet: Sheet) -> str:
    """One HTML page that needs nothing else: no network, no other file."""
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
    return template.render(sheet=sheet, plain=words.plain, svg=_svg)


def _svg(figure: Figure) -> str:
    title, told = words.plain(figure.title), words.plain(figure.told or figure.note)
    return figures.svg(figure.draw, title, told)
