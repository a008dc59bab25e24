"""The table of what is best known, and its CSV file, say what is kept."""

import csv
import json
import re
from fractions import Fraction
from pathlib import Path

import _leaderboard as leaderboard
import pytest
from places import INSTANCES, ROOT

FOLDER = ROOT / "benchmarks"
PAGE = (FOLDER / "README.md").read_text("utf-8")
SHEET = FOLDER / "results" / "leaderboard.csv"


@pytest.fixture(scope="module")
def rows() -> dict[str, dict[str, str]]:
    with SHEET.open(encoding="utf-8") as file:
        return {row["instance"]: row for row in csv.DictReader(file)}


def test_page_and_sheet_are_what_the_command_writes() -> None:
    found = list(leaderboard.rows())
    table, sheet = leaderboard.table(found), leaderboard.sheet(found)
    again = "run `python benchmarks/run.py --leaderboard`"
    kept = re.search(r"leaderboard: begin -->\n(.*?)\n<!-- leaderb", PAGE, re.S)
    assert kept[1] == table, again
    assert SHEET.read_text("utf-8") == sheet, again


def test_every_row_is_what_its_file_says(rows: dict[str, dict[str, str]]) -> None:
    """Read from the files themselves, by nothing that made the sheet."""
    paths = {
        f"{path.parent.name}/{path.name.removesuffix('.best.json')}": path
        for path in INSTANCES.glob("*/*.best.json")
    }
    assert set(rows) == set(paths)
    for name, path in paths.items():
        kept, row = json.loads(path.read_text("utf-8")), rows[name]
        assert float(row["best_known"]) == pytest.approx(kept["objective"])
        assert row["found_by"] == kept["found_by"]["method"]
        line = rf"^\| `{re.escape(name)}` \|.*\]\(\.\./instances/{name}\.best\.json\)"
        assert re.search(line, PAGE, re.M)
        assert (row["status"] == "open") == (row["proved"] != "True")
        if "bound" not in kept:
            assert row["proved_bound"] == row["gap"] == ""
            continue
        best, bound = Fraction(kept["objective"]), Fraction(kept["bound"])
        assert float(row["gap"]) == pytest.approx(float(abs(best - bound) / abs(bound)))
        assert (row["proved"] == "True") == (best == bound)


def test_what_is_easy_was_proved_by_the_exact_method_alone(
    rows: dict[str, dict[str, str]],
) -> None:
    proofs = (FOLDER / "results" / "proofs" / "rows.jsonl").read_text("utf-8")
    alone = {
        row["instance"]: row["status"] == "optimal"
        for row in map(json.loads, proofs.splitlines()[1:])
    }
    easy = {name for name, row in rows.items() if row["status"] == "easy"}
    for name, row in rows.items():
        if row["problem"] == "training_plan":
            assert (name in easy) == (alone[name] and row["proved"] == "True")
    assert easy


def test_every_page_of_results_is_named(rows: dict[str, dict[str, str]]) -> None:
    pages = {
        str(path.relative_to(FOLDER)) for path in (FOLDER / "results").rglob("*.md")
    }
    linked = {Path(target).as_posix() for target in re.findall(r"\]\((.+?)\)", PAGE)}
    assert pages - linked == set()
    entries = set(re.findall(r"^@\w+\{(\w+),$", PAGE, re.M))
    assert entries == {name.partition("/")[0] for name in rows}
