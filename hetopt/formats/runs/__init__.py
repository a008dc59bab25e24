"""Measured runs: rows of ours, and what logs of trainers say an iteration took.

`read` reads rows, which `predict` and `calibrate` take; `check --from` reads a log, of
which `measured` returns the time of an iteration.
"""

from . import logs, trainer
from .rows import read
from .source import Measured, Size, Source
from .trainer import is_log

__all__ = ["is_log", "measured", "read"]


def measured(source: Source, size: Size) -> Measured | None:
    """Return what iterations of a size took by a log; None where it does not say it."""
    for one in logs.TRAINERS:
        if one.is_one(source):
            return one.measured(source, size)
    return trainer.measured(source) if trainer.is_one(source) else None
