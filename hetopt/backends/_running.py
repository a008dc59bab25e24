"""Solves that a Ctrl-C can end without losing the incumbent."""

from collections.abc import Callable
from threading import Event, Thread

from ..modelling import Limits

Report = Callable[[float | None, float | None], None]


def run(work: Callable[[], None], stop: Callable[[], None]) -> bool:
    """Do `work` in a thread of its own; whether an interrupt ended it.

    Python handles signals in the main thread, and only between its own instructions:
    a solver that runs there would not see a Ctrl-C, or a SIGTERM that a handler turns
    into KeyboardInterrupt. `stop` asks the solver to end; it is called until it does.
    What `work` raises is raised here.
    """
    ended, interrupted = Event(), False
    raised: list[BaseException] = []

    def guarded() -> None:
        try:
            work()
        except BaseException as error:  # handed over to the caller's thread
            raised.append(error)
        finally:
            ended.set()

    Thread(target=guarded, daemon=True).start()
    while not ended.is_set():
        try:
            # Lock waits cannot be interrupted on Windows: hence the period.
            ended.wait(0.1 if interrupted else 0.5)
            if interrupted and not ended.is_set():
                stop()
        except KeyboardInterrupt:
            interrupted = True
            stop()
    if raised:
        raise raised[0]
    return interrupted


class Relay:
    """Passes progress on to `report`; what that raises must not cross a solver's code.

    It is kept, `stop` ends the search, and `raise_again` raises it in our own.
    """

    def __init__(self, report: Report, stop: Callable[[], None]) -> None:
        self._report, self._stop = report, stop
        self._last: tuple[float | None, float | None] = (None, None)
        self._raised: list[BaseException] = []

    def __call__(self, incumbent: float | None, bound: float | None) -> None:
        if self._raised or (incumbent, bound) == self._last:
            return
        self._last = (incumbent, bound)
        try:
            self._report(incumbent, bound)
        except BaseException as error:
            self._raised.append(error)
            self._stop()

    def raise_again(self) -> None:
        if self._raised:
            raise self._raised[0]


def relative_gap(limits: Limits) -> float | None:
    """The gap to ask of a solver that measures it relative to the objective.

    Ours is relative to the bound: (z - b) / b <= g  is  (z - b) / z <= g / (1 + g) when
    minimising, and implied by the latter when maximising.
    """
    return None if limits.gap is None else limits.gap / (1 + limits.gap)
