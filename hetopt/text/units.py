"""Quantities as people write them: `3d`, `1h30m`, `400Gb/s`, `80GB`, `15T`, `5%`.

A `Quantity` says what a bare number has always meant there and which units there are
besides. The case of letters distinguishes units where it carries the meaning (Gb is
an eighth of GB). What can be read in two ways, such as `25G`, is not read.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
from fractions import Fraction
from functools import cached_property

from ..errors import quoted

LONGEST = 60
# Exponents are short: a fraction of 10**999999999 would take all memory.
_NUMBER = r"[0-9]+(?:_[0-9]+)*(?:\.[0-9]+)?(?:[eE][-+]?[0-9]{1,2})?"


@dataclass(frozen=True, eq=False)
class Quantity:
    """A kind of quantity: its units, as multiples of the one that bare numbers have."""

    name: str
    units: Mapping[str, Fraction]
    examples: tuple[str, ...]
    #: Whether several may follow each other, the larger first: `1h30m`.
    joined: bool = False
    #: What may stand in front of the number.
    sign: str = ""

    @cached_property
    def pattern(self) -> str:
        """A regular expression of every text with a unit that is read."""
        known = "|".join(map(re.escape, sorted(self.units, key=len, reverse=True)))
        one = f"{_NUMBER} *({known})"
        if self.joined:
            # The last `m` of 1h30m are minutes.
            return f"^ *({one}) *(({one}|{_NUMBER} *m) *)*$"
        if not self.sign:
            return f"^ *{one} *$"
        sign = re.escape(self.sign)
        return f"^ *({one}|{sign} *{_NUMBER}( *({known}))?) *$"

    def of(self, unit: str, *examples: str) -> "Quantity":
        """Return what a text says where a bare number is of that unit."""
        units = {name: factor / self.units[unit] for name, factor in self.units.items()}
        return replace(self, units=units, examples=examples or self.examples)

    def __str__(self) -> str:
        *first, last = self.examples
        shown = f"{', '.join(first)} or {last}" if first else last
        return f"{self.name} such as {shown}"


def parse(text: str, quantity: Quantity) -> Fraction:
    """Return what a text says, in the unit of bare numbers; else a `ValueError`.

    A text without a unit is a bare number.
    """
    if len(text) > LONGEST:
        raise ValueError(_unread(text, quantity))
    bare = re.fullmatch(f" *({_NUMBER}) *", text)
    if bare:
        return Fraction(bare[1])
    return parse_with_unit(text, quantity)


def parse_with_unit(text: str, quantity: Quantity) -> Fraction:
    """Return what a text says that must name a unit, as one in a file has to."""
    if len(text) > LONGEST:
        raise ValueError(_unread(text, quantity))
    left = text.strip(" ")
    signed = bool(quantity.sign) and left.startswith(quantity.sign)
    left = left.removeprefix(quantity.sign if signed else "")
    total, before = Fraction(0), None
    while left:
        part = re.match(rf" *({_NUMBER}) *([^0-9. ]*(?: [^0-9. ]+)*) *", left)
        if part is None or (before is not None and not quantity.joined):
            raise ValueError(_unread(text, quantity))
        number, unit = Fraction(part[1]), part[2].strip(" ")
        if signed and not unit:
            factor = Fraction(1)
        else:
            factor = _factor(text, unit, before, quantity)
        if before is not None and factor >= before:
            raise ValueError(_unread(text, quantity))
        total, before, left = total + number * factor, factor, left[part.end() :]
    if before is None:
        raise ValueError(_unread(text, quantity))
    return total


def _factor(
    text: str, unit: str, before: Fraction | None, quantity: Quantity
) -> Fraction:
    if unit in quantity.units:
        return quantity.units[unit]
    if quantity.joined and unit == "m" and before is not None:
        return quantity.units["min"]
    raise ValueError(_unread(text, quantity))


def _unread(text: str, quantity: Quantity) -> str:
    return (
        f"found {quoted(text)}, expected {quantity}; write it so, or as a plain number"
    )


def whole(value: Fraction) -> int | float:
    """A fraction as a number of a file: whole where it is."""
    return int(value) if value.denominator == 1 else float(value)


# --- the quantities --------------------------------------------------------------


def _duration() -> dict[str, Fraction]:
    minute, hour, day = 60, 3600, 86400
    short = {"ns": "1e-9", "us": "1e-6", "µs": "1e-6", "ms": "1e-3", "s": "1"}
    found = {name: Fraction(factor) for name, factor in short.items()}
    for names, seconds in (
        (("sec", "secs", "second", "seconds"), 1),
        (("min", "mins", "minute", "minutes"), minute),
        (("h", "hr", "hrs", "hour", "hours"), hour),
        (("d", "day", "days"), day),
        (("w", "week", "weeks"), 7 * day),
    ):
        found |= {name: Fraction(seconds) for name in names}
    return found


_PREFIXES = {"": 0, "k": 1, "M": 2, "G": 3, "T": 4}


def _rates() -> dict[str, Fraction]:
    """GB/s by unit; bits and bytes are distinguished by the case of the b."""
    found = {}
    for prefix, power in _PREFIXES.items():
        gigabytes = Fraction(1000) ** (power - 3)
        for unit in (f"{prefix}B/s", f"{prefix}Bps", f"{prefix}byte/s"):
            found[unit] = gigabytes
        bits = ("b/s", "bps", "bit/s", "bits/s")
        found |= {f"{prefix}{unit}": gigabytes / 8 for unit in bits}
        if prefix:
            found[f"{prefix.upper()}iB/s"] = Fraction(1024**power, 10**9)
            found[f"{prefix}bE"] = gigabytes / 8
    return found


def _sizes(gigabyte: int) -> dict[str, Fraction]:
    """Bytes by unit; `gigabyte` is 1000 or 1024, what a GB has of MB."""
    found = {}
    for prefix, power in _PREFIXES.items():
        found[f"{prefix}B"] = Fraction(gigabyte**power)
        if prefix:
            found[f"{prefix.upper()}iB"] = Fraction(1024**power)
    return found


_BINARY = {"Ki": 2**10, "Mi": 2**20, "Gi": 2**30, "Ti": 2**40}
_IN_WORDS = {"thousand": 10**3, "million": 10**6, "billion": 10**9, "trillion": 10**12}
_DECIMAL = {"k": 10**3, "K": 10**3, "M": 10**6, "B": 10**9, "G": 10**9, "T": 10**12}


SECONDS = Quantity(
    "a time", _duration(), ("45s", "90min", "1h30min", "3d"), joined=True
)
MICROSECONDS = SECONDS.of("us", "5us", "0.1ms")
GBYTES_PER_S = Quantity("a data rate", _rates(), ("25GB/s", "400Gb/s", "25GbE"))
MIB = Quantity("a size", _sizes(1000), ("512MiB", "2GiB", "2GB")).of("MiB")
#: Makers of cards count memory in powers of two and call it GB: an A100 of 80 GB has
#: 81,920 MiB.
CARD_GIB = Quantity(
    "the memory of a GPU", _sizes(1024), ("80GB", "80GiB", "24576MiB")
).of("GiB")
COUNT = Quantity(
    "a count",
    {name: Fraction(n) for name, n in (_DECIMAL | _BINARY | _IN_WORDS).items()},
    ("500k", "1M", "15T", "128Ki"),
)
#: Of sequences and batches, where 4k is 4000 to some and 4096 to others.
LENGTH = Quantity(
    "a length",
    {name: Fraction(n) for name, n in _BINARY.items() if name in ("Ki", "Mi")},
    ("128Ki", "1Mi"),
)
SHARE = Quantity(
    "a share", {"%": Fraction(1, 100), "percent": Fraction(1, 100)}, ("5%",)
)
_MONEY = {"": 1, "k": 10**3, "K": 10**3, "M": 10**6, "B": 10**9}
_USD = {
    f"{prefix}{name}": Fraction(n)
    for prefix, n in _MONEY.items()
    for name in ("USD", "$", "")
    if prefix or name
}
USD = Quantity("an amount of money", _USD, ("$5500", "5500USD", "5.5k"), sign="$")
USD_PER_HOUR = Quantity(
    "a price an hour",
    {
        f"{name}/{per}": Fraction(1, hours)
        for name in ("", "USD", "$")
        for per, hours in (("h", 1), ("hr", 1), ("hour", 1), ("d", 24), ("day", 24))
    }
    | {"USD": Fraction(1), "$": Fraction(1)},
    ("$2.49", "2.49USD", "$2.49/h"),
    sign="$",
)
