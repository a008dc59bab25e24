"""The report of a suite: counts first, then gaps, then pictures.

What was not solved is counted by how it ended, in every format.
"""

import csv
import io
import json
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from fractions import Fraction
from pathlib import Path
from typing import Any

from rich.console import RenderableType

from ..bench import best, statistics
from ..bench.journal import Row
from ..bench.statistics import Entry, Summary
from ..files import write_text
from . import bench_page, words
from .bench_tables import Table, rich_table
from .text import escaped

NAME = "report"


@dataclass(frozen=True)
class Report:
    """Header and rows of a run, and what they say."""

    folder: Path
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
            parts = [f"{len(found)} solves: {solved} with a plan, {proved} proved"]
        none = sum(entry.status == "infeasible" for entry in found)
        if none:
            parts[0] += f" ({none} of them that there is none)"
        for status in statistics.UNSOLVED:
            if count := sum(entry.status == status for entry in found):
                parts.append(f"{count} {status}")
        if wrong := len(self.contradicted):
            parts.append(f"{wrong} CONTRADICTED by a bound of the same data")
        tables = [row for row in self.rows if row["kind"] == "figures"]
        if tables:
            parts.append(f"{len(tables)} tables of figures")
        if lost := sum(row["status"] != "figures" for row in tables):
            parts.append(f"{lost} of them without an answer")
        if others := sum("commit" in row for row in self.rows):
            parts.append(f"{others} rows made at another commit than the first")
        missing = self.header.get("tasks", len(self.rows)) - len(self.rows)
        if missing > 0:
            parts.append(f"{missing} not run yet")
        return ", ".join(parts)


def report(folder: Path, header: Row, rows: list[Row]) -> Report:
    """What the rows of a folder say."""
    found = statistics.entries(rows, _known(rows))
    return Report(folder, header, rows, found, statistics.summaries(found))


def _known(rows: list[Row]) -> dict[str, tuple[Fraction | None, Fraction | None]]:
    """What the library knows best of the rows' instances."""
    names = {row["instance"] for row in rows if row["kind"] == "solve"}
    found = [known for name in sorted(names) if (known := best.known(name))]
    return {b.digest: (b.value("bound"), b.value("objective")) for b in found}


def write(made: Report, folder: Path) -> None:
    """Write `report.html`, `.md`, `.csv` and `.json` to a folder, each whole."""
    text = json.dumps(document(made), indent=1, allow_nan=False) + "\n"
    write_text(folder / f"{NAME}.json", text)
    write_text(folder / f"{NAME}.csv", comma_separated(made))
    write_text(folder / f"{NAME}.md", markdown(made))
    write_text(folder / f"{NAME}.html", bench_page.html(made))


def document(made: Report) -> dict[str, Any]:
    """The report as one JSON document."""
    return {
        "header": made.header,
        "counts": made.counts,
        "summaries": [asdict(summary) for summary in made.summaries],
        "growth": [
            {"problem": problem, "method": method, **asdict(law)}
            for problem, found in statistics.by_problem(made.entries).items()
            for method, law in statistics.growths(found).items()
        ],
        "rows": [
            {**entry.row, "gap_to_bound": entry.gap_to_bound}
            | {"gap_to_best": entry.gap_to_best}
            for entry in made.entries
        ],
        "figures": list(statistics.figures(made.rows)),
    }


FIELDS = (
    *("problem", "instance", "method", "backend", "seed", "status", "stop", "size"),
    *("size_unit", "objective", "unit", "bound", "bound_source", "gap_to_bound"),
    *("gap_to_best", "method_s", "wall_s", "reasons"),
)


def comma_separated(made: Report) -> str:
    """One line a solve; raw numbers, empty where nothing is known."""
    buffer = io.StringIO()
    writer = csv.DictWriter(buffer, FIELDS, lineterminator="\n", extrasaction="ignore")
    writer.writeheader()
    for entry in made.entries:
        derived = {
            "gap_to_bound": entry.gap_to_bound,
            "gap_to_best": entry.gap_to_best,
            "method_s": entry.seconds,
            "wall_s": entry.row.get("seconds", {}).get("wall"),
            "reasons": "; ".join(entry.row.get("reasons", [])),
        }
        row = {**entry.row, **derived}
        writer.writerow({name: words.cell(value) for name, value in row.items()})
    return buffer.getvalue()


def markdown(made: Report) -> str:
    """Headings and tables; pictures are on the page."""
    out = [f"# Suite {escaped(made.header['suite'])}", "", f"{made.counts}.", ""]
    out += [escaped(bench_page.machine(made.header)), ""]
    for title, table in _every_table(made):
        out += [f"## {escaped(title)}", "", *table.markdown(), ""]
    return "\n".join(out)


def tables(made: Report) -> Iterator[RenderableType]:
    """Counts, summaries, growth and figures for a terminal."""
    yield made.counts
    for title, table in _every_table(made):
        if not title.startswith("Gaps"):
            yield ""
            yield title
            yield rich_table(table)


def _every_table(made: Report) -> Iterator[tuple[str, Table]]:
    from . import bench_tables

    for problem, found in statistics.by_problem(made.entries).items():
        title = words.plain(problem)
        mine = [s for s in made.summaries if s.problem == problem]
        yield f"Summary: {title}", bench_tables.summary(mine)
        laws = statistics.growths(found)
        if laws:
            yield (
                f"Time against size: {title}",
                bench_tables.growth(laws, statistics.sizes(found)),
            )
        yield f"Gaps to the proved bound: {title}", bench_tables.gaps(found)
    if figures := list(statistics.figures(made.rows)):
        yield "Figures of the papers", bench_tables.figures(figures)
    if made.contradicted:
        title = "Plans that a bound contradicts"
        yield title, bench_tables.contradictions(made.contradicted)
    if failures := [row for row in made.rows if row["status"] in bench_tables.FAILED]:
        yield "Rows without an answer", bench_tables.failures(failures)
