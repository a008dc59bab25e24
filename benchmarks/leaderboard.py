"""What is best known of each instance of the library: a table and a CSV file.

Made of the files that `hetopt bench best --update-best` keeps beside the instances;
`python benchmarks/run.py --leaderboard` writes both.
"""

import csv
from collections.abc import Iterator
from io import StringIO
from statistics import median
from typing import Any

from hetopt import files
from hetopt.bench import best
from hetopt.bench.child import SIZES
from hetopt.report import words
from hetopt.result import known_gap
from hetopt.text import markdown

BEGIN, END = "<!-- leaderboard: begin -->", "<!-- leaderboard: end -->"
COMMAND = "python benchmarks/run.py --leaderboard"
Row = dict[str, Any]


def rows() -> Iterator[Row]:
    """A row an instance, by name; what is not known is None."""
    for name in best.names():
        found = best.known(name)
        if found is None:  # kept for other data than the instance of now
            continue
        objective, bound = found.value("objective"), found.value("bound")
        problem, data = files.load_problem(name)
        of, size = SIZES.get(problem, (None, None))
        proved = bound == objective
        yield {
            "instance": name,
            "problem": problem,
            "size": None if size is None else size(data),
            "size_of": of,
            "sense": found.sense,
            "unit": found.unit,
            "best_known": found.objective,
            "found_by": found.found_by.method,
            "found_on": found.found_by.date,
            "proved_bound": found.bound,
            "bound_by": found.bound_by and found.bound_by.method,
            "bound_on": found.bound_by and found.bound_by.date,
            "bound_source": found.bound_source,
            "gap": known_gap(objective, bound),
            "proved": proved,
        }


def table(found: list[Row]) -> str:
    """The table in Markdown, with a line that counts."""
    proved = sum(row["proved"] for row in found)
    gaps = [row["gap"] for row in found if row["gap"]] or [0.0]
    head = [
        f"{len(found)} instances, {proved} proved optimal. Of those with a gap, half",
        f"are within {median(gaps):.1%}, all within {max(gaps):.0%}. By `{COMMAND}`.",
        "",
        "| instance | size | best known | by | no plan is better than | gap |",
        "| --- | ---: | ---: | --- | ---: | ---: |",
    ]
    return "\n".join([*head, *map(_line, found)])


def _line(row: Row) -> str:
    cells = [
        f"`{row['instance']}`",
        words.NONE if row["size"] is None else f"{row['size']} {row['size_of']}",
        words.amount(row["best_known"], row["unit"]),
        row["found_by"],
        words.amount(row["proved_bound"], row["unit"]),
        "proved" if row["proved"] else words.share(row["gap"]),
    ]
    return markdown.line(map(markdown.cell, cells))


def sheet(found: list[Row]) -> str:
    """The rows as CSV, with the numbers as they are kept."""
    text = StringIO()
    writer = csv.DictWriter(text, list(found[0]), lineterminator="\n")
    writer.writeheader()
    writer.writerows(found)
    return text.getvalue()
