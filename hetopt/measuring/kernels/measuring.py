"""Runs the micro-benchmarks within so many seconds, a row a benchmark."""

import itertools
import json
import subprocess
import time
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import NamedTuple

from ...errors import InstanceError, Place, Unsupported, cut
from .. import decoder
from . import attention, memory, models, products
from .clock import Clock, Row, Task

Report = Callable[[int, int], None]
MOST_ROWS = 100_000
# What cannot be run here: no such kernel, no memory, no compiler.
_REFUSED = (RuntimeError, ValueError, TypeError, AttributeError, ImportError, OSError)


class Group(NamedTuple):
    """Benchmarks of one sort, and by which share of the time they are to be done."""

    by: float
    tasks: Callable[[Clock], Iterator[Task]]


#: The rest is for the last benchmark, which may begin just before its time is over.
GROUPS = (
    Group(0.30, products.tasks),
    Group(0.48, attention.tasks),
    Group(0.68, memory.tasks),
    Group(0.92, models.tasks),
)


def rows(device: str, seconds: float, report: Report | None = None) -> Iterator[Row]:
    """Rows, the device's own first; `report` is told (seconds gone, of all).

    A benchmark that cannot run here is a row `err` with the reason. `Unsupported`
    without PyTorch, or without the device.
    """
    if device == "cuda" and not decoder.torch().cuda.is_available():
        raise Unsupported("PyTorch finds no GPU here: give --cpu to measure the CPU")
    clock = Clock(device)
    yield about(clock)
    yield from attempts(clock, GROUPS, seconds, time.monotonic, report)


def attempts(
    clock: Clock,
    groups: tuple[Group, ...],
    seconds: float,
    now: Callable[[], float],
    report: Report | None = None,
) -> Iterator[Row]:
    """Yield what the benchmarks of groups give, none begun after its group's time.

    None begins, either, that would end after all time if it took as long as the longest
    one so far: what is compiled takes many times what others do.
    """
    start, longest = now(), 0.0
    for group in groups:
        for task in group.tasks(clock):
            begun = now() - start
            if report is not None:
                report(int(min(begun, seconds)), int(seconds))
            if begun >= group.by * seconds or begun + longest > seconds:
                break
            yield _attempt(clock, task)
            longest = max(longest, now() - start - begun)


def _attempt(clock: Clock, task: Task) -> Row:
    try:
        return task()
    except _REFUSED as error:
        named = getattr(task, "func", task)
        said = cut(str(error).strip().partition("\n")[0], 200)
        what = f"{named.__module__.rpartition('.')[2]}.{named.__name__}"
        given = [x for x in getattr(task, "args", ())[1:]]
        return {"what": "err", "of": what, "sizes": given, "e": said}
    finally:
        clock.tidy()


def about(clock: Clock) -> Row:
    """The device and what drives it."""
    lib = clock.lib
    made: Row = {
        "what": "device",
        "name": lib.cuda.get_device_name() if clock.on_gpu else "CPU",
        "torch": str(lib.__version__),
        "driver": _driver() if clock.on_gpu else None,
        "date": datetime.now(UTC).date().isoformat(),
        "threads": None if clock.on_gpu else lib.get_num_threads(),
    }
    if clock.on_gpu:
        made["mem"] = lib.cuda.get_device_properties(0).total_memory
    return {key: value for key, value in made.items() if value is not None}


def _driver() -> str | None:
    """NVIDIA's driver, as nvidia-smi says; None where it does not run."""
    words = ["nvidia-smi", "--query-gpu=driver_version", "--format=csv,noheader"]
    try:
        found = subprocess.run(words, capture_output=True, timeout=10, text=True)
    except (OSError, subprocess.SubprocessError):
        return None
    return found.stdout.partition("\n")[0].strip() or None


def read_rows(path: Place) -> list[Row]:
    """Rows that were measured elsewhere, one JSON object a line.

    `InstanceError` with the line where one is none, and where there is no device's row.
    """
    found: list[Row] = []
    try:
        with Path(path).open(encoding="utf-8") as file:
            for number, line in enumerate(itertools.islice(file, MOST_ROWS + 1), 1):
                found.append(_row(path, number, line))
    except (OSError, UnicodeDecodeError) as error:
        raise InstanceError.at(
            path, None, f"cannot be read: {error}; check the path"
        ) from None
    if len(found) > MOST_ROWS:
        raise InstanceError.at(path, None, f"found more than {MOST_ROWS} rows: cut it")
    if not any(row["what"] == "device" for row in found):
        raise InstanceError.at(
            path,
            None,
            "found no row of the device, expected what "
            "`python -m hetopt.measuring.kernels` writes: measure again",
        )
    return found


def _row(path: Place, number: int, line: str) -> Row:
    try:
        row: object = json.loads(line)
    except ValueError:
        row = None
    if not isinstance(row, dict) or not isinstance(row.get("what"), str):
        raise InstanceError.at(
            path,
            f"line {number}",
            f"found {cut(line.strip())!r}, expected a JSON object with `what`: "
            "measure again",
        )
    return row
