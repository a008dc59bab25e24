"""A clock that counts looks at it: limits of time without a wall clock."""

import time
from collections.abc import Iterator
from contextlib import contextmanager

import pytest


class Clock:
    """A clock that goes on by one each time it is looked at."""

    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        self.now += 1.0
        return self.now


@contextmanager
def counted_clock() -> Iterator[Clock]:
    """Put a counted clock in the place of `time.monotonic`, and yield it."""
    with pytest.MonkeyPatch.context() as patch:
        made = Clock()
        patch.setattr(time, "monotonic", made)
        yield made
