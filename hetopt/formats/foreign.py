"""Records of foreign files, and the numbers and lists that are written in them."""

from fractions import Fraction
from pathlib import Path
from typing import Annotated, Any, TypeVar

from pydantic import BaseModel, ConfigDict, PlainValidator, WithJsonSchema

from ..errors import InstanceError
from ..schema import Record, exact
from ..text.complaints import validated
from ..text.parsing import read_tree

R = TypeVar("R", bound=BaseModel)
_LARGEST = 10**18  # what no file of measurements holds; infinity is above it


class Foreign(Record):
    """A foreign file, or a part of it; what is not read may stand there, too."""

    model_config = ConfigDict(extra="ignore")


def quantity(value: Any) -> Fraction:
    """A finite number from 0, as the decimal that the file shows; else `ValueError`."""
    right = isinstance(value, int | float) and not isinstance(value, bool)
    if not right or not 0 <= value <= _LARGEST:
        raise ValueError(f"found {value!r}, expected a number from 0; correct it")
    return exact(value)


Quantity = Annotated[
    Fraction, PlainValidator(quantity), WithJsonSchema({"type": "number"})
]


def whole_numbers(option: str, text: str, expected: str, many: int = 0) -> list[int]:
    """Return numbers from 1 that commas separate, `many` of them if that is told."""
    try:
        numbers = [int(word) for word in text.split(",")]
    except ValueError:
        numbers = []
    if min(numbers, default=0) < 1 or len(numbers) != (many or len(numbers)):
        raise InstanceError(
            f"option {option}: found {text!r}, expected {expected}; correct it"
        )
    return numbers


def read_record(record: type[R], path: Path) -> R:
    """The record of a JSON or YAML file; `InstanceError` with all that is wrong."""
    return validated(record, read_tree(path), str(path))
