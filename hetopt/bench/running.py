"""A suite from its tasks to the rows in a folder."""

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

from ..errors import InstanceError
from . import journal, machine, suites, sweep
from .journal import Row
from .process import Answer
from .records import Task

FAILED = ("crashed", "timeout", "out of memory")


class Chosen(NamedTuple):
    """A suite, of a file of one's own perhaps, for other times, or a part of it.

    `only` is a word that the names of the part hold.
    """

    suite: str
    file: Path | None = None
    time_limit_s: float | None = None
    only: str | None = None


def go(
    chosen: Chosen,
    out: Path,
    *,
    workers: int = 1,
    dask: str | None = None,
    resume: bool = False,
    told: Callable[[Row | None, int], None] | None = None,
) -> list[Row]:
    """Run what is `chosen` of a suite into the folder `out`; its rows, in order.

    With `resume` the rows that are there are kept, and only the others are made.
    `told(row, left)` hears of every new row, and once of None before the first.
    Raises what `suites.tasks` and `journal.journal` raise.
    """
    suite, only = chosen.suite, chosen.only
    tasks = suites.tasks(suite, chosen.file, chosen.time_limit_s, only)
    tasks = [task.model_copy(update={"out": str(out.resolve())}) for task in tasks]
    if not tasks and only is not None:
        raise InstanceError(
            f"suite {suite}: found no solve whose name holds {only!r}, expected one; "
            "give another word to --only"
        )
    if not tasks:
        raise InstanceError(
            f"suite {suite}: found no solve, expected one; add [[{suite}.solve]]"
        )
    head = machine.header(suite, tasks, None if dask else workers)
    with journal.journal(out, head, resume=resume) as kept:
        done = {row["key"] for row in kept.rows}
        left = [task for task in tasks if task.key not in done]
        if told is not None:
            told(None, len(left))
        for answer in _answers(left, workers, dask):
            kept.add(answer["row"], answer.get("document"))
            if told is not None:
                told(answer["row"], 1)
    journal.sort(out, (task.key for task in tasks))
    return journal.read(out)[1]


def failed(rows: Sequence[Row]) -> dict[str, int]:
    """How many rows ended without an answer, by how they ended."""
    statuses = Counter(row["status"] for row in rows)
    return {status: statuses[status] for status in FAILED if statuses[status]}


def _answers(tasks: Sequence[Task], workers: int, dask: str | None) -> Iterator[Answer]:
    if not tasks:
        return iter(())
    if dask is not None:
        return sweep.on_dask(tasks, dask)
    return sweep.here(tasks, workers)
