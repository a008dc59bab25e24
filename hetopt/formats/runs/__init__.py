"""Measured runs: rows of ours, and what logs of trainers say an iteration took.

`read` reads rows, which `predict` and `calibrate` take, `read_serving` those of a
table of serving; `check --from` reads a log, of
which `measured` returns the time of an iteration.
"""

from . import logs, trainer
from .rows import is_serving, read, read_serving
from .source import Measured, Size, Source
from .trainer import is_log

__all__ = ["is_log", "is_serving", "measured", "read", "read_serving"]


def measured(source: Source, size: Size) -> Measured | None:
    """Return what iterations of a size took by a log; None where it does not say it."""
    for one in logs.TRAINERS:
        if one.is_one(source):
            return one.measured(source, size)
    return trainer.measured(source) if trainer.is_one(source) else None
