"""Suites from a checkout, into the results that are committed; and the README's table.

    python benchmarks/run.py SUITE [options of `hetopt bench`]    into results/SUITE
    python benchmarks/run.py --gaps                               README's table, anew

The same as `hetopt bench SUITE --out benchmarks/results/SUITE`. `--gaps` writes the
table between `<!-- gaps: begin -->` and `<!-- gaps: end -->` of README.md from the rows
of results/gaps, which the suite of that name makes.
"""

import sys
from pathlib import Path

import gap_table

from hetopt import cli
from hetopt.text import writing

FOLDER = Path(__file__).resolve().parent
README = FOLDER.parent / "README.md"


def main(words: list[str]) -> None:
    """Do what the command line asks for."""
    if not words or words[0] in ("-h", "--help"):
        print(__doc__)
    elif words == ["--gaps"]:
        text = README.read_text(encoding="utf-8")
        table = gap_table.made(FOLDER / "results" / "gaps")
        writing.write_text(README, gap_table.replaced(text, table))
        print(f"written to {README}")
    else:
        out = [] if "--out" in words else ["--out", str(FOLDER / "results" / words[0])]
        sys.argv = ["hetopt", "bench", *words, *out]
        cli.main()


if __name__ == "__main__":
    main(sys.argv[1:])
