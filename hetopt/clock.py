"""The clock that limits are kept by: seconds, or work that is counted.

Whoever searches or proves asks `monotonic` whether its time is over. Within `counting`
its seconds are no time: each question is a unit of work (a candidate of a search, a box
of a proof, a step of a planner), as is what is spent at once (`spend`). So the same
work ends at the same place, however busy the machine is, and whoever divides seconds
divides work. What results report is always `wall` time.
"""

import time
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass

#: Units of work that stand for a second: shares of methods are in seconds.
PER_SECOND = 1000


@dataclass
class _Counter:
    """Work that is done, of the most that may be, until an instant of wall time."""

    most: int
    end: float | None
    done: float = 0.0


_COUNTER: ContextVar[_Counter | None] = ContextVar("counter", default=None)


def wall() -> float:
    """Return seconds of wall time."""
    return time.monotonic()


@contextmanager
def counting(most: int, seconds: float | None = None) -> Iterator[float]:
    """Count work within, and yield the seconds that stand for the most of it.

    All of it is done as well where so many seconds of wall time are over.
    """
    end = None if seconds is None else wall() + seconds
    token = _COUNTER.set(_Counter(most, end))
    try:
        yield most / PER_SECOND
    finally:
        _COUNTER.reset(token)


def is_counting() -> bool:
    """Tell whether work is counted in place of seconds."""
    return _COUNTER.get() is not None


def monotonic() -> float:
    """Return the seconds of this clock, whose beginning means nothing."""
    counter = _COUNTER.get()
    if counter is None:
        return wall()
    counter.done += 1
    if counter.end is not None and wall() >= counter.end:
        counter.done = max(counter.done, counter.most)
    return counter.done / PER_SECOND


def spend(units: float) -> None:
    """Count so many units of work, which were done without a look at the clock."""
    if (counter := _COUNTER.get()) is not None:
        counter.done += units
