"""A gap report as Markdown, and as comma-separated values."""

import csv
import io
import re
from dataclasses import asdict

from ..gaps import GapReport
from . import words
from .rows import COLUMNS, SUMMARY_HEADINGS, Row, sections, summary_rows


def markdown(report: GapReport) -> str:
    """A heading and a table for each instance, then the summary."""
    out = ["# Optimality gaps", ""]
    for section in sections(report):
        out += [f"## {escaped(section.instance)}", "", escaped(section.headline), ""]
        headings = [column.heading for column in COLUMNS]
        right = [column.numeric for column in COLUMNS]
        cells = [[column.text(row) for column in COLUMNS] for row in section.rows]
        out += [*markdown_table(headings, right, cells), ""]
    headings = ["planner", *SUMMARY_HEADINGS.values()]
    right = [False] + [True] * len(SUMMARY_HEADINGS)
    out += [
        "## Summary",
        "",
        *markdown_table(headings, right, summary_rows(report)),
        "",
    ]
    return "\n".join(out)


def comma_separated(report: GapReport) -> str:
    """One line a method and instance; raw numbers, empty where nothing is known."""
    buffer = io.StringIO()
    writer = csv.DictWriter(buffer, Row.names(), lineterminator="\n")
    writer.writeheader()
    for section in sections(report):
        for row in section.rows:
            cells = asdict(row).items()
            writer.writerow({name: words.cell(value) for name, value in cells})
    return buffer.getvalue()


def markdown_table(
    headings: list[str], right: list[bool], rows: list[list[str]]
) -> list[str]:
    """Lines of a table; `right` says which columns hold numbers."""
    rule = ["---:" if numeric else "---" for numeric in right]
    body = [[escaped(cell) for cell in row] for row in rows]
    return [f"| {' | '.join(line)} |" for line in ([headings, rule, *body])]


def escaped(text: str) -> str:
    """Text that Markdown shows as it is: no cell, tag or link is begun by a name."""
    return re.sub(r"([\\`*_\[\]<>|])", r"\\\1", words.plain(text))
