"""Logs of trainers: what iterations took, and the arguments that a log prints.

    Megatron-LM, Megatron-DeepSpeed (core_v0.8.0 to 0.20.0)
        [2025-01-01 00:00:00.000000] iteration      100/     500 | ... |
            elapsed time per iteration (ms): 1234.5 | ... | global batch size:   256 |
    torchtitan (0.1.0 to 0.2.2)
        step: 10  loss:  7.0000  ...  tps: 5,762  tflops: 333.70  mfu: 33.74%
    DeepSpeed (0.9.5 to 0.16.5)
        epoch=0/micro_step=100/global_step=100, ..., CurrSamplesPerSec=15.2, ...
        steps: 100 loss: 2.0000 iter time (s): 1.234 samples/sec: 207.455
        [...] [Rank 0] time (ms) | fwd: 100.00 | bwd: 200.00 | ... | step: 10.00
    NeMo (1.20 to 2.4)
        Training epoch 0, iteration 5/99 | ... | train_step_timing in s: 14.2

A run's time is the median of its readings without the first ones, which are warm-up:
three, or a tenth where that is more. Where Megatron ramps its batch up, iterations of
the last size count. Megatron prints its arguments between two titles, torchtitan and
DeepSpeed print their configuration as JSON.
"""

import re
from collections.abc import Callable, Iterator, Sequence
from itertools import islice
from statistics import median
from typing import Any, NamedTuple

from ...errors import InstanceError
from ...text.documents import Document, Fields
from ...text.parsing import parse_tree
from .source import Measured, Size, Source

NUMBER = r"([0-9]{1,20}(?:\.[0-9]{1,20})?(?:[eE][-+]?[0-9]{1,3})?)"
_WARM_UP = 3
_MOST_LINES = 20_000  # of a configuration that is printed

_TITLE = re.compile(r"-{8,40} ?(end of )?[A-Za-z0-9_ \-]{0,60}arguments ?-{8,40}")
_WIDEST_TITLE = 200
_ARGUMENT = re.compile(r" {1,4}([A-Za-z_][A-Za-z0-9_]{0,90}) \.{0,60} ?(.{0,4000})")
_ITERATION = re.compile(r"\biteration {1,12}[0-9]{1,12}/ {0,12}[0-9]{1,12} \|")
_ELAPSED = re.compile(rf"elapsed time per iteration \((ms|s)\): {{1,12}}{NUMBER}")
_BATCH = re.compile(r"global batch size: {1,12}([0-9]{1,12})")
_STEP = re.compile(r"(?<!validate )\bstep: {1,12}([0-9]{1,12}) {1,4}loss:")
_TOKENS = re.compile(r"\btps: ([0-9][0-9,]{0,20})")
_SAMPLES = re.compile(rf"CurrSamplesPerSec={NUMBER}")
_PIPELINE = re.compile(rf"\biter time \(s\): {NUMBER} samples/sec: ")
_TIMER = re.compile(rf"\| (fwd|bwd|step|forward|backward): {NUMBER}")
_TIMERS = 3
_NEMO = re.compile(rf"train_step_timing in s[:=] {{0,4}}{NUMBER}")
_CONFIGS = ("Running with configs: {", "json = {")  # torchtitan's, DeepSpeed's


class Trainer(NamedTuple):
    """A trainer's marks, and the seconds of iterations of a size by its log.

    A text with all of one of `marks` is a log of it.
    """

    marks: tuple[tuple[str, ...], ...]
    seconds: Callable[[Source, Size], list[float]]

    def is_one(self, source: Source) -> bool:
        """Tell whether a file is a log of the trainer."""
        text = source.text if source.kind == "log" else ""
        return any(all(mark in text for mark in marks) for marks in self.marks)

    def measured(self, source: Source, size: Size) -> Measured | None:
        """Return the median after warm-up; None where no reading is left."""
        readings = self.seconds(source, size)
        first = warm_up(len(readings))
        kept = readings[first:]
        if not kept or not median(kept):
            return None
        return Measured(median(kept), len(kept), first)


