"""Files of constants: what one card's micro-benchmarks say, as `hetopt profile` writes.

A deviation `product.bf16@H100` is a factor of `product.bf16` and of the deviations
beside it; `given` holds those that it was fitted with, so that what the file says of
the card stays true where other ones are in force (`onto`).
"""

import json
import math
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field

from ...errors import InstanceError, Place
from ...schema.record import Fitted, Spread
from ...text.complaints import validated
from ...text.documents import Document
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

    model_config = ConfigDict(frozen=True, extra="ignore", strict=True)

    value: Fitted
    spread: Spread = Field(
        description="Standard deviation of the logarithm of the value."
    )
    runs: Annotated[int, Field(ge=0, le=10**9)] = Field(
        0, description="Measurements that it was fitted to."
    )
    source: Annotated[str, Field(max_length=1000)] = ""


class ConstantsFile(BaseModel):
    """A file: constants, what was measured, and what they deviate from."""

    model_config = ConfigDict(frozen=True, extra="ignore", strict=True)

    hetopt: Literal["constants"]
    version: Literal[1]
    card: Annotated[str, Field(min_length=1, max_length=200)]
    measured: Document = {}
    given: Annotated[dict[ConstantName, Fitted], Field(max_length=MOST)] = Field(
        {}, description="Values that the constants were fitted with."
    )
    constants: Annotated[
        dict[ConstantName, Entry], Field(min_length=1, max_length=MOST)
    ]

    def onto(self, others: Mapping[str, float]) -> dict[str, Constant]:
        """The constants beside others' values: products with those stay what they were.

        `product.bf16@H100` is divided by what `product.bf16` has become since. Of a
        name that others lack, the given value is among what comes back.
        """
        given = self.given.items()
        factors = {name: others.get(name, was) / was for name, was in given}
        found = {name: Constant(was, 0.0) for name, was in given if name not in others}
        for name, entry in self.constants.items():
            base = name.partition("@")[0]
            same = [
                f
                for other, f in factors.items()
                if "@" in name and other.partition("@")[0] == base
            ]
            found[name] = Constant(entry.value / math.prod(same), entry.spread)
        return found


def read_file(path: Place) -> ConstantsFile:
    """A file of constants; `InstanceError` that names file, field and remedy."""
    tree, profile = read_tree(Path(path)), "`hetopt profile --constants FILE`"
    again = f"measure again with {profile}, or use the hetopt that wrote it"
    for field, expected, remedy in (
        ("hetopt", KIND, f"name a file that {profile} wrote"),
        ("version", VERSION, again),
    ):
        if (found := tree.get(field)) != expected:
            fault = f"found {found!r:.60}, expected {expected!r}: {remedy}"
            raise InstanceError.at(path, field, fault)
    return validated(ConstantsFile, tree, str(path))


def write_constants(path: Path, constants: Mapping[str, Constant]) -> None:
    """A file of constants that `read_file` takes, whole or not at all."""
    tree = {
        "hetopt": KIND,
        "version": VERSION,
        "card": "several",
        "constants": {
            name: {"value": one.value, "spread": one.spread}
            for name, one in constants.items()
        },
    }
    write_text(path, json.dumps(tree, indent=1) + "\n")
