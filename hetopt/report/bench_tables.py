"""The tables of a suite's report, as cells of words with a value to sort by."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from rich import table as rich_tables
from rich.text import Text

from ..bench.journal import Row
from ..bench.statistics import Entry, Summary, method_of
from ..performance_profiles import Growth
from . import words
from .text import escaped

FAILED = ("crashed", "timeout", "out of memory", "refused")


@dataclass(frozen=True)
class Cell:
    """Words, and what they are sorted by: None where nothing is known."""

    text: str
    value: Any = None

    @classmethod
    def of(cls, value: Any, text: str | None = None) -> "Cell":
        """A cell of a value; a dash where there is none."""
        if value is None:
            return cls(words.NONE)
        if isinstance(value, str):
            value = words.plain(value)
        return cls(words.plain(str(value) if text is None else text), value)


@dataclass(frozen=True)
class Table:
    """Headings, which of them are of numbers, and rows of cells."""

    headings: tuple[str, ...]
    numeric: tuple[bool, ...]
    rows: tuple[tuple[Cell, ...], ...]

    def markdown(self) -> list[str]:
        """Lines of Markdown."""
        rule = ["---:" if right else "---" for right in self.numeric]
        body = [[escaped(cell.text) for cell in row] for row in self.rows]
        listed = [[escaped(heading) for heading in self.headings], rule, *body]
        return [f"| {' | '.join(line)} |" for line in listed]


def rich_table(table: Table) -> rich_tables.Table:
    """The table for a terminal."""
    made = rich_tables.Table(box=None, pad_edge=False, header_style="bold")
    for heading, right in zip(table.headings, table.numeric, strict=True):
        made.add_column(heading, justify="right" if right else "left", overflow="fold")
    for row in table.rows:
        made.add_row(*(Text(cell.text) for cell in row))
    return made


def _table(headings: Mapping[str, bool], rows: Sequence[Sequence[Cell]]) -> Table:
    return Table(tuple(headings), tuple(headings.values()), tuple(map(tuple, rows)))


def summary(found: Sequence[Summary]) -> Table:
    """Counts first; gaps of the rows that have a proved reference."""
    headings = {
        **{"method": False, "rows": True, "solved": True, "proved": True},
        **{"not solved": False, "with a bound": True, "median gap": True},
        **{"90 % within": True, "worst gap": True, "median time": True},
    }
    rows = [
        (
            Cell.of(s.method),
            Cell.of(s.rows),
            Cell.of(s.solved),
            Cell.of(s.proved),
            Cell.of(
                ", ".join(f"{n} {status}" for status, n in s.unsolved.items()) or None
            ),
            Cell.of(s.referenced),
            _share(s.median_gap),
            _share(s.p90_gap),
            _share(s.worst_gap),
            _seconds(s.median_seconds),
        )
        for s in found
    ]
    return _table(headings, rows)


def gaps(found: Sequence[Entry]) -> Table:
    """An instance a row, a method a column: the gap, or how it ended."""
    methods = list(dict.fromkeys(entry.method for entry in found))
    cases: dict[str, dict[str, Entry]] = {}
    for entry in found:
        case = f"{entry.row['instance']}" + (
            f", seed {entry.row['seed']}" if entry.row["seed"] else ""
        )
        cases.setdefault(case, {})[entry.method] = entry
    rows = [
        (Cell.of(case), *(_gap(mine.get(method)) for method in methods))
        for case, mine in cases.items()
    ]
    return _table({"instance": False, **dict.fromkeys(methods, True)}, rows)


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
    headings = {"method": False, "exponent": True, "measured at sizes": True}
    return _table({**headings, "fitted at the least": True, "at the most": True}, rows)


def figures(found: Sequence[Row]) -> Table:
    """Ours beside the paper's, and why they differ; a reason is told once in a row."""
    reasons = [f.get("reason") for f in found]
    told = [a != b for a, b in zip(reasons, [None, *reasons], strict=False)]
    headings = {
        **{"paper": False, "figure": False, "ours": True, "the paper's": True},
        **{"ratio": True, "unit": False, "why they differ": False},
    }
    rows = [
        (
            Cell.of(f.get("paper")),
            Cell.of(f.get("figure")),
            _figure(f.get("ours")),
            _figure(f.get("theirs")),
            Cell.of(f["ratio"], f"{f['ratio']:.3g}")
            if f.get("ratio")
            else Cell.of(None),
            Cell.of(f.get("unit")),
            Cell.of(f.get("reason")) if new else Cell("″"),
        )
        for f, new in zip(found, told, strict=True)
    ]
    return _table(headings, rows)


def contradictions(found: Sequence[Entry]) -> Table:
    """Plans better than a bound of the same data, which somebody calls proved."""
    rows = [
        (
            Cell.of(entry.row["instance"]),
            Cell.of(entry.method),
            Cell.of(entry.row.get("objective")),
            Cell.of(float(entry.reference or 0)),
        )
        for entry in found
    ]
    headings = {"instance": False, "method": False, "objective": True, "bound": True}
    return _table(headings, rows)


def failures(found: Sequence[Row]) -> Table:
    """Rows that crashed, were ended or refused, and why."""
    rows = [
        (
            Cell.of(row.get("instance") or row.get("script")),
            Cell.of(method_of(row) if row["kind"] == "solve" else row.get("table")),
            Cell.of(row["status"]),
            Cell.of("; ".join(row.get("reasons", []))),
        )
        for row in found
    ]
    return _table(
        {"instance": False, "method": False, "status": False, "why": False}, rows
    )


def solves(found: Sequence[Entry]) -> Table:
    """Every solve."""
    headings = {
        **{"instance": False, "method": False, "size": True, "objective": True},
        **{"gap to bound": True, "gap to best plan": True, "time": True},
        **{"status": False},
    }
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
    return _table(headings, rows)


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


def _figure(value: Any) -> Cell:
    if isinstance(value, float):
        return Cell.of(value, f"{value:.4g}")
    return Cell.of(value)
