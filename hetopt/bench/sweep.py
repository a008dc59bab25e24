"""All tasks, each in its process: side by side here, or on a Dask cluster.

Answers come as they are ready, in any order; every task gives exactly one.
"""

import threading
from collections.abc import Iterator, Sequence
from importlib import import_module
from typing import Any

from ..solving import dask
from . import process
from .records import Task


def here(tasks: Sequence[Task], workers: int) -> Iterator[process.Answer]:
    """Answers of `workers` processes at a time on this machine.

    Each waits in a thread of ours, and all end with the iterator.
    """
    from joblib import Parallel, delayed  # type: ignore[import-untyped]

    stop = threading.Event()
    pool = Parallel(
        n_jobs=workers,
        backend="threading",
        return_as="generator_unordered",
        batch_size=1,
        pre_dispatch=workers,
    )
    try:
        yield from pool(delayed(process.run)(task, stop) for task in tasks)
    finally:
        stop.set()


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
