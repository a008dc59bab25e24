"""The tables of a suite's report."""

from collections.abc import Sequence
from dataclasses import replace

from ..bench.journal import Row
from ..bench.statistics import Entry, Summary, method_of
from . import words
from .sheet import Cell, Table

FAILED = ("crashed", "timeout", "out of memory", "refused")


def summary(found: Sequence[Summary]) -> Table:
    """Counts first; gaps of the rows that have a proved reference."""
    headings = (
        *("method", "rows", "solved", "proved", "not solved", "with a bound"),
        *("median gap", "90% within", "worst gap", "median time"),
    )
    rows = [
        (
            *map(Cell.of, (s.method, s.rows, s.solved, s.proved)),
            _failures(s),
            Cell.of(s.referenced),
            _share(s.median_gap),
            _share(s.p90_gap),
            _share(s.worst_gap),
            _seconds(s.median_seconds),
        )
        for s in found
    ]
    return Table.of(headings, rows, texts=("method", "not solved"))


def _failures(one: Summary) -> Cell:
    """Return how many have no plan; that a planner found none in time is no failure."""
    counts = ", ".join(f"{n} {status}" for status, n in one.unsolved.items())
    failed = any(status in FAILED for status in one.unsolved)
    return Cell(counts, counts, "bad" if failed else "") if counts else Cell.of(None)


def gaps(found: Sequence[Entry]) -> Table:
    """An instance a row, a method a column: the gap, or how it ended."""
    methods = list(dict.fromkeys(entry.method for entry in found))
    cases: dict[str, dict[str, Entry]] = {}
    for entry in found:
        cases.setdefault(entry.case, {})[entry.method] = entry
    rows = [
        (Cell.of(case), *(_gap(mine.get(method)) for method in methods))
        for case, mine in cases.items()
    ]
    return Table.of(("instance", *methods), rows)


def contradictions(found: Sequence[Entry]) -> Table:
    """Plans better than a bound of the same data, which somebody calls proved."""
    rows = [
        (
            Cell.of(entry.row["instance"]),
            replace(Cell.of(entry.method), mark="bad"),
            Cell.of(entry.row.get("objective")),
            Cell.of(float(entry.reference or 0)),
        )
        for entry in found
    ]
    headings = ("instance", "method", "objective", "bound")
    return Table.of(headings, rows, texts=headings[:2])


def failures(found: Sequence[Row]) -> Table:
    """Rows that crashed, were ended or refused, and why."""
    rows = [
        (
            Cell.of(row["instance"]),
            Cell.of(method_of(row)),
            Cell.of(row["status"]),
            Cell.of("; ".join(row.get("reasons", []))),
        )
        for row in found
    ]
    headings = ("instance", "method", "status", "why")
    return Table.of(headings, rows, texts=headings)


def _gap(entry: Entry | None) -> Cell:
    if entry is None:
        return Cell.of(None)
    if entry.gap_to_bound is not None:
        return _share(entry.gap_to_bound)
    return Cell(entry.status)


def _share(value: float | None) -> Cell:
    return Cell.of(value, words.share(value))


def _seconds(value: float | None) -> Cell:
    return Cell.of(value, words.duration(value))
