"""Boxes of a proof, side by side in processes here or of a Dask cluster.

Boxes do not depend on each other. Each is sent to a process as it stands, and comes
back divided and settled as far as a slice of time went; what is still open is sent
again. The proof that comes out is the one of a single process, but for the order.
"""

import sys
from collections.abc import Iterator, Sequence
from concurrent.futures import (
    FIRST_COMPLETED,
    CancelledError,
    Executor,
    Future,
    wait,
)
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import lru_cache
from importlib import import_module
from threading import get_ident
from typing import Any

from ...clock import monotonic
from ...errors import SolverFailed
from ...schema import Instance
from ...solving import dask
from .bound import PipelineBound, Refutation
from .boxes import Box
from .schedule import Schedule

_SLICE_S = 0.5  # of one box and what it is divided into
_FEW_S = 0.1  # while there are too few for all processes
_WAITING = 2  # boxes sent for each process, so that none is idle
_LOOK_S = 0.2  # between looks at the clock

_Prepared = tuple["Task", int | None]


@dataclass(frozen=True)
class Task:
    """A bound that a process is to prepare; equal ones are prepared once."""

    instance: str
    least_us: int
    most_us: int
    alone_us: int
    schedule: Schedule
    whole: bool


@dataclass
class Settled:
    """A box that came back, and its parts that are settled and open."""

    box: Box
    settled: list[Box]
    open: list[Box]
    failed: bool


class Processes:
    """Where boxes are refuted, one after another in each, and how one is lost."""

    def __init__(
        self, executors: Sequence[Executor], lost: tuple[type[Exception], ...]
    ) -> None:
        self.executors, self.lost = executors, lost
        #: What each has made tables for, or will have.
        self.prepared: list[set[_Prepared]] = [set() for _ in executors]

    def begin(self) -> None:
        """Let all import what they need, while something else is done here."""
        with suppress(*self.lost):  # the next request raises it
            for executor in self.executors:
                executor.submit(_imported)


def _imported() -> None:
    """This module, by which it is known in another process."""


@contextmanager
def processes(number: int, address: str | None = None) -> Iterator[Processes | None]:
    """So many processes of this machine; None where one is enough.

    With the address of a Dask scheduler as many as its workers have threads, wherever
    they are. All are stopped at the end, whatever they are at, those of a cluster
    after their slice of time.
    """
    if address is not None:
        with dask.connected(address) as client:
            yield _of_cluster(client, dask.workers(client, address))
        return
    if number == 1:
        yield None
        return
    # Plans by one process, nearly all, need not wait for its import.
    from joblib.externals.loky import ProcessPoolExecutor  # type: ignore[import-untyped]
    from joblib.externals.loky.process_executor import (  # type: ignore[import-untyped]
        TerminatedWorkerError,
    )

    # Processes keep their tables: none ends for waiting, nor for its memory.
    executors = tuple(
        ProcessPoolExecutor(1, timeout=None, initializer=_leaks_nothing)
        for _ in range(number)
    )
    try:
        yield Processes(executors, (TerminatedWorkerError,))
    finally:
        for executor in executors:
            executor.shutdown(wait=True, kill_workers=True)


def _of_cluster(client: Any, at_once: int) -> Processes:
    """Whoever is free: a box that belongs to a worker that dies would wait for it.

    One of a worker that dies is done again, until the scheduler gives it up.
    """
    distributed: Any = import_module("distributed")
    executor = client.get_executor(pure=False)
    return Processes((executor,) * at_once, (distributed.KilledWorker, CancelledError))


def _leaks_nothing() -> None:
    """A process that grows is no leak, for which joblib would end it."""
    from joblib.externals.loky import process_executor

    process_executor._MAX_MEMORY_LEAK_SIZE = sys.maxsize


@lru_cache(maxsize=32)
def _prepared(task: Task, thread: int) -> PipelineBound:
    """Tables of one thread: what is kept in them is not shared."""
    instance = Instance.model_validate_json(task.instance)
    times = task.most_us, task.least_us
    return PipelineBound(
        *(instance, *times),
        schedule=task.schedule,
        alone_us=task.alone_us,
        whole=task.whole,
    )


