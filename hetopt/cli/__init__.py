"""The command line: these files alone print or exit (`output`)."""

import atexit
import gc
import os
import signal
import sys
from types import FrameType

import typer

from . import (
    benchmarks,
    checking,
    checkpoints,
    exchange,
    executing,
    explaining,
    importing,
    measuring,
    planning,
    predicting,
    questions,
    queueing,
    recovering,
    replaying,
    scheduling,
    serving,
)
from .app import app
from .output import be_patient, unexpected

__all__ = ["app", "main"]

for _group in (
    planning,
    checking,
    scheduling,
    benchmarks,
    exchange,
    measuring,
    importing,
    checkpoints,
    explaining,
    recovering,
    replaying,
    predicting,
    questions,
    executing,
    queueing,
    serving,
):
    _group.register(app)


#: New objects after which unreachable ones are looked for. Most of what start-up makes
#: stays: to look through it at Python's usual 700 takes a tenth of the time.
_NEW_OBJECTS = 50_000


def _interrupt(number: int, frame: FrameType | None) -> None:
    raise KeyboardInterrupt


def main() -> None:
    """Run the command line; SIGTERM ends the work as Ctrl-C does."""
    gc.set_threshold(_NEW_OBJECTS)
    # Matrices here are small: threads for them take more time than they save.
    os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
    # All memory goes back at the end: looking for cycles first takes a tenth of a s.
    atexit.register(gc.freeze)
    signal.signal(signal.SIGTERM, _interrupt)
    be_patient()
    sys.excepthook = unexpected
    typer.main.get_command(app)()
