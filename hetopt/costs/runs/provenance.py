"""Rows that a program computed, though they are called measured.

A measured time is never an exact line over the number of micro-batches: clocks jitter,
and the first and the last ones cost something of their own. A sum of traced layers is.
vTrain's table of single nodes, 1,440 rows, is one; that of several nodes is not.
"""

from collections import defaultdict
from collections.abc import Hashable, Sequence
from fractions import Fraction

from .rows import Run

#: Points that tell a line: any two are on one.
POINTS = 3
#: Significant digits that a time has at the least; coarser ones fall on lines by
#: chance.
DIGITS = 5
#: How far from its line a point may be, over its time: what a sum leaves of rounding.
EXACT = Fraction(1, 10**6)

_APART = frozenset(
    {"ga", "gbs", "iteration_s", "tokens_per_s_gpu", "notes", "citation"}
)


def computed(runs: Sequence[Run]) -> list[tuple[int, ...]]:
    """Return the rows that differ in micro-batches alone and lie on an exact line.

    Each tuple has the indexes of the rows of a line.
    """
    alike: dict[Hashable, list[int]] = defaultdict(list)
    for index, run in enumerate(runs):
        if run.iteration_s and _micro_batches(run) and _digits(run) >= DIGITS:
            alike[run.model_dump_json(exclude=set(_APART))].append(index)
    return [
        tuple(rows) for rows in alike.values() if _on_a_line([runs[i] for i in rows])
    ]


def _on_a_line(runs: Sequence[Run]) -> bool:
    points = sorted({(_micro_batches(run) or 0, _seconds(run)) for run in runs})
    if len({n for n, _ in points}) < POINTS:
        return False
    (first, start), (last, end) = points[0], points[-1]
    slope = (end - start) / (last - first)
    return all(abs(start + slope * (n - first) - s) <= EXACT * s for n, s in points)


def _seconds(run: Run) -> Fraction:
    return Fraction(repr(run.iteration_s))


def _micro_batches(run: Run) -> int | None:
    if run.ga is None and run.gbs and run.mbs and run.dp:
        return run.gbs // (run.mbs * run.dp)
    return run.ga


def _digits(run: Run) -> int:
    """Return the significant digits that a time is told with."""
    text = repr(run.iteration_s).lower().partition("e")[0]
    return len(text.replace(".", "").lstrip("0").rstrip("0"))
