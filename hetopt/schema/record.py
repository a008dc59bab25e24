"""Every record has frozen, strict fields and a digest; names are checked.

Numbers are taken as the exact decimals that a file shows, so that every part of hetopt
computes with the same rationals.
"""

import hashlib
import json
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property, lru_cache
from typing import Annotated, Any, Self, TypeVar

from pydantic import (
    AfterValidator,
    BaseModel,
    ConfigDict,
    Field,
    GetCoreSchemaHandler,
    GetJsonSchemaHandler,
    ValidationError,
)
from pydantic_core import CoreSchema, core_schema

from ..errors import InstanceError, cut, quoted
from ..text import units
from ..text.complaints import path_of
from ..text.documents import Fields

LONGEST_NAME = 200


def name_fault(text: str) -> str | None:
    """Return why a text is no name, with the remedy; None where it is one.

    A name is one line of printable characters that neither begins nor ends with a
    blank: names reach scripts, tables and terminals.
    """
    if not 0 < len(text) <= LONGEST_NAME:
        return (
            f"found {quoted(text)}, expected text of 1 to {LONGEST_NAME} characters; "
            f"{'shorten it' if text else 'give a name'}"
        )
    return _unprintable(text)


def _unprintable(text: str) -> str | None:
    if not text.isprintable():
        at, character = next(
            (at, c) for at, c in enumerate(text, 1) if not c.isprintable()
        )
        return (
            f"found {quoted(text)} with {character!r} as character {at}, "
            "expected one line of printable characters; remove it"
        )
    if text != text.strip():
        return (
            f"found {quoted(text)}, expected no blank at the beginning or the end; "
            "remove it"
        )
    return None


def printable(text: str) -> str:
    """Return the text, which has what a name of any length has; else a `ValueError`."""
    if fault := _unprintable(text):
        raise ValueError(fault)
    return text


def once(
    what: str, names: Iterable[object], remedy: str = "rename all but one"
) -> None:
    """Raise `ValueError` with those of the names that stand there more than once."""
    if twice := [name for name, times in Counter(names).items() if times > 1]:
        raise ValueError(f"{what}: {', '.join(map(repr, twice[:5]))}: {remedy}")


def _gpu_id(text: str) -> str:
    if fault := name_fault(text.rpartition(":")[0]):
        raise ValueError(fault)
    return text


Name = Annotated[
    str, Field(min_length=1, max_length=LONGEST_NAME), AfterValidator(printable)
]
# The longest name of a node, a colon, the index.
GpuId = Annotated[
    str,
    Field(
        max_length=LONGEST_NAME + 5,
        pattern=r"^[\s\S]+:[0-9]{1,4}$",
        description="node:index",
    ),
    AfterValidator(_gpu_id),
]


@dataclass(frozen=True, eq=False)
class Written:
    """A number of a field, or a text with a unit: `3d`, `400Gb/s`, `80GB`.

    In records it is the number in the field's own unit; digests see nothing else.
    """

    quantity: units.Quantity

    def number(self, value: object) -> Any:
        """Return the number that a text means; the field checks anything else."""
        if not isinstance(value, str):
            return value
        try:
            return units.whole(units.parse_with_unit(value, self.quantity))
        except ValueError:
            return value

    def __get_pydantic_core_schema__(
        self, source: object, handler: GetCoreSchemaHandler
    ) -> CoreSchema:
        return core_schema.no_info_before_validator_function(
            self.number, handler(source)
        )

    def __get_pydantic_json_schema__(
        self, schema: CoreSchema, handler: GetJsonSchemaHandler
    ) -> dict[str, object]:
        text = {
            "type": "string",
            "pattern": self.quantity.pattern,
            "examples": list(self.quantity.examples),
        }
        return {"anyOf": [handler(schema), text]}


def _not_tiny(number: float) -> float:
    if 0 < number < _LEAST:
        raise ValueError(
            f"found {number!r}, expected no number between 0 and {_LEAST}: what it "
            "divides is too large to compute with; correct it"
        )
    return number


