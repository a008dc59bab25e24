"""All tasks, each in its process: side by side here, or on a Dask cluster.

Answers come as they are ready, in any order; every task gives exactly one. Sections of
one page are made one after another, as they write one file and may read what stands
there.
"""

import threading
from collections.abc import Collection, Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from importlib import import_module
from typing import Any

from ..solving import dask
from . import process
from .records import Task


def here(tasks: Sequence[Task], workers: int) -> Iterator[process.Answer]:
    """Yield the answers of `workers` processes at a time on this machine.

    A thread of ours waits for each process, and all end with the iterator.
    """
    stop = threading.Event()
    left, busy = list(tasks), dict[Future[process.Answer], Task]()
    pool = ThreadPoolExecutor(workers)
    try:
        while left or busy:
            while len(busy) < workers and (task := _next(left, busy.values())):
                left.remove(task)
                busy[pool.submit(process.run, task, stop)] = task
            for future in wait(busy, return_when=FIRST_COMPLETED).done:
                del busy[future]
                yield future.result()
    finally:
        stop.set()
        pool.shutdown()


def _next(left: Sequence[Task], busy: Collection[Task]) -> Task | None:
    """Return the first task whose page nobody writes now, None where there is none."""
    scripts = {task.script for task in busy if task.kind == "page"}
    return next((x for x in left if x.kind != "page" or x.script not in scripts), None)


def on_dask(tasks: Sequence[Task], address: str) -> Iterator[process.Answer]:
    """Answers of a Dask cluster, where the scheduler of that address runs it.

    A task whose worker dies is done again elsewhere; where that happens too often for
    the scheduler (`distributed.scheduler.allowed-failures`), it is a row that crashed.
    Raises what `dask.connected` raises.
    """
    with dask.connected(address) as client:
        futures = {
            client.submit(
                process.run, task, key=f"hetopt-{n}-{task.key}", pure=False
            ): task
            for n, task in enumerate(tasks)
        }
        for future in import_module("distributed").as_completed(futures):
            yield _answer(future, futures[future])


def _answer(future: Any, task: Task) -> process.Answer:
    """Return what a future brings: an answer, or a row of a task that was lost."""
    if future.status == "finished":
        found: process.Answer = future.result()
        return found
    reason = f"on the Dask cluster: {future.exception()}"
    row = {**task.asked(), "status": "crashed", "reasons": [reason], "seconds": {}}
    return {"row": row}
