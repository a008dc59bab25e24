"""Published counts of parameters, beside what is read of a `config.json`.

A count is told by an option, by a key of the configuration, or by the index of
safetensors files beside it: `metadata.total_parameters`, else `metadata.total_size` in
bytes. A count that is another than what was read says that the configuration has
layers that hetopt does not model.
"""

import json
import re
from collections.abc import Iterable, Iterator, Sequence
from fractions import Fraction
from pathlib import Path
from typing import NamedTuple

from ...errors import InstanceError, quoted
from ...text import units
from ...text.parsing import readable
from . import inner
from .keys import Fields

#: Keys of a configuration that have the count of all parameters.
KEYS = (
    *("num_parameters", "n_params", "num_params", "n_parameters"),
    *("total_parameters", "total_params", "parameter_count"),
)
INDEX = "model.safetensors.index.json"
#: How far what is read may lie from a published count, beyond what the count is rounded
#: to: buffers, padded vocabularies and what models round down to in their names.
TOLERANCE = Fraction(2, 100)
_WIDTHS = (2, 4)  # bytes a parameter; files are saved in either
_HEAD = 4096  # bytes of an index in which its metadata stand


class Count(NamedTuple):
    """A published count of parameters, and the ranges of what it may stand for."""

    source: str
    shown: str
    ranges: tuple[tuple[Fraction, Fraction], ...]


def counts(config: Fields, file: Path | None, told: str | None) -> list[Count]:
    """Return the counts that are told, and of which no key says that they are others.

    Counts of files are not of what hetopt reads where these hold other inputs' towers,
    nor is the size of quantised weights. Raises `InstanceError` for a text that is no
    count.
    """
    found = [*_counts(told)]
    if not {*inner.TOWERS} & {*config}:
        found += _keys(config)
        if file is not None:
            found += _index(
                file.with_name(INDEX), quantised="quantization_config" in config
            )
    return found


def check(published: Iterable[Count], read: Sequence[int]) -> None:
    """Raise `InstanceError` for a count that none of `read` is near.

    `read` are the parameters with and without layers that predict further tokens.
    """
    for count in published:
        if any(_near(count, each) for each in read):
            continue
        share = float(read[0] / count.ranges[0][1] - 1)
        raise InstanceError(
            f"{count.source}: found {count.shown}, and hetopt reads {short(read[0])} "
            f"parameters of this configuration, {_apart(share)}, expected at most "
            f"{float(TOLERANCE):.0%}; where the count is right, the model has layers "
            "that hetopt does not support: give layer_parameters of an instance instead"
        )


def short(parameters: int) -> str:
    """Return a count as people write it, 21.8B."""
    factor, unit = (10**9, "B") if parameters >= 10**9 else (10**6, "M")
    return f"{parameters / factor:.4g}{unit}"


def _apart(share: float) -> str:
    if share > 1:
        return f"{share + 1:.3g} times as many"
    return f"{abs(share):.1%} {'more' if share > 0 else 'fewer'}"


def _near(count: Count, read: int) -> bool:
    return any(
        least * (1 - TOLERANCE) <= read <= most * (1 + TOLERANCE)
        for least, most in count.ranges
    )


def _counts(text: str | None) -> Iterator[Count]:
    if text is None:
        return
    try:
        value = units.parse(text, units.COUNT)
    except ValueError as error:
        raise InstanceError(f"option parameters: {error}") from None
    if value < 1:
        raise InstanceError(
            f"option parameters: found {quoted(text)}, expected all parameters of the "
            "model, as 21.8B"
        )
    # A number of which three digits are told stands for all that round to it.
    digits = re.match(r"[0-9_]+(?:\.([0-9]+))?", text.strip())
    decimals = len(digits[1] or "") if digits else 0
    unit = re.sub(r"^[0-9_]+(\.[0-9]+)?", "1", text.strip())
    half = units.parse(unit, units.COUNT) / 10**decimals / 2
    shown = f"{text.strip()} parameters"
    yield Count("option parameters", shown, ((value - half, value + half),))


def _keys(config: Fields) -> Iterator[Count]:
    for key in KEYS:
        value = config.get(key)
        if isinstance(value, int) and not isinstance(value, bool) and value > 0:
            yield _exact(key, value)


def _index(path: Path, *, quantised: bool) -> Iterator[Count]:
    """Yield what the metadata of an index say, where they stand in front."""
    if not path.is_file():
        return
    with readable(path), path.open("rb") as file:
        head = file.read(_HEAD).decode("utf-8", "replace")
    part = re.search(r'"metadata"\s*:\s*(\{[^{}]*\})', head)
    try:
        metadata = json.loads(part[1]) if part else {}
    except ValueError:
        return
    total, size = metadata.get("total_parameters"), metadata.get("total_size")
    if isinstance(total, int) and total > 0:
        yield _exact(path.name, total)
    elif isinstance(size, int | float) and size > 0 and not quantised:
        counts = [Fraction(int(size), width) for width in _WIDTHS]
        shown = f"{int(size)} bytes, {short(int(counts[0]))} parameters of 2 bytes"
        yield Count(path.name, shown, tuple((each, each) for each in counts))


def _exact(source: str, value: int) -> Count:
    return Count(source, f"{short(value)} parameters", ((Fraction(value),) * 2,))
