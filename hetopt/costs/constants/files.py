"""Files of constants, as `hetopt calibrate --out` writes them."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field

from ...errors import InstanceError, Place
from ...schema.record import Fitted, Spread
from ...text.complaints import validated
from ...text.parsing import read_tree
from ...text.writing import write_text
from . import Constant

KIND, VERSION = "constants", 1
MOST = 1000

ConstantName = Annotated[
    str, Field(max_length=100, pattern=r"^[a-z][a-z0-9_.]*(@[A-Za-z0-9_./+-]+)?$")
]


class Entry(BaseModel):
    """One constant of a file."""

    model_config = ConfigDict(frozen=True, extra="forbid", strict=True)

    value: Fitted
    spread: Spread = Field(
        description="Standard deviation of the logarithm of the value."
    )


class ConstantsFile(BaseModel):
    """A file of constants by name."""

    model_config = ConfigDict(frozen=True, extra="forbid", strict=True)

    hetopt: Literal["constants"]
    version: Literal[1]
    constants: Annotated[
        dict[ConstantName, Entry], Field(min_length=1, max_length=MOST)
    ]


def read_file(path: Place) -> dict[str, Constant]:
    """Return a file's constants; `InstanceError` names file, field and remedy."""
    tree, written_by = read_tree(Path(path)), "`hetopt calibrate --out FILE`"
    again = f"calibrate again with {written_by}, or use the hetopt that wrote it"
    for field, expected, remedy in (
        ("hetopt", KIND, f"name a file that {written_by} wrote"),
        ("version", VERSION, again),
    ):
        if (found := tree.get(field)) != expected:
            fault = f"found {found!r:.60}, expected {expected!r}: {remedy}"
            raise InstanceError.at(path, field, fault)
    entries = validated(ConstantsFile, tree, str(path)).constants
    return {name: Constant(one.value, one.spread) for name, one in entries.items()}


def write_constants(path: Path, constants: Mapping[str, Constant]) -> None:
    """Write a file of constants that `read_file` takes, whole or not at all."""
    tree = {
        "hetopt": KIND,
        "version": VERSION,
        "constants": {name: one._asdict() for name, one in constants.items()},
    }
    write_text(path, json.dumps(tree, indent=1) + "\n")
