"""Which schema a file of ours is of: 1 so far, and of those that do not say it.

What we write says `schema: 1`. A reader of ours reads that schema and earlier ones, and
refuses a later one by its number, in place of whatever field it would stumble over.
"""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from ..errors import InstanceError
from .complaints import shown

SCHEMA = 1
_FIELD = "schema"


def marked(document: Mapping[str, Any]) -> dict[str, Any]:
    """The document, which says its schema after all else."""
    return {**document, _FIELD: SCHEMA}


def unmarked(tree: dict[str, Any], file: Path) -> dict[str, Any]:
    """The tree of a file without its schema; `InstanceError` for one of later ones."""
    if _FIELD not in tree:
        return tree
    refuse_later(tree, file)
    return {key: value for key, value in tree.items() if key != _FIELD}


def refuse_later(tree: Mapping[str, Any], file: Path) -> None:
    """`InstanceError` for a schema that this version does not read."""
    found = tree.get(_FIELD, SCHEMA)
    if isinstance(found, bool) or not isinstance(found, int) or found < 1:
        raise InstanceError.at(
            file, _FIELD, f"found {shown(found)}, expected {SCHEMA}; correct it"
        )
    if found > SCHEMA:
        raise InstanceError.at(
            file,
            _FIELD,
            f"found {found}, expected at most {SCHEMA}; a later hetopt wrote the file: "
            "install that one",
        )
