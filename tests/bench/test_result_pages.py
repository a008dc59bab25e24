"""Pages of results say what made them, and name no bound that is known to be wrong.

`papers.md` is written by hand.
"""

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import pytest
from places import ROOT

BENCHMARKS = ROOT / "benchmarks"
RESULTS = BENCHMARKS / "results"
BY_HAND = "papers.md"
PAGES = sorted(p for p in RESULTS.rglob("*.md") if p.name != BY_HAND)
HAND = (RESULTS / BY_HAND).read_text(encoding="utf-8")
NAMED = sorted(set(re.findall(r"`((?:[a-z_0-9]+/)+[a-z_0-9.]*)`", HAND)))
MADE = re.compile(r"\*Made by \d\S*-dev \S+ \(\d{4}-\d\d-\d\d\)\.\*")
BOUND = re.compile(r"\bbound(, s|_s)$|^no plan is (faster|better) than", re.IGNORECASE)
AMOUNT = re.compile(r"([\d,]+)(?:\.(\d+))?(?: (ms|s))?")
IN_US = {"ms": 1_000, "s": 1_000_000, None: 1_000_000}


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(RESULTS)))
def test_a_page_says_below_its_title_what_made_it(page: Path) -> None:
    title, blank, made = page.read_text("utf-8").splitlines()[:3]
    assert title.startswith("# ")
    assert blank == ""
    assert MADE.fullmatch(made), "pages are written by `_measuring.publish`"


@pytest.mark.parametrize("path", NAMED)
def test_every_file_that_is_named_is_there(path: str) -> None:
    assert (ROOT / path).exists()


class Shown(NamedTuple):
    """A bound of a table: in us, and half of what its last digit stands for."""

    page: str
    instance: str
    us: float
    digit: float


def known() -> dict[str, tuple[float, float]]:
    """Best objective and bound in us, by name, also without the family."""
    found = {}
    for file in sorted((ROOT / "instances").rglob("*.best.json")):
        best = json.loads(file.read_text("utf-8"))
        if best["unit"] == "us" and best["bound"] is not None:
            pair = best["objective"], best["bound"]
            found[best["instance"]] = found[best["instance"].rpartition("/")[2]] = pair
    return found


def shown(page: Path, names: set[str]) -> Iterator[Shown]:
    """Every bound of an instance of the library in the tables of a page."""
    text = page.read_text("utf-8")
    columns: list[int] = []
    for line in text.splitlines():
        cells = [cell.strip(" `*") for cell in line.strip("| ").split("|")]
        if not line.startswith("|"):
            columns = []
        elif found := [i for i, cell in enumerate(cells) if BOUND.search(cell)]:
            columns = found
        name = next((cell for cell in cells[:2] if cell in names), None)
        if name is None or not line.startswith("|"):
            continue
        for value in (cells[i] for i in columns if i < len(cells)):
            if told := AMOUNT.fullmatch(value):
                scale = IN_US[told[3]]
                number = float(f"{told[1].replace(',', '')}.{told[2] or 0}")
                digit = scale * 10.0 ** -len(told[2] or "") / 2
                where = str(page.relative_to(ROOT))
                yield Shown(where, name, number * scale, digit)


def test_no_page_has_a_bound_above_the_best_plan_known() -> None:
    best, pages = known(), [ROOT / "README.md", BENCHMARKS / "README.md", *PAGES]
    every = (one for page in pages for one in shown(page, set(best)))
    wrong = [one for one in every if one.us - one.digit > best[one.instance][0]]
    assert wrong == []
