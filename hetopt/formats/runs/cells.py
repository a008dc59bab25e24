"""Fields of a run that were written as text: in a CSV file, or on a command line.

Numbers and `true` or `false` are read as such; the layers of stages are numbers with
blanks or commas between them, `12 14` or `[12, 14]`. A whole number in `fsdp` is one.
Nodes that are not alike, and a plan, are JSON or the name of a file.
"""

import json
from pathlib import Path
from typing import Any

from ...text.parsing import read_tree, whole_number

_BRACKETS = ("[]", "()")


def value(field: str, text: str) -> Any:
    """Return the value of a cell, yet to be checked; None for a blank one."""
    bare = text.strip()
    if not bare:
        return None
    if field == "stage_layers":
        return _wholes(bare)
    if field in ("nodes", "plan"):
        return _tree(bare)
    if field == "fsdp" and (number := whole_number(bare)) is not None:
        return number
    return text


def _tree(text: str) -> object:
    """Return JSON in a cell, or the tree of the file that the text names."""
    if text[0] in "[{":
        try:
            tree: object = json.loads(text)
        except ValueError:
            return text
        return tree
    return read_tree(Path(text)) if Path(text).suffix else text


def _wholes(text: str) -> object:
    """Return a list of whole numbers; the text itself where it is none."""
    if text[0] + text[-1] in _BRACKETS:
        text = text[1:-1]
    numbers = tuple(map(whole_number, text.replace(",", " ").split()))
    return text if None in numbers else numbers
