"""What logs of all trainers have in common: readings, GPUs, running out of memory.

A run's speed is the median of its readings without the first, which warm up: three of
them, or a tenth where that is more. GPUs are named by nvidia-smi, in its table or by
`-L`, and by torch's `collect_env`.
"""

import re
from collections.abc import Iterable, Sequence
from itertools import islice
from statistics import median
from typing import Any

from ...errors import InstanceError
from ...text.parsing import parse_tree
from .facts import Facts
from .source import Line, Source

NUMBER = r"([0-9]{1,20}(?:\.[0-9]{1,20})?(?:[eE][-+]?[0-9]{1,3})?)"
_WARM_UP = 3
_MOST_LINES = 20_000  # of a configuration that is printed
_MAKER = r"(?:NVIDIA|Tesla|GeForce|Quadro|AMD)"
_NAME = rf"({_MAKER} [A-Za-z0-9 /._-]{{1,60}}?)"
_GPUS = (
    re.compile(rf"\bGPU [0-9]{{1,3}}: {_NAME}(?: \(UUID|$)"),
    re.compile(
        rf"\|\s{{1,8}}[0-9]{{1,3}}\s{{1,4}}{_NAME}\s{{1,40}}(?:On|Off)\s{{1,8}}\|"
    ),
)
_NO_MEMORY = ("OutOfMemoryError", "CUDA out of memory", "HIP out of memory")


def steady(readings: Sequence[float]) -> float | None:
    """The median of readings after warm-up; None where none is left."""
    warm_up = max(_WARM_UP, -(-len(readings) // 10))
    kept = readings[warm_up:]
    return median(kept) if kept else None


def measured(source: Source, facts: Facts, field: str, readings: list[float]) -> None:
    """Take the steady reading as `field`; else, that memory ran out before one.

    `InstanceError` where there is neither.
    """
    found = steady(readings)
    if found is not None and found > 0:
        facts.add(f"median of {len(readings)} readings", {field: found})
    elif any(words in source.text for words in _NO_MEMORY):
        facts.add("out of memory", {"oom": True})
    else:
        raise InstanceError.at(
            source.path,
            None,
            f"found {len(readings)} iterations with a time, expected more than "
            f"{_WARM_UP}, which warm up; log every iteration, and give the output of "
            "the rank that prints them",
        )


def name_gpus(lines: Iterable[Line], facts: Facts) -> None:
    """Take the GPU that a log names; two types are an error that names both."""
    for line in lines:
        if "GPU" not in line.text and "|" not in line.text:
            continue
        for pattern in _GPUS:
            match = pattern.search(line.text)
            if match and not match[1].endswith(".."):  # cut off by a narrow table
                facts.add(line.place, {"gpu": match[1].strip()})


def printed(source: Source, index: int, start: int) -> dict[str, Any]:
    """A JSON object that begins in a line, at column `start`, and ends with a `}`."""
    first = source.lines[index]
    parts = [first.text[start:]]
    if parts[0] != "{}":
        for line in islice(source.lines, index + 1, index + _MOST_LINES):
            parts.append(line.text)
            if line.text == "}":
                break
    where = f"{source.path}: {first.place}, a configuration"
    return parse_tree("\n".join(parts), where, is_json=True)


def number(text: str) -> float:
    """Of digits, perhaps with commas between the thousands."""
    return float(text.replace(",", ""))


def literal(text: str) -> Any:
    """None, True, False, a whole number, a number, or the text itself."""
    match text:
        case "None" | "null":
            return None
        case "True" | "true":
            return True
        case "False" | "false":
            return False
    if re.fullmatch(r"-?[0-9]{1,18}", text):
        return int(text)
    return float(text) if re.fullmatch(NUMBER, text) else text.strip("'\"")


def whole(value: Any) -> Any:
    """A number without fraction as a whole one (`1.024000e+03`); else itself."""
    if isinstance(value, float) and value.is_integer() and abs(value) < 1e18:
        return int(value)
    return value


def positive(value: Any) -> int | None:
    """A whole number from 1; None for anything else, such as -1, `auto`."""
    value = whole(value)
    return value if type(value) is int and value > 0 else None
