"""Suites from a checkout, into the results that are committed; and tables of the page.

    python benchmarks/run.py SUITE [options of `hetopt bench`]    into results/SUITE
    python benchmarks/run.py --gaps               the table of planners beside the bound
    python benchmarks/run.py --leaderboard           what is best known, page and CSV
    python benchmarks/run.py --proved        what statements prove, on their page

The same as `hetopt bench SUITE --out benchmarks/results/SUITE`. `--gaps` writes the
table between `<!-- gaps: begin -->` and `<!-- gaps: end -->` of README.md in this
folder from the rows of results/gaps, which the suite of that name makes, and leaves of
their plans what a plan file has;
`--leaderboard` writes its other table and results/leaderboard.csv from what is kept
beside the instances (`hetopt bench best --update-best`). `--proved` writes the table of
results/statements.md into formulations/README.md.
"""

import re
import sys
from pathlib import Path

import _gap_table
import _leaderboard
from _measuring import RESULTS, publish

from hetopt import cli
from hetopt.text import writing

FOLDER = Path(__file__).resolve().parent
README = FOLDER / "README.md"
STATEMENTS = FOLDER.parent / "formulations" / "README.md"
PROVED = re.compile(r"^\| statement \| instances \|.*\n(?:\|.*\n)+", re.MULTILINE)


def main(words: list[str]) -> None:
    """Do what the command line asks for."""
    if not words or words[0] in ("-h", "--help"):
        print(__doc__)
    elif words == ["--gaps"]:
        text = README.read_text(encoding="utf-8")
        _gap_table.keep_plans(FOLDER / "results" / "gaps")
        table = _gap_table.made(FOLDER / "results" / "gaps")
        writing.write_text(README, _gap_table.replaced(text, table))
        print(f"written to {README}")
    elif words == ["--leaderboard"]:
        _write_leaderboard()
    elif words == ["--proved"]:
        writing.write_text(STATEMENTS, with_proved(STATEMENTS.read_text("utf-8")))
    else:
        out = [] if "--out" in words else ["--out", str(FOLDER / "results" / words[0])]
        sys.argv = ["hetopt", "bench", *words, *out]
        try:
            cli.main()
        finally:
            if out and (FOLDER / "results" / words[0] / "report.md").is_file():
                date_report(words[0])


def with_proved(text: str) -> str:
    """Return the page of the formulations with the table of results/statements.md."""
    page = (RESULTS / "statements.md").read_text(encoding="utf-8")
    table = PROVED.search(page)
    return text if table is None else PROVED.sub(lambda _: table.group(), text, count=1)


def date_report(suite: str) -> None:
    """Say in the report of a suite what made its rows, and when."""
    report = f"{suite}/report.md"
    text = (RESULTS / report).read_text(encoding="utf-8")
    publish(report, text, f"{suite}/rows.jsonl")


def _write_leaderboard() -> None:
    found = list(_leaderboard.rows())
    page, sheet = FOLDER / "README.md", FOLDER / "results" / "leaderboard.csv"
    marks = (_leaderboard.BEGIN, _leaderboard.END)
    text = page.read_text(encoding="utf-8")
    table = _leaderboard.table(found)
    writing.write_text(page, _gap_table.replaced(text, table, marks))
    writing.write_text(sheet, _leaderboard.sheet(found))
    print(f"written to {page} and {sheet}")


if __name__ == "__main__":
    main(sys.argv[1:])
