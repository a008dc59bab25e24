"""Text for Markdown: as it stands, or as a cell or a line of a table."""

import re
from collections.abc import Iterable


def escaped(text: str) -> str:
    """Text that Markdown shows as it is: no cell, tag or link is begun by a name."""
    return re.sub(r"([\\`*_\[\]<>|])", r"\\\1", text)


def cell(text: str) -> str:
    """Markdown on one line of a table, which no bar of its own ends."""
    return " ".join(text.split()).replace("|", "\\|")


def line(cells: Iterable[str]) -> str:
    """A line of a table, of texts that are cells already."""
    return f"| {' | '.join(cells)} |"