def warm_up(count: int) -> int:
    """Return how many of so many readings are warm-up."""
    return max(_WARM_UP, -(-count // 10))


def _megatron(source: Source, size: Size) -> list[float]:
    """Return the times of the iterations of the last batch size."""
    readings: list[tuple[float, int]] = []
    for line in source.lines:
        elapsed = _ELAPSED.search(line)
        if elapsed and _ITERATION.search(line):
            unit, batch = (1000 if elapsed[1] == "ms" else 1), _BATCH.search(line)
            own = int(batch[1]) if batch else size.sequences
            readings.append((float(elapsed[2]) / unit, own))
    last = readings[-1][1] if readings else size.sequences
    if last != size.sequences:
        raise InstanceError.at(
            source.path,
            "global batch size",
            f"found iterations of {last} sequences, expected {size.sequences}; "
            "assemble an instance of the run's batch",
        )
    return [seconds for seconds, own in readings if own == last]


def _torchtitan(source: Source, size: Size) -> list[float]:
    """Return the time of each step by the first rank that prints it."""
    rates: dict[str, float] = {}
    for line in source.lines:
        if (step := _STEP.search(line)) and (rate := _TOKENS.search(line)):
            rates.setdefault(step[1], float(rate[1].replace(",", "")))
    tokens = size.sequences * size.length / size.gpus
    return [tokens / rate for rate in rates.values() if rate]


def _deepspeed(source: Source, size: Size) -> list[float]:
    """Return the pipeline's times, else those by samples a second, else by timers."""
    if times := _numbers(source, _PIPELINE):
        return times
    if rates := _numbers(source, _SAMPLES):
        return [size.sequences / rate for rate in rates if rate > 0]
    breakdown = [_TIMER.findall(line) for line in source.lines]
    return [
        sum(float(ms) for _, ms in timers) / 1000
        for timers in breakdown
        if len(timers) == _TIMERS
    ]


def _numbers(source: Source, pattern: re.Pattern[str]) -> list[float]:
    found = (pattern.search(line) for line in source.lines)
    return [float(match[1]) for match in found if match is not None]


TRAINERS = (
    Trainer((("[titan]",), ("step: ", "tps: ")), _torchtitan),
    Trainer(
        (
            ("elapsed time per iteration (",),
            ("end of arguments", "num_attention_heads"),
        ),
        _megatron,
    ),
    Trainer(
        (
            ("CurrSamplesPerSec=",),
            ("iter time (s): ",),
            ("[config.py:", "train_batch_size"),
        ),
        _deepspeed,
    ),
    Trainer((("train_step_timing in s",),), lambda source, _: _numbers(source, _NEMO)),
)


def printed_arguments(source: Source) -> Fields:
    """Return the arguments that Megatron's log shows, or a part of one; the last."""
    if found := [*_dumps(source.lines)]:
        return found[-1]
    matches = [_ARGUMENT.fullmatch(line) for line in source.lines if line]
    # Without its title a dump is known by its dots.
    if all(one is not None and " .." in one[0] for one in matches):
        return {one[1]: literal(one[2]) for one in matches if one is not None}
    return {}


def _dumps(lines: Sequence[str]) -> Iterator[Fields]:
    """Yield each printed list of arguments; a restart prints another."""
    held: Document | None = None
    for line in lines:
        is_title = "arguments" in line[:_WIDEST_TITLE]
        match = _TITLE.search(line[:_WIDEST_TITLE]) if is_title else None
        if match is not None:
            if match[1] and held is not None:
                yield held
            held = None if match[1] else {}
        elif held is not None and (said := _ARGUMENT.fullmatch(line)):
            held[said[1]] = literal(said[2])


def printed_config(source: Source) -> Document:
    """Return the configuration that a log prints as JSON; the last of several."""
    found: Document = {}
    for index, line in enumerate(source.lines):
        for mark in _CONFIGS:
            if (start := line.find(mark)) >= 0:
                found = _printed_object(source, index, start + len(mark) - 1)
    return found


def _printed_object(source: Source, index: int, start: int) -> Document:
    """Return a JSON object from column `start` of a line on; it ends with a `}`."""
    parts = [source.lines[index][start:]]
    if parts[0] != "{}":
        for line in islice(source.lines, index + 1, index + _MOST_LINES):
            parts.append(line)
            if line == "}":
                break
    where = f"{source.path}: line {index + 1}, a configuration"
    return parse_tree("\n".join(parts), where, is_json=True)


def literal(text: str) -> Any:
    """Return None, True, False, a whole number, a number, or the text itself."""
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
