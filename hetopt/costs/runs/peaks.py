"""Meanings of a measured run's memory, and of what a run leaves unsaid."""

from ..formulas import memory
from ..formulas.memory import Terms
from .rows import Run


def predicted_bytes(run: Run, found: Terms) -> float:
    """The bytes that the row's own statistic would show of these terms.

    `peak_gb` is what `nvidia-smi` shows, context and communicators included;
    `peak_gib` and `peak_reserved_mib` are what the allocator has, and
    `peak_allocated_mib` is tensors alone.
    """
    if run.peak_gib is None and run.peak_gb is not None:
        return sum(found.values())
    if run.peak_gib is not None or run.peak_reserved_mib is not None:
        return memory.reserved(found)
    if run.peak_allocated_mib is not None:
        return memory.allocated(found)
    return sum(found.values())


def unsaid(run: Run) -> str | None:
    """Return what decides the run's memory and is not told; None: all is."""
    if run.recompute is None:
        return "whether anything is recomputed"
    if "not stated" in run.recompute:
        return "how much is recomputed"
    return None
