"""Plain data, as JSON and YAML have them, by the names that signatures use."""

import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Any, TypeAlias

#: An object of JSON or YAML: a file of ours, or a part of one. What its fields are is
#: said by the record or the schema that makes or reads it.
Document: TypeAlias = dict[str, Any]
#: The fields of such an object, which is only read.
Fields: TypeAlias = Mapping[str, Any]


def own_data(file: str | Path) -> Document:
    """Return the data of a module of ours: a TOML file beside it, of the same name."""
    return tomllib.loads(Path(file).with_suffix(".toml").read_text("utf-8"))
