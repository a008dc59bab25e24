"""The fields of an instance, on a terminal and as the page instances/REFERENCE.md."""

import json
from collections.abc import Iterable

from rich.console import RenderableType

from ..text import markdown
from ..text.documents import Document
from . import writers
from .sheet import Table

Row = Document

_HEAD = """# The fields of an instance

Every field of an instance file (YAML or JSON), as `hetopt list fields` shows them. The
page is made from the records that check a file; this writes it again:

    hetopt list fields --markdown > instances/REFERENCE.md

`[]` is each object of a list, `NAME` a name of your own: `cluster.nodes[].count` is the
field `count` of each object of the list `nodes` within `cluster`. A field without a
default has to be there; `null` is absent. [tiny/two-nodes.yaml](tiny/two-nodes.yaml) is
a whole short one.
"""
_HEADINGS = ("field", "unit", "expects", "default", "what it says", "found where")


def page(rows: Iterable[Row]) -> str:
    """The page: a table for each object of the file."""
    blocks = [_HEAD]
    places: dict[str, list[Row]] = {}
    for row in rows:
        places.setdefault(str(row["name"]).rpartition(".")[0], []).append(row)
    for place, fields in places.items():
        blocks.append(f"## {f'`{place}`' if place else 'The file'}\n")
        lines = [_HEADINGS, ["---"] * len(_HEADINGS), *map(_cells, fields)]
        blocks += map(markdown.line, lines)
        blocks.append("")
    return "\n".join(blocks).rstrip("\n") + "\n"


def terminal(rows: Iterable[Row]) -> RenderableType:
    """Return the fields as a table."""
    cells = (
        (
            row["name"],
            row["unit"] or "",
            row["expects"],
            _default(row),
            row["description"],
        )
        for row in rows
    )
    return writers.grid(Table.of(_HEADINGS[:5], cells, texts=_HEADINGS[:5]))


def _cells(row: Row) -> list[str]:
    texts = [row["unit"], row["expects"], _default(row), row["description"]]
    name = str(row["name"]).rpartition(".")[2]
    rest = [markdown.cell(str(text or "")) for text in (*texts, row["source"])]
    return [f"`{name}`", *rest]


def _default(row: Row) -> str:
    if row["required"]:
        return "required"
    return "" if row["default"] is None else json.dumps(row["default"])
