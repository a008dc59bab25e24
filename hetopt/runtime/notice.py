"""A notice that a run's machines go: the signal SIGTERM, as schedulers send it.

Slurm sends it to what it ends (`scancel`, preemption with a GraceTime, and
`--signal=TERM@60` before the time limit), torchrun passes it on to its ranks,
and a cloud's agent can send it. A run with a folder for its states then saves them
after the step that it is in, and ends in order; one without ends at once.
"""

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType

from .jobs import Settings


@contextmanager
def notices(settings: Settings) -> Iterator[threading.Event]:
    """Yield an event that a SIGTERM sets, where the run has a folder for its states.

    Only the main thread of a process hears signals; elsewhere the event is never set.
    """
    noticed = threading.Event()
    main = threading.current_thread() is threading.main_thread()
    if settings.checkpoint is None or not main:
        yield noticed
        return

    def note(number: int, frame: FrameType | None) -> None:
        noticed.set()

    before = signal.signal(signal.SIGTERM, note)
    try:
        yield noticed
    finally:
        signal.signal(signal.SIGTERM, before)
