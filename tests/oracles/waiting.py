"""Waiting for what another process does, however busy the machine is."""

import time
from collections.abc import Callable
from typing import TypeVar

T = TypeVar("T")

#: After so many seconds a test hangs; no machine is as slow as that.
PATIENCE_S = 600.0
_LOOK_S = 0.02  # between looks


def awaited(look: Callable[[], T], what: str) -> T:
    """Return the first answer of `look` that is true; `what` names it in a failure."""
    until = time.monotonic() + PATIENCE_S
    while not (seen := look()):
        assert time.monotonic() < until, f"no {what} after {PATIENCE_S:.0f} s"
        time.sleep(_LOOK_S)
    return seen