def settle(box: Box, task: Task, time_us: int, slice_s: float) -> Settled:
    """Settle and divide a box for a slice of time; the least is one step."""
    bound, start = _prepared(task, get_ident()), monotonic()
    refutation = Refutation(bound, time_us, [box])
    while refutation.step():
        if monotonic() - start > slice_s:
            break
    return Settled(box, refutation.settled, refutation.open, refutation.failed)


class SideBySide(Refutation):
    """A refutation whose boxes are with several processes."""

    def __init__(
        self,
        bound: PipelineBound,
        time_us: int,
        processes: Processes,
    ) -> None:
        """Begin with the boxes that are known."""
        super().__init__(bound, time_us, bound.boxes)
        self._processes = processes
        instance = bound.instance.model_dump_json()
        times = bound.least_us, bound.most_us, bound.alone_us
        self._task = Task(instance, *times, bound.schedule, bound.whole)
        self._sent: dict[Future[Settled], tuple[int, Box]] = {}

    def step(self) -> bool:
        """Send what is open, and take in what came back; False at the end."""
        if self.failed or not (self.open or self._sent):
            self.cancel()
            return False
        self._send()
        done, _ = wait(self._sent, _LOOK_S, FIRST_COMPLETED)
        for future in done:
            _, box = self._sent.pop(future)
            with self._losing():
                found = future.result()
            self._take(box, found)
        sent = (box for _, box in self._sent.values())
        self.bound.boxes = [*self.settled, *self.open, *sent]
        return True

    def _send(self) -> None:
        """Send as many boxes as keep all processes busy; for less long where few."""
        executors = self._processes.executors
        few = len(self.open) + len(self._sent) < _WAITING * len(executors)
        what = (self._task, self.time_us, _FEW_S if few else _SLICE_S)
        for waiting in range(_WAITING):
            for number, executor in enumerate(executors):
                at_work = sum(there == number for there, _ in self._sent.values())
                box = self._next(number, waiting) if at_work <= waiting else None
                if box is not None:
                    with self._losing():
                        sent = executor.submit(settle, box, *what)
                    self._sent[sent] = number, box

    def _next(self, number: int, waiting: int) -> Box | None:
        """One for a process, whose tables it may have; None where others have them.

        A process that is idle takes what there is.
        """
        prepared = self._processes.prepared
        mine, any_ones = prepared[number], set[_Prepared]().union(*prepared)

        def worth(at: int) -> tuple[bool, bool, int]:
            needed = self._needed(self.open[at])
            return needed in mine, needed not in any_ones, at

        best = max(range(len(self.open)), key=worth, default=None)
        if best is None or (waiting and not any(worth(best)[:2])):
            return None
        mine.add(self._needed(self.open[best]))
        return self.open.pop(best)

    def _needed(self, box: Box) -> _Prepared:
        """Return what tables are made for: the most that is synchronised, above all."""
        return self._task, box.sync_high_us

    def cancel(self) -> None:
        """Cases that no process has begun are not sent."""
        for future in self._sent:
            future.cancel()

    @contextmanager
    def _losing(self) -> Iterator[None]:
        try:
            yield
        except self._processes.lost as error:
            raise SolverFailed(
                f"proof: a box was lost with its process ({type(error).__name__}: "
                f"{error}); the bound is what was proved before"
            ) from None

    def _take(self, box: Box, found: Settled) -> None:
        """Put what came back, a copy, in the place of the box of the tree."""
        self.failed |= found.failed
        vars(box).update(vars(found.box))
        for mine, theirs in ((self.settled, found.settled), (self.open, found.open)):
            mine += [box if part is found.box else part for part in theirs]

    @property
    def proved(self) -> bool:
        """Return whether every box is settled: no plan is as quick as `time_us`."""
        return not (self.open or self._sent or self.failed)


@dataclass
class Beside:
    """A bound whose boxes are refuted by processes."""

    bound: PipelineBound
    processes: Processes

    @property
    def boxes(self) -> list[Box]:
        """The boxes that were needed so far."""
        return self.bound.boxes

    def dives(self) -> list[Box]:
        """Return no boxes: packings stay in other processes."""
        return []

    def dive(self, box: Box, time_us: int) -> None:
        """Do nothing."""

    def refute(self, time_us: int) -> SideBySide:
        """Start refuting that any plan has an iteration of at most `time_us`."""
        return SideBySide(self.bound, time_us, self.processes)
