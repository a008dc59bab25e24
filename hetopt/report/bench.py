"""The report of a suite: counts first, then gaps.

What was not solved is counted by how it ended, in every format.
"""

from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path

from ..bench import statistics
from ..bench.journal import Row
from ..bench.statistics import Entry, Summary, method_of
from ..files.best import known
from ..text.documents import Document
from . import words, writers
from .sheet import Cell, Section, Sheet, Table

NAME = "report"
_FAILED = ("crashed", "timeout", "out of memory", "refused")
INTRODUCTION = (
    "Gaps are relative to the strongest bound proved for the same data, by a row of "
    "this page or in the library's best known; rows without a bound are counted, but "
    "left out of the quantiles. Click a heading to sort."
)
FIELDS = (
    *("problem", "instance", "method", "backend", "seed", "status", "stop", "size"),
    *("size_unit", "objective", "unit", "bound", "bound_source", "proof"),
    *("gap_to_bound", "gap_to_best", "method_s", "wall_s", "reasons"),
    *("reference_bound", "reference_by", "best_known"),
)


@dataclass(frozen=True)
class Report:
    """Header and rows of a run, and what they say."""

    header: Row
    rows: list[Row]
    entries: list[Entry]
    summaries: list[Summary]

    @property
    def contradicted(self) -> list[Entry]:
        """Plans better than a bound that some row calls proved: somebody is wrong."""
        return [entry for entry in self.entries if entry.contradicted]

    @property
    def counts(self) -> str:
        """Solved and proved, and what was not, in one sentence."""
        found = self.entries
        solved = sum(entry.solved for entry in found)
        proved = sum(entry.proved for entry in found)
        parts = []
        if found:
            parts = [
                f"{words.counted(len(found), 'solve')}: {solved} with a plan, "
                f"{proved} proved"
            ]
        none = sum(entry.status == "infeasible" for entry in found)
        if none:
            parts[0] += f" ({none} proved infeasible)"
        for status in statistics.UNSOLVED:
            if count := sum(entry.status == status for entry in found):
                parts.append(f"{count} {status}")
        if wrong := len(self.contradicted):
            parts.append(f"{wrong} CONTRADICTED by a bound of the same data")
        if others := sum("commit" in row for row in self.rows):
            parts.append(f"{others} rows made at another commit than the first")
        missing = self.header.get("tasks", len(self.rows)) - len(self.rows)
        if missing > 0:
            parts.append(f"{missing} not run yet")
        return ", ".join(parts)


def report(header: Row, rows: list[Row]) -> Report:
    """Return what the rows of a folder say."""
    names = {row["instance"] for row in rows}
    kept = [one for name in sorted(names) if (one := known(name))]
    best = {b.digest: (b.value("bound"), b.value("objective")) for b in kept}
    found = statistics.entries(rows, best)
    return Report(header, rows, found, statistics.summaries(found))


def write(report: Report, folder: Path) -> None:
    """Write `report.html`, `.md`, `.csv` and `.json` to a folder."""
    made = sheet(report)
    for suffix in (".html", ".md", ".csv", ".json"):
        writers.write(made, document(report), folder / f"{NAME}{suffix}")


def document(report: Report) -> Document:
    """The report as one JSON document."""
    return {
        "header": report.header,
        "counts": report.counts,
        "summaries": [asdict(summary) for summary in report.summaries],
        "rows": [entry.row | _gaps(entry) for entry in report.entries],
    }


def _gaps(entry: Entry) -> Document:
    gaps = {"gap_to_bound": entry.gap_to_bound, "gap_to_best": entry.gap_to_best}
    return gaps | entry.references


def records(report: Report) -> Iterator[Document]:
    """Yield a record for each solve; raw numbers, None where nothing is known."""
    for entry in report.entries:
        row = entry.row | _gaps(entry)
        row["method_s"] = entry.seconds
        row["wall_s"] = entry.row.get("seconds", {}).get("wall")
        row["reasons"] = "; ".join(entry.row.get("reasons", []))
        yield {name: row.get(name) for name in FIELDS}


def sheet(report: Report) -> Sheet:
    """Return counts, and tables that sort."""
    counts = Section(notes=(machine(report.header),), in_files_only=True)
    introduction = Section(notes=(INTRODUCTION,), on_page_only=True)
    problems = [
        section
        for problem, entries in statistics.by_problem(report.entries).items()
        for section in _of_problem(report, problem, entries)
    ]
    sections = (counts, introduction, *problems, *_of_all(report))
    title = f"Suite {report.header['suite']}"
    return Sheet(
        title,
        sections,
        "benchmark suite",
        answer=report.counts,
        records=lambda: records(report),
    )


def _of_problem(
    report: Report, problem: str, entries: list[Entry]
) -> Iterator[Section]:
    """Yield what is known of one problem: counts, gaps and every solve."""
    mine = [s for s in report.summaries if s.problem == problem]
    yield Section(f"Summary: {problem}", table=_summary(mine))
    table = _gap_table(entries)
    title = f"Gaps to the proved bound: {problem}"
    yield Section(title, table=table, in_files_only=True)  # too wide for a terminal


def _of_all(report: Report) -> Iterator[Section]:
    if report.contradicted:
        table = _contradictions(report.contradicted)
        yield Section("Plans that a bound contradicts", table=table)
        one = "One of the two is wrong: a bug, or a solver that claims too much."
        yield Section(notes=(one,), on_page_only=True)
    if failed := [row for row in report.rows if row["status"] in _FAILED]:
        yield Section("Rows without an answer", table=_without_answer(failed))


def machine(header: Row) -> str:
    """On what the rows were measured, in one sentence."""
    there, versions = header.get("machine", {}), header.get("versions", {})
    listed = ", ".join(f"{name} {number}" for name, number in versions.items())
    changed = " with changes" if header.get("modified") else ""
    commit = header.get("commit")
    told = header.get("threads")
    threads = told if isinstance(told, list) else [told]
    built = f", commit {str(commit)[:12]}{changed}" if commit else ""
    return (
        f"{there.get('processor')}, {there.get('cores')} cores, "
        f"{there.get('memory_gib')} GiB, {there.get('system')}, Python "
        f"{there.get('python')}; hetopt {header.get('hetopt')}{built}; {listed}; "
        f"threads {', '.join(map(str, threads))}, started {header.get('started')}."
    )


# --- tables ----------------------------------------------------------------------


def _summary(found: Sequence[Summary]) -> Table:
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
            Cell.of(s.median_seconds, words.duration(s.median_seconds)),
        )
        for s in found
    ]
    return Table.of(headings, rows, texts=("method", "not solved"))


def _failures(one: Summary) -> Cell:
    counts = ", ".join(f"{n} {status}" for status, n in one.unsolved.items())
    failed = any(status in _FAILED for status in one.unsolved)
    return Cell(counts, counts, "bad" if failed else "") if counts else Cell.of(None)


def _gap_table(found: Sequence[Entry]) -> Table:
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


def _contradictions(found: Sequence[Entry]) -> Table:
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


def _without_answer(found: Sequence[Row]) -> Table:
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
