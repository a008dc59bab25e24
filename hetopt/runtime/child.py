"""The process of one rank that `processes` started.

It says one JSON line a second while it lives, with how far it is; one a step, where it
is the first rank; and one of what went wrong. It stops after a step when it reads
`stop`, and ends when its standard input does: no rank outlives who started it.
"""

import ctypes
import json
import os
import signal
import sys
import threading
import time
from contextlib import suppress
from pathlib import Path
from typing import Any

_BEAT_S = 1.0
_PR_SET_PDEATHSIG = 1  # linux/prctl.h
_LOCK = threading.Lock()


class _Signs:
    """The signs tell other threads how far the rank is, and whether it is to stop."""

    def __init__(self) -> None:
        self.trainer: Any = None
        self.stop = threading.Event()

    def beat(self) -> None:
        while True:
            done = self.trainer.done if self.trainer else 0
            _tell({"alive": True, "done": done})
            time.sleep(_BEAT_S)

    def hear(self) -> None:
        """Take orders, until who gives them is gone."""
        for line in sys.stdin:
            if line.strip() == "stop":
                self.stop.set()
        os._exit(1)


def _end_with_the_parent() -> None:
    """On Linux, end even where the process is stopped and hears nothing."""
    if sys.platform == "linux":
        with suppress(OSError, AttributeError):  # of a C library without it
            ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)


def main(job_file: str, rank: str, meeting: str) -> None:
    """Run a rank of the job that a file holds; a process that fails exits with 1."""
    _end_with_the_parent()
    signs = _Signs()
    for target in (signs.hear, signs.beat):
        threading.Thread(target=target, daemon=True).start()
    place = int(rank)
    try:
        # Signs of life come before PyTorch, which takes seconds to load.
        from .jobs import Job
        from .training import Trainer, joined, train

        job = Job.model_validate_json(Path(job_file).read_text(encoding="utf-8"))
        with joined(job, place, meeting) as device:
            signs.trainer = trainer = Trainer(job, place, device)
            train(
                trainer,
                lambda step: _tell(step._asdict()) if place == 0 else None,
                signs.stop.is_set,
            )
    except BaseException as error:
        _tell({"error": f"{type(error).__name__}: {error}", "at": time.time()})
        raise


def _tell(line: dict[str, object]) -> None:
    with _LOCK:
        sys.stdout.write(json.dumps(line) + "\n")
        sys.stdout.flush()
