"""A file of ours says which schema it is of: 1, as those that do not say it, or 2.

What programs write says `schema: 1`, as programs that read it expect. What people write
may be of `schema: 2`, whose cost settings are in groups (`hetopt.schema.settings`).
A reader of ours reads both, and refuses a later schema by its number, in place of
whatever field it would stumble over.
"""

from collections.abc import Mapping
from pathlib import Path

from ..errors import InstanceError
from .complaints import shown

SCHEMA = 1
GROUPED = 2
_FIELD = "schema"


def marked(document: Mapping[str, object]) -> dict[str, object]:
    """The document, which says its schema after all else."""
    return {**document, _FIELD: SCHEMA}


def unmarked(tree: dict[str, object], file: Path) -> dict[str, object]:
    """The tree of a file without its schema; `InstanceError` for one of later ones."""
    if _FIELD not in tree:
        return tree
    refuse_later(tree, file)
    return {key: value for key, value in tree.items() if key != _FIELD}


def refuse_later(tree: Mapping[str, object], file: Path) -> None:
    """`InstanceError` for a schema that this version does not read."""
    found = tree.get(_FIELD, SCHEMA)
    if isinstance(found, bool) or not isinstance(found, int) or found < 1:
        raise InstanceError.at(
            file,
            _FIELD,
            f"found {shown(found)}, expected {SCHEMA} or {GROUPED}; correct it",
        )
    if found > GROUPED:
        raise InstanceError.at(
            file,
            _FIELD,
            f"found {found}, expected at most {GROUPED}; a later hetopt wrote the "
            "file: install that one",
        )
