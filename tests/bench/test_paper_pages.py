"""The page of the papers names files that are there, and has the figures of their rows.

It is written by hand; `benchmarks/_headlines.py` makes the words with figures from the
rows as they are, and prints those that the page has otherwise.
"""

import re
import sys
from collections.abc import Iterator
from importlib import import_module
from types import ModuleType

import pytest
from places import ROOT

RESULTS = ROOT / "benchmarks" / "results"
PAGE = (RESULTS / "papers.md").read_text(encoding="utf-8")
PATHS = sorted(set(re.findall(r"`((?:[a-z_0-9]+/)+[a-z_0-9.]*)`", PAGE)))


@pytest.mark.parametrize("path", PATHS)
def test_every_file_that_is_named_is_there(path: str) -> None:
    found = RESULTS if path.startswith("papers/") else ROOT
    assert (found / path).exists()


@pytest.fixture(scope="module")
def headlines() -> Iterator[ModuleType]:
    """The script, which is no package."""
    sys.path.insert(0, str(ROOT / "benchmarks"))
    try:
        yield import_module("_headlines")
    finally:
        sys.path.pop(0)


@pytest.mark.parametrize(
    "paper", ["Espresso", "Frenzy", "AutoHet", "Metis", "HexiScale"]
)
def test_figures_of_the_page_are_those_of_the_rows(
    paper: str, headlines: ModuleType
) -> None:
    found = list(headlines.WORDS[paper]())
    assert len(found) >= 5
    why = "mend benchmarks/results/papers.md: the rows say"
    assert headlines.missing(found) == [], why
    assert headlines.missing([re.sub(r"\d", "0", one) for one in found]), "all zeros"


@pytest.mark.slow
@pytest.mark.parametrize("paper", ["Espresso", "Metis", "Sailor"])
def test_figures_of_no_page_come_out_again(paper: str, headlines: ModuleType) -> None:
    assert headlines.missing(headlines.ANEW[paper]()) == []


@pytest.mark.parametrize("name", ["espresso", "hexiscale"])
def test_every_section_says_on_what_it_ran(name: str) -> None:
    page = (RESULTS / f"{name}.md").read_text(encoding="utf-8")
    sections = page.split("\n## ")[1:]
    assert sections
    for section in sections:
        assert re.search(r"\n\*Run \d{4}-.*limit .*cores.*Python.*\*", section), section
    assert f"`python benchmarks/{name}.py" in page
