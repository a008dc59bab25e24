"""Markdown pages of results: a table for the latest run of each section."""

import time
from argparse import ArgumentParser
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any

from _measuring import RESULTS as RESULTS
from _measuring import keep, kept, machine, publish

from hetopt.text import markdown

Row = dict[str, Any]


def arguments(words: str, sections: Iterable[str]) -> ArgumentParser:
    """What a script is asked with that runs sections and writes their page."""
    parser = ArgumentParser(description=words)
    parser.add_argument("sections", nargs="*", choices=[[], *sections], metavar="NAME")
    parser.add_argument("--page", action="store_true", help="only write the page")
    return parser


def run(
    lines: str, name: str, section: Callable[..., Any], given: Any, *packages: str
) -> list[Row]:
    """Run a section, print its rows, keep and return them.

    `given` is its limit or folder, or None where it has neither.
    """
    begun = time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime())
    limit = {"limit_s": given} if isinstance(given, int | float) else {}
    made = []
    for row in section(given):
        made.append(row)
        print(name, *(f"{k}: {shown(v)};" for k, v in row.items()), flush=True)
        keep(lines, {"section": name, "run": begun, **limit, "row": row}, *packages)
    return made


def write(
    page: str,
    lines: str,
    head: str,
    sections: Mapping[str, tuple[Callable[..., Any], str]],
    more: Callable[[list[Row]], Iterable[str]] = lambda rows: (),
) -> None:
    """Write a page of results; `more` adds lines below the table of a section.

    A section is a function, whose docstring is its title, and words on its rows.
    """
    words = [head]
    for name, (section, why) in sections.items():
        if rows := latest(lines, name):
            words += [f"## {section.__doc__}\n", *table(rows), *more(rows)]
            words.append(f"\n{why}\n\n{ran(lines, name)}\n")
    publish(page, "\n".join(words), lines)


def latest(lines: str, section: str) -> list[Row]:
    """The rows of a section's latest run."""
    return [line["row"] for line in _lines(lines, section)]


def ran(lines: str, section: str) -> str:
    """When, on what and within which limit the latest run of a section was made."""
    mine = _lines(lines, section)
    limit = f"limit {mine[-1]['limit_s']:g} s, " if "limit_s" in mine[-1] else ""
    machines = [line["machine"] for line in mine]
    return f"*Run {mine[-1]['run']}Z, {limit}{machine(machines)}.*"


def _lines(lines: str, section: str) -> list[Row]:
    """The latest run of a section, a line a row."""
    mine = [line for line in kept(lines) if line.get("section") == section]
    return [line for line in mine if line["run"] == mine[-1]["run"]]


def table(rows: list[Row]) -> Iterator[str]:
    """A table with a column for every field that a row has."""
    headers = list(dict.fromkeys(header for row in rows for header in row))
    cells = [[shown(row.get(header)) for header in headers] for row in rows]
    yield from grid(headers, cells)


def grid(headers: Sequence[str], cells: Iterable[Iterable[str]]) -> Iterator[str]:
    """A table of cells."""
    yield markdown.line(headers)
    yield "|---" * len(headers) + "|"
    for row in cells:
        yield markdown.line(map(markdown.cell, row))


def shown(value: Any) -> str:
    """A cell."""
    if value is None or value is False:
        return "–"
    if value is True:
        return "yes"
    if isinstance(value, float):
        return f"{value:.3f}" if abs(value) < 1 else f"{value:.2f}"
    if isinstance(value, list):
        return ", ".join(map(shown, value)) or "none"
    return str(value)
