"""A suite from its tasks to the rows in a folder.

Every task is a process, here or on a Dask cluster; answers come as they are ready, in
any order.
"""

import threading
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from contextlib import contextmanager
from importlib import import_module
from pathlib import Path
from typing import Any, NamedTuple

from .. import registry
from ..errors import BackendMissing, InstanceError, Unsupported
from . import journal, machine, process, suites
from .journal import Row
from .process import Answer
from .records import Task

FAILED = ("crashed", "timeout", "out of memory")
PATIENCE_S = 20  # for a scheduler to answer


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
    if not tasks:
        what, remedy = "solve", f"add [[{suite}.solve]]"
        if only is not None:
            what = f"solve whose name holds {only!r}"
            remedy = "give another word to --only"
        raise InstanceError(f"suite {suite}: found no {what}, expected one; {remedy}")
    head = machine.header(suite, tasks, None if dask else workers)
    with journal.journal(out, head, resume=resume) as kept:
        done = {row["key"] for row in kept.rows}
        left = [task for task in tasks if task.key not in done]
        if told is not None:
            told(None, len(left))
        away = dask is not None and bool(left)
        for answer in _on_dask(left, str(dask)) if away else _here(left, workers):
            kept.add(answer["row"], answer.get("document"))
            if told is not None:
                told(answer["row"], 1)
    journal.sort(out, (task.key for task in tasks))
    return journal.read(out)[1]


def failed(rows: Sequence[Row]) -> dict[str, int]:
    """How many rows ended without an answer, by how they ended."""
    statuses = Counter(row["status"] for row in rows)
    return {status: statuses[status] for status in FAILED if statuses[status]}


def _here(tasks: Sequence[Task], workers: int) -> Iterator[Answer]:
    """Yield the answers of `workers` processes at a time on this machine.

    A thread of ours waits for each process, and all end with the iterator.
    """
    stop = threading.Event()
    pool = ThreadPoolExecutor(workers)
    try:
        started = [pool.submit(process.run, task, stop) for task in tasks]
        for future in as_completed(started):
            yield future.result()
    finally:
        stop.set()
        pool.shutdown(cancel_futures=True)


def _on_dask(tasks: Sequence[Task], address: str) -> Iterator[Answer]:
    """Answers of a Dask cluster, where the scheduler of that address runs it.

    A task whose worker dies is done again elsewhere; where that happens too often for
    the scheduler (`distributed.scheduler.allowed-failures`), it is a row that crashed.
    Raises what `_connected` raises.
    """
    with _connected(address) as client:
        futures = {
            client.submit(
                process.run, task, key=f"hetopt-{n}-{task.key}", pure=False
            ): task
            for n, task in enumerate(tasks)
        }
        for future in import_module("distributed").as_completed(futures):
            if future.status == "finished":
                yield future.result()
            else:
                reason = f"on the Dask cluster: {future.exception()}"
                yield {"row": futures[future].failed("crashed", reason)}


@contextmanager
def _connected(address: str) -> Iterator[Any]:
    """A client of the scheduler at that address, whose workers have our hetopt.

    `BackendMissing` without Dask; `Unsupported` where nothing answers at the address,
    or where a worker that is there has no hetopt, or another version.
    """
    try:
        distributed: Any = import_module("distributed")
    except ImportError:
        raise BackendMissing("dask", "'hetopt[dask]'") from None
    try:
        client = distributed.Client(address, timeout=PATIENCE_S)
    except (OSError, ValueError) as error:
        raise Unsupported(
            f"--dask {address}: found no scheduler ({error}), expected one to "
            "answer; start `dask scheduler` there"
        ) from None
    with client:
        _refuse_others(client, address)
        yield client


def _refuse_others(client: Any, address: str) -> None:
    ours = registry.version()
    try:
        found = set(client.run(registry.version).values()) - {ours}
    except ImportError as error:
        found = {f"none ({error})"}
    if found:
        raise Unsupported(
            f"--dask {address}: workers have hetopt {', '.join(sorted(found))}, "
            f"expected {ours}; install it where they run"
        )
