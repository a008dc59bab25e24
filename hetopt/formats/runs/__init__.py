"""Measured runs: rows of ours, and what logs of trainers say an iteration took.

`rows.read` reads rows, which `predict` and `calibrate` take; `check --from` reads a
log, of which `measured` returns the time of an iteration.
"""

from . import logs, trainer
from .source import Measured, Size, Source


def measured(source: Source, size: Size) -> Measured | None:
    """Return what iterations of a size took by a log; None where it does not say it."""
    for one in logs.TRAINERS:
        if one.is_one(source):
            return one.measured(source, size)
    return trainer.measured(source) if trainer.is_one(source) else None


def is_log(source: Source) -> bool:
    """Return whether a file is the log of a trainer."""
    if source.kind != "log":
        return False
    return any(one.is_one(source) for one in (*logs.TRAINERS, trainer))
