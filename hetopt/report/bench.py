"""The report of a suite: counts first, then gaps, then pictures.

What was not solved is counted by how it ended, in every format.
"""

import csv
import io
import json
from collections.abc import Iterator
from dataclasses import asdict
from pathlib import Path
from typing import Any

from rich.console import RenderableType

from ..bench import statistics
from ..text.writing import write_text
from . import bench_page, words
from .bench_summary import Report
from .bench_tables import Table, rich_table
from .text import escaped

NAME = "report"


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
