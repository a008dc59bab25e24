"""Cases of a proof by prices, side by side in processes here or of a Dask cluster.

Cases do not depend on each other. Each is sent to a process as it stands, and comes
back divided and settled as far as a slice of time went; what is still open is sent
again. The proof that comes out is the one of a single process, but for the order.
"""

import sys
import time
from collections.abc import Iterator
from concurrent.futures import (
    FIRST_COMPLETED,
    CancelledError,
    Executor,
    Future,
    wait,
)
from contextlib import contextmanager
from dataclasses import dataclass
from functools import lru_cache
from importlib import import_module
from threading import get_ident
from typing import Any

from ....errors import SolverFailed
from ....schema import Instance
from ....solving import dask
from .bound import Case, PatternBound, Refutation

_SLICE_S = 0.5  # of one case and what it is divided into
_WAITING = 2  # cases sent for each process, so that none is idle
_LOOK_S = 0.2  # between looks at the clock


@dataclass(frozen=True)
class Task:
    """What a process needs to know of a bound; equal ones are prepared once."""

    instance: str
    least_us: float
    most_us: float
    alone_us: float


@dataclass
class Settled:
    """A case that came back, and its parts that are settled and open."""

    case: Case
    settled: list[Case]
    open: list[Case]
    failed: bool


@dataclass(frozen=True)
class Processes:
    """Where cases are refuted, how many at a time, and how a process is lost."""

    executor: Executor
    number: int
    lost: tuple[type[Exception], ...]


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
    from joblib.externals.loky import (  # type: ignore[import-untyped]
        get_reusable_executor,
    )
    from joblib.externals.loky.process_executor import (  # type: ignore[import-untyped]
        TerminatedWorkerError,
    )

    # Processes keep their tables: none ends for waiting, nor for its memory.
    executor = get_reusable_executor(
        max_workers=number, timeout=None, reuse=False, initializer=_leaks_nothing
    )
    try:
        yield Processes(executor, number, (TerminatedWorkerError,))
    finally:
        executor.shutdown(wait=True, kill_workers=True)


def _of_cluster(client: Any, at_once: int) -> Processes:
    """A case of a worker that dies is done again, until the scheduler gives it up."""
    distributed: Any = import_module("distributed")
    lost = (distributed.KilledWorker, CancelledError)
    return Processes(client.get_executor(pure=False), at_once, lost)


def _leaks_nothing() -> None:
    """A process that grows is no leak, for which joblib would end it."""
    from joblib.externals.loky import process_executor

    process_executor._MAX_MEMORY_LEAK_SIZE = sys.maxsize


@lru_cache(maxsize=32)
def _prepared(task: Task, thread: int) -> PatternBound:
    """Tables of one thread: what is kept in them is not shared."""
    instance = Instance.model_validate_json(task.instance)
    return PatternBound(instance, task.least_us, task.most_us, alone_us=task.alone_us)


def settle(task: Task, case: Case, time_us: float) -> Settled:
    """Settle and divide a case for a slice of time; the least is one step."""
    bound, start = _prepared(task, get_ident()), time.monotonic()
    refutation = Refutation(bound, time_us, [case])
    while refutation.step():
        if time.monotonic() - start > _SLICE_S:
            break
    return Settled(case, refutation.settled, refutation.open, refutation.failed)


class SideBySide(Refutation):
    """A refutation whose cases are with several processes."""

    def __init__(
        self, bound: PatternBound, time_us: float, processes: Processes
    ) -> None:
        super().__init__(bound, time_us, bound.cases)
        self._processes = processes
        instance = bound.instance.model_dump_json()
        self._task = Task(instance, bound.least, bound.most, bound.alone)
        self._sent: dict[Future[Settled], Case] = {}

    def step(self) -> bool:
        """Send what is open, and take in what came back; False at the end."""
        if self.failed or not (self.open or self._sent):
            self.cancel()
            return False
        submit = self._processes.executor.submit
        while self.open and len(self._sent) < _WAITING * self._processes.number:
            case = self.open.pop()
            self._sent[submit(settle, self._task, case, self.time_us)] = case
        done, _ = wait(self._sent, _LOOK_S, FIRST_COMPLETED)
        for future in done:
            self._take(self._sent.pop(future), self._settled(future))
        self.bound.cases = [*self.settled, *self.open, *self._sent.values()]
        return True

    def cancel(self) -> None:
        """Cases that no process has begun are not sent."""
        for future in self._sent:
            future.cancel()

    def _settled(self, future: Future[Settled]) -> Settled:
        try:
            return future.result()
        except self._processes.lost as error:
            raise SolverFailed(
                f"proof: a case was lost with its process ({type(error).__name__}: "
                f"{error}); the bound is what was proved before"
            ) from None

    def _take(self, case: Case, found: Settled) -> None:
        """What came back is a copy, which the case of the tree becomes."""
        self.failed |= found.failed
        vars(case).update(vars(found.case))
        for mine, theirs in ((self.settled, found.settled), (self.open, found.open)):
            mine += [case if part is found.case else part for part in theirs]

    @property
    def proved(self) -> bool:
        """Whether every case is settled: no plan is as quick as `time_us`."""
        return not (self.open or self._sent or self.failed)
