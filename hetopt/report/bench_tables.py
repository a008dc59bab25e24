"""The tables of a suite's report."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from fractions import Fraction

from ..bench.journal import Row
from ..bench.statistics import Entry, Summary, method_of
from ..problems import Objective
from ..result import known_gap
from ..run_statistics import Growth, Spread
from . import words
from .sheet import Cell, Table

FAILED = ("crashed", "timeout", "out of memory", "refused")


def summary(found: Sequence[Summary]) -> Table:
    """Counts first; gaps of the rows that have a proved reference."""
    headings = (
        *("method", "rows", "solved", "proved", "not solved", "with a bound"),
        *("median gap", "90% within", "worst gap", "median time"),
        *("mean time (shifted geometric)", "mean primal integral"),
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
            _seconds(s.shifted_mean_seconds),
            _seconds(s.mean_primal_integral),
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


def seeds(found: Sequence[tuple[list[Entry], Spread]]) -> Table:
    """A method on an instance with several seeds: what its plans spread over."""
    rows = []
    for mine, one in found:
        row = next((e.row for e in mine if e.solved), mine[0].row)
        told = _spread_cells(one, str(row.get("unit", "")), mine[0].reference)
        rows.append((Cell.of(row["instance"]), Cell.of(mine[0].method), *told))
    headings = (
        *("instance", "method", "seeds", "with a plan", "best", "mean", "worst"),
        *("deviation", "best's gap to bound", "mean's gap to bound"),
    )
    return Table.of(headings, rows, texts=headings[:2])


def growth(
    laws: Mapping[str, Growth], points: Mapping[str, Sequence[tuple[float, float]]]
) -> Table:
    """Seconds as a power of the size, by least squares of the logarithms."""
    rows = []
    for method, law in laws.items():
        measured = [size for size, _ in points[method]]
        least, most = min(measured), max(measured)
        rows.append(
            (
                Cell.of(method),
                Cell.of(law.exponent, f"{law.exponent:.2f}"),
                Cell.of(most, f"{least:g} to {most:g}"),
                _seconds(law.at(least)),
                _seconds(law.at(most)),
            )
        )
    headings = ("method", "exponent", "measured at sizes", "fitted at the least")
    return Table.of((*headings, "at the most"), rows)


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


def solves(found: Sequence[Entry]) -> Table:
    """Every solve."""
    headings = (
        *("instance", "method", "size", "objective", "gap to bound"),
        *("gap to best plan", "time", "status"),
    )
    rows = [
        (
            Cell.of(entry.row["instance"]),
            Cell.of(entry.method),
            Cell.of(entry.row.get("size")),
            _amount(entry.row),
            _share(entry.gap_to_bound),
            _share(entry.gap_to_best),
            _seconds(entry.seconds),
            Cell.of(_outcome(entry.row)),
        )
        for entry in found
    ]
    return Table.of(headings, rows, texts=("instance", "method", "status"))


def _outcome(row: Row) -> str:
    reasons = "; ".join(row.get("reasons", []))
    return f"{row['status']}: {reasons[:300]}" if reasons else str(row["status"])


def _gap(entry: Entry | None) -> Cell:
    if entry is None:
        return Cell.of(None)
    if entry.gap_to_bound is not None:
        return _share(entry.gap_to_bound)
    return Cell(entry.status)


def _amount(row: Row) -> Cell:
    value = row.get("objective")
    return Cell.of(value, words.amount(value, str(row.get("unit", ""))))


def _share(value: float | None) -> Cell:
    return Cell.of(value, words.share(value))


def _seconds(value: float | None) -> Cell:
    return Cell.of(value, words.duration(value))


def _spread_cells(found: Spread, unit: str, bound: Objective | None) -> Iterator[Cell]:
    """Yield how many seeds there were, what plans they gave, and how far apart."""
    yield from map(Cell.of, (found.runs, found.planned))
    for value in (found.best, found.mean, found.worst):
        yield Cell.of(value, words.amount(value, unit))
    yield Cell.of(found.deviation, words.share(found.deviation))
    for value in (found.best, found.mean):
        far = None if value is None else known_gap(Fraction(value), bound)
        yield Cell.of(far, words.share(far))
