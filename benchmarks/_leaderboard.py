"""What is best known of each instance of the library: a table and two CSV files.

Made of the files that `hetopt bench best --update-best` keeps beside the instances;
`python benchmarks/run.py --leaderboard` writes them. An instance is easy where the
exact method proves it by itself, from nothing, within a minute on one core (the kept
rows of the suites `ALONE` say so), and hard where it is proved, but not so. MIPLIB's
open means that nobody has proved it; here, that none of the runs did that are kept.
"""

import csv
import json
from collections import Counter
from collections.abc import Iterator
from functools import cache
from io import StringIO
from statistics import median
from typing import Any

from _measuring import RESULTS

from hetopt import files
from hetopt.bench.child import SIZES
from hetopt.files import best
from hetopt.report import words
from hetopt.result import Proof, known_gap
from hetopt.text import markdown

BEGIN, END = "<!-- leaderboard: begin -->", "<!-- leaderboard: end -->"
COMMAND = "python benchmarks/run.py --leaderboard"
#: Suites that run the exact method alone, from nothing, and the seconds that are easy.
ALONE, EASY_S = ("proofs", "offers"), 60.0
_CHECKED = {
    Proof.CERTIFICATE: "by a certificate that other code follows",
    Proof.METHOD: "by the same method again only",
}
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
        proved, known = bound == objective, found.proved()
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
            "proof": known and known.proof.value,
            "gap": known_gap(objective, bound),
            "proved": proved,
            "status": "open" if not proved else "easy" if _is_easy(found) else "hard",
        }


def _is_easy(found: best.Best) -> bool:
    """Whether the exact method proves it by itself; as `ALONE` ran it."""
    return found.digest in _proved_alone()


@cache
def _proved_alone() -> frozenset[str]:
    """Digests of what the exact method proved from nothing."""
    digests = set()
    for suite in ALONE:
        lines = (RESULTS / suite / "rows.jsonl").read_text("utf-8").splitlines()
        for row in map(json.loads, lines[1:]):
            seconds = row["seconds"].get("solve", EASY_S)
            alone = row.get("method") == "exact" and seconds <= EASY_S
            if alone and row["status"] == "optimal":
                digests.add(row["digest"])
    return frozenset(digests)


def table(found: list[Row]) -> str:
    """The table in Markdown, with a line that counts."""
    proved = sum(row["proved"] for row in found)
    counts = Counter(row["status"] for row in found)
    gaps = [row["gap"] for row in found if row["gap"]] or [0.0]
    by = {proof: [row for row in found if row["proof"] == proof] for proof in Proof}
    head = [
        f"{len(found)} instances, {proved} proved optimal: {counts['easy']} easy,",
        f"{counts['hard']} hard; {counts['open']} open, that is, not proved in the",
        f"runs that are kept ({EASY_S:g} s, one core): median gap {median(gaps):.1%},",
        f"worst {100 * max(gaps):.1f}%. Bounds can be checked",
        ", ".join(f"{_CHECKED[p]}: {_counted(rows)}" for p, rows in by.items() if rows)
        + ".",
        f"By `{COMMAND}`.",
        "",
        "| instance | size | best known | by | no plan is better than | gap "
        "| checked by | status |",
        "| --- | ---: | ---: | --- | ---: | ---: | --- | --- |",
    ]
    return "\n".join([*head, *map(_line, found)])


def _counted(rows: list[Row]) -> str:
    """How many rows there are, and how many of them are proved optimal."""
    return f"{len(rows)} ({sum(row['proved'] for row in rows)} proved optimal)"


def _line(row: Row) -> str:
    place = f"../instances/{row['instance']}.best.json"
    cells = [
        f"`{row['instance']}`",
        words.NONE if row["size"] is None else f"{row['size']} {row['size_of']}",
        f"[{words.amount(row['best_known'], row['unit'])}]({place})",
        row["found_by"],
        words.amount(row["proved_bound"], row["unit"]),
        "proved" if row["proved"] else words.share(row["gap"]),
        row["proof"] or words.NONE,
        row["status"],
    ]
    return markdown.line(map(markdown.cell, cells))


def sheet(found: list[Row]) -> str:
    """The rows as CSV, with the numbers as they are kept."""
    text = StringIO()
    writer = csv.DictWriter(text, list(found[0]), lineterminator="\n")
    writer.writeheader()
    writer.writerows(found)
    return text.getvalue()
