"""The one reader of logs, by a table a trainer: readings, GPUs, running out of memory.

A `Trainer` says by which texts its logs are known, which lines tell the most memory,
and what else its lines tell of a run; `form` makes the form of a file of it.

A run's speed is the median of its readings without the first ones, which are warm-up:
three, or a tenth where that is more. GPUs are named by nvidia-smi, in its table or by
`-L`, and by torch's `collect_env`.
"""

import re
from collections.abc import Callable, Iterable, Sequence
from itertools import islice
from statistics import median
from types import MappingProxyType
from typing import Any, NamedTuple

from ...costs.runs.rows import Run
from ...errors import InstanceError
from ...text.parsing import parse_tree
from ..documents import Document
from .facts import Facts, Fields, Given
from .source import Form, Line, Measured, Size, Source

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


class Peak(NamedTuple):
    """A line that tells memory, and what of it is a field of a run, in its unit."""

    field: str
    pattern: re.Pattern[str]
    value: Callable[[re.Match[str]], float] = lambda match: float(match[1])


class Trainer(NamedTuple):
    """A table of what a trainer prints.

    A text with all of one of `marks` is a log of it. `read` takes what lines tell,
    `readings` returns those of `speed`, given the sequences of an iteration. `settings`
    are the fields of a run in the trainer's own configuration, which may lie beside,
    where `read` does not take them itself.
    """

    name: str
    title: str
    marks: tuple[tuple[str, ...], ...]
    read: Callable[[Source, Facts, Given], None]
    readings: Callable[[Source, int | None], list[float]]
    peaks: tuple[Peak, ...] = ()
    speed: str = "iteration_s"
    told: Fields = MappingProxyType({})
    settings: Callable[[Fields], Fields] | None = None
    config: str | None = None

    def is_one(self, source: Source) -> bool:
        """Tell whether a file is a log of the trainer."""
        text = source.text if source.kind == "log" else ""
        return any(all(mark in text for mark in marks) for marks in self.marks)

    def runs(self, source: Source, given: Given) -> list[Run]:
        """Return the one run of a log."""
        facts = given.facts(source.path)
        facts.add(self.title, self.told)
        if self.settings is not None:
            for one in given.of(self.name):
                facts.add(one.source, self.settings(one.tree))
        self.read(source, facts, given)
        most: dict[str, float] = {}
        for line in source.lines:
            for field, pattern, value in self.peaks:
                if match := pattern.search(line.text):
                    most[field] = max(most.get(field, 0.0), value(match))
        facts.add("memory of the ranks", {k: v for k, v in most.items() if v > 0})
        name_gpus(source.lines, facts)
        readings = self.readings(source, facts["gbs"])
        _measure(source, facts, self.speed, readings)
        return [facts.run()]

    def measured(self, source: Source, size: Size) -> Measured | None:
        """Return what iterations of a size take by a log; None where it has too few."""
        found = steady(self.readings(source, size.sequences))
        if found is None or self.speed == "iteration_s":
            return found
        tokens = size.sequences * size.length / size.gpus
        return found._replace(seconds=tokens / found.seconds)

    @property
    def form(self) -> Form:
        """Return the form of its logs."""
        reads = f"logs of {self.title}"
        held = self.is_one, self.runs, self.config, self.measured
        return Form(self.name, reads, "log", *held)


def warm_up(count: int) -> int:
    """Return how many of so many readings are warm-up."""
    return max(_WARM_UP, -(-count // 10))


def steady(readings: Sequence[float]) -> Measured | None:
    """Return the median of readings after warm-up; None where none is left."""
    first = warm_up(len(readings))
    kept = readings[first:]
    return Measured(median(kept), len(kept), first) if kept and median(kept) else None


def _measure(source: Source, facts: Facts, field: str, readings: list[float]) -> None:
    """Take the steady reading as `field`; else, that memory ran out before one.

    `InstanceError` where there is neither.
    """
    found = steady(readings)
    if found is not None:
        facts.add(f"median of {len(readings)} readings", {field: found.seconds})
    elif any(words in source.text for words in _NO_MEMORY):
        facts.add("out of memory", {"oom": True})
    else:
        raise InstanceError.at(
            source.path,
            None,
            f"found {len(readings)} iterations with a time, expected more than "
            f"{_WARM_UP}, which are warm-up; log every iteration, and give the output "
            "of the rank that prints them",
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


def printed_object(source: Source, index: int, start: int) -> Document:
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
    """Return the number of digits that may have commas between the thousands."""
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


def whole(value: object) -> Any:
    """Return a number without fraction as a whole one (`1.024000e+03`); else itself."""
    if isinstance(value, float) and value.is_integer() and abs(value) < 1e18:
        return int(value)
    return value


def positive(value: object) -> int | None:
    """Return a whole number from 1; None for anything else, such as -1, `auto`."""
    value = whole(value)
    return value if type(value) is int and value > 0 else None
