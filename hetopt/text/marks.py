"""A file of ours says its schema: 2, whose cost settings stand in groups.

A file that says 1, or nothing, may have the settings side by side
(`hetopt.schema.settings`).
"""

from collections.abc import Mapping
from pathlib import Path

from ..errors import InstanceError
from .complaints import shown

SCHEMA = 2
_FIELD = "schema"


def marked(document: Mapping[str, object]) -> dict[str, object]:
    """Return the document, which says its schema after all else."""
    return {**document, _FIELD: SCHEMA}


def unmarked(tree: dict[str, object], file: Path) -> dict[str, object]:
    """Return the tree of a file without its schema; `InstanceError` for one unknown."""
    found = tree.get(_FIELD, SCHEMA)
    if type(found) is not int or found not in (1, SCHEMA):
        raise InstanceError.at(
            file,
            _FIELD,
            f"found {shown(found)}, expected {SCHEMA}; correct it, or install the "
            "hetopt that wrote the file",
        )
    return {key: value for key, value in tree.items() if key != _FIELD}
