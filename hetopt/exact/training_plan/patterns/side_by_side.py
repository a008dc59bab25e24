"""Cases of one proof, refuted side by side by processes of this machine.

Cases do not depend on each other. Each is sent to a process as it stands, and comes
back divided and settled as far as a slice of time went; what is still open is sent
again. The proof that comes out is the one of a single process, but for the order.
"""

import time
from collections.abc import Iterator
from concurrent.futures import FIRST_COMPLETED, Executor, Future, wait
from contextlib import contextmanager
from dataclasses import dataclass
from functools import lru_cache

from ....schema import Instance
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


@dataclass
class Settled:
    """A case that came back, and its parts that are settled and open."""

    case: Case
    settled: list[Case]
    open: list[Case]
    failed: bool


@dataclass(frozen=True)
class Processes:
    """Where cases are refuted, and how many at a time."""

    executor: Executor
    number: int


@contextmanager
def processes(number: int) -> Iterator[Processes | None]:
    """So many processes of this machine; None where one is enough.

    They are stopped at the end, whatever they are at.
    """
    if number == 1:
        yield None
        return
    # Plans by one process, nearly all, need not wait for its import.
    from joblib.externals.loky import (  # type: ignore[import-untyped]
        get_reusable_executor,
    )

    executor = get_reusable_executor(max_workers=number, reuse=False)
    try:
        yield Processes(executor, number)
    finally:
        executor.shutdown(wait=True, kill_workers=True)


@lru_cache(maxsize=8)
def _prepared(task: Task) -> PatternBound:
    instance = Instance.model_validate_json(task.instance)
    return PatternBound(instance, task.least_us, task.most_us)


def settle(task: Task, case: Case, time_us: float) -> Settled:
    """Settle and divide a case for a slice of time; the least is one step."""
    bound, start = _prepared(task), time.monotonic()
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
        self._task = Task(instance, bound.least, bound.most)
        self._sent: dict[Future[Settled], Case] = {}

    def step(self) -> bool:
        """Send what is open, and take in what came back; False at the end."""
        if self.failed or not (self.open or self._sent):
            for future in self._sent:
                future.cancel()
            return False
        submit = self._processes.executor.submit
        while self.open and len(self._sent) < _WAITING * self._processes.number:
            case = self.open.pop()
            self._sent[submit(settle, self._task, case, self.time_us)] = case
        done, _ = wait(self._sent, _LOOK_S, FIRST_COMPLETED)
        for future in done:
            self._take(self._sent.pop(future), future.result())
        self.bound.cases = [*self.settled, *self.open, *self._sent.values()]
        return True

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