_LEAST = 1e-12
#: Of numbers that others are divided by.
SIZED = AfterValidator(_not_tiny)
Positive = Annotated[float, Field(gt=0, le=1e9), SIZED]
NotNegative = Annotated[float, Field(ge=0, le=1e9), SIZED]
Frequency = Annotated[float, Field(ge=0, le=1000), SIZED]  # an hour
#: A fitted value, and the spread of one.
Fitted = Annotated[float, Field(gt=0, le=1e12), SIZED]
Spread = Annotated[float, Field(ge=0, le=10)]
Count = Annotated[int, Field(ge=1, le=10_000_000)]
Counted = Annotated[Count, Written(units.COUNT)]
Length = Annotated[Count, Written(units.LENGTH)]
GbytesPerS = Annotated[Positive, Written(units.GBYTES_PER_S)]
LatencyUs = Annotated[NotNegative, Written(units.MICROSECONDS)]
Seconds = Annotated[NotNegative, Written(units.SECONDS)]
Usd = Annotated[NotNegative, Written(units.USD)]
UsdPerHour = Annotated[NotNegative, Written(units.USD_PER_HOUR)]
Efficiency = Annotated[float, Field(gt=0, le=1), SIZED, Written(units.SHARE)]
ReserveMib = Annotated[int, Field(ge=0, le=10**7), Written(units.MIB)]
# In tables they are MiB and GFLOP/s, whole numbers below 1e9.
MemoryGib = Annotated[float, Field(gt=0, lt=976_562.5), SIZED, Written(units.CARD_GIB)]
HostGib = Annotated[float, Field(gt=0, lt=976_562.5), SIZED]
PeakTflops = Annotated[float, Field(gt=0, lt=1e6), SIZED]


@lru_cache(maxsize=4096)
def exact(number: float) -> Fraction:
    """Return the decimal that a file shows for `number`, as a fraction."""
    return Fraction(repr(number))


def link_of(gbytes_per_s: float, latency_us: float) -> tuple[Fraction, Fraction]:
    """Return the latency in s and bandwidth in bytes/s of a link that a file gives."""
    return exact(latency_us) / 10**6, exact(gbytes_per_s) * 10**9


class Record(BaseModel):
    """Frozen, strict, refuses unknown fields; equal content has an equal digest."""

    model_config = ConfigDict(
        frozen=True, extra="forbid", strict=True, allow_inf_nan=False
    )

    @cached_property
    def digest(self) -> str:
        """`sha256:` of the canonical JSON of the record, without defaults."""
        data = self.model_dump(mode="json", exclude_defaults=True)
        text = json.dumps(data, sort_keys=True, separators=(",", ":"))
        return "sha256:" + hashlib.sha256(text.encode()).hexdigest()

    def model_copy(self, *, update: Fields | None = None, deep: bool = False) -> Self:
        """A copy with changes; what was derived from the old content is dropped."""
        copy = super().model_copy(update=update, deep=deep)
        for name in set(copy.__dict__) - set(type(self).model_fields):
            del copy.__dict__[name]
        return copy


R = TypeVar("R", bound=Record)


def table_record(
    record: type[R],
    where: str,
    fields: Mapping[str, object],
    sources: Mapping[str, str] | None = None,
) -> R:
    """Return a record of what was computed from an instance, for a solver.

    `InstanceError` where a number has no place in it, with the field: coefficients stay
    below 1e9, where back ends agree. `sources` say by the field's name what it comes
    from in an instance.
    """
    try:
        return record.model_validate(fields)
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
        loc, field = first["loc"], path_of(first["loc"])
        source = (sources or {}).get(str(loc[-1]) if loc else "", "the instance")
        raise InstanceError.at(
            None,
            f"{where}: {field}" if field else where,
            f"found {cut(repr(first['input']))}, made from {source}: {first['msg']}; "
            "tables hold whole numbers below 1e9: change what it is made from",
        ) from None
