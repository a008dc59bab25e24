"""The commands and their options as the page hetopt/cli/REFERENCE.md."""

import re
from collections.abc import Iterable, Iterator

from ..text import markdown
from ..text.documents import Document

Row = Document

_HEAD = """# The commands

Every command with its options, as `hetopt COMMAND --help` shows them. The page is made
from the command line itself; this writes it again:

    hetopt list commands --markdown > hetopt/cli/REFERENCE.md

INSTANCE is a path, or a name of `hetopt list instances`. Exit codes: 0 a plan, 2 bad
input or an output that cannot be written, 3 proved that there is no plan, 4 none found
in time, 1 a bug of ours. [README.md](README.md) has the commands in the order in which
they are needed.
"""


def page(rows: Iterable[Row]) -> str:
    """The page: a section for each command."""
    sections = ["\n".join(_section(row)) for row in rows]
    return "\n".join([_HEAD, "\n\n".join(sections)]).rstrip("\n") + "\n"


def _section(row: Row) -> Iterator[str]:
    yield f"## hetopt {row['name']}\n"
    yield f"{_plain(row['description'])}\n"
    words = [word for one in row["arguments"] for word in one["words"]]
    usage = " ".join(["hetopt", row["name"], *words, "[OPTIONS]"])
    yield f"`{usage}`\n"
    if row["details"]:
        yield f"{_plain(row['details'])}\n"
    yield "| | what it says | default |"
    yield "| --- | --- | --- |"
    for one in (*row["arguments"], *row["options"]):
        written = " ".join(filter(None, (", ".join(one["words"]), _value(one))))
        cells = (
            f"`{markdown.cell(written)}`",
            markdown.cell(_plain(one["description"])),
            _default(one),
        )
        yield markdown.line(cells)


def _value(one: Row) -> str | None:
    return one["value"] if one["words"][0].startswith("-") else None


def _default(one: Row) -> str:
    if one["required"]:
        return "required"
    return "" if one["default"] is None else f"`{one['default']}`"


def _plain(text: str) -> str:
    """Text in which what is no code reads the same: no name in angle brackets."""
    return re.sub(r"<(?=\w)", "&lt;", text)
