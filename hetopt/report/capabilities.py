"""The module writes which method carries which setting, as table and page."""

from collections.abc import Iterable, Iterator, Mapping

from rich.console import RenderableType

from ..capability.settings import SETTINGS
from ..schema.targets import Feature
from ..text import markdown
from ..text.documents import Fields
from . import writers
from .sheet import Table

Row = Fields

_HEAD = """# Which method carries which setting

An instance asks for settings, and not every method carries each of them. This page is
generated from the matrix that the methods consult, by

    hetopt list capabilities --markdown > hetopt/capability/REFERENCE.md

- An empty cell: the method carries the setting exactly.
- *part*: the method takes the setting and its answer is valid, but its bound is weaker,
  it considers fewer plans, or its picture leaves something out.
- **no**: the method refuses the setting by name, and says which methods carry it.

Every method carries the settings that have no row: they are part of the costs that all
methods read. A choice is a setting of `workload.alternatives`. `hetopt plan` asks
planners and the exact method `training_plan`, so it refuses none of the settings; the
proofs are parts of that method, and where one does not carry a setting, others do. In
Python `hetopt.capabilities("my-cluster.yaml")` has the rows for what it asks.
"""
_PROGRAMS = """## Programs

A plan may be limited to what one program runs (`workload.runs_on`, `--for`). An empty
cell: the program, or our export to it, has the feature. `any` has no limits.
"""
_PARTS = {
    "The exact methods, and their proofs": ("exact method", "proof"),
    "Statements, problems, commands": ("statement", "problem", "command"),
    "Planners, and simulated schedules": ("planner", "schedule"),
}
_MARKS = {"exactly": "", "in part": "*part*", "not": "**no**"}


def page(rows: Iterable[Row]) -> str:
    """The page: methods, then why each carries a setting in part or not; programs."""
    every = list(rows)
    methods = [row for row in every if row["kind"] != "program"]
    programs = [row for row in every if row["kind"] == "program"]
    words = {
        name: f"{one.words}<br>`{one.field.rpartition('.')[2]}`"
        for name, one in SETTINGS.items()
    }
    features = {one.name.lower(): str(one.value) for one in Feature}
    blocks = [_HEAD]
    for heading, kinds in _PARTS.items():
        some = [row for row in methods if row["kind"] in kinds]
        blocks += [f"## {heading}\n", *_table("setting", words, some)]
    blocks += ["## Why\n", *_reasons(methods)]
    blocks += [_PROGRAMS, *_table("feature", features, programs)]
    blocks += [f"- **{row['name']}**: {row['description']}." for row in programs]
    return "\n".join(blocks).rstrip("\n") + "\n"


def _table(what: str, words: Mapping[str, str], rows: list[Row]) -> Iterator[str]:
    """Lines of a table with a column a row, but for settings that all carry."""
    yield markdown.line([what, *(row["name"] for row in rows)])
    yield markdown.line(["---"] * (len(rows) + 1))
    for name, text in words.items():
        cells = [_MARKS[row["carries"][name]["carried"]] for row in rows]
        if any(cells):
            yield markdown.line([text, *cells])
    yield ""


def _reasons(rows: Iterable[Row]) -> Iterator[str]:
    for row in rows:
        yield f"**{row['name']}** ({row['description']})\n"
        for carried, mark in _MARKS.items():
            for reason, names in _by_reason(row, carried).items():
                told = ", ".join(SETTINGS[name].words for name in names)
                yield f"- {mark} {told}: {reason}."
        yield ""


def _by_reason(row: Row, carried: str) -> dict[str, list[str]]:
    """The settings that a row carries so, by the reason that it gives."""
    found: dict[str, list[str]] = {}
    for name, cell in row["carries"].items():
        if cell["carried"] == carried and cell["reason"]:
            found.setdefault(cell["reason"], []).append(name)
    return found


def terminal(rows: Iterable[Row]) -> RenderableType:
    """A row a method: what it refuses, and what it carries in part."""
    cells = (
        (
            row["kind"],
            row["name"],
            _reason_line(row, "not"),
            _reason_line(row, "in part"),
        )
        for row in rows
    )
    heads = ("kind", "name", "refuses", "carries in part")
    return writers.grid(Table.of(heads, cells, texts=heads))


def _reason_line(row: Row, carried: str) -> str:
    names = (name for name, x in row["carries"].items() if x["carried"] == carried)
    return ", ".join(names)
