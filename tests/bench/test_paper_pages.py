"""The page of the papers names files that are there, and says what each page ran."""

import re

import pytest
from places import ROOT

RESULTS = ROOT / "benchmarks" / "results"
PAGE = (RESULTS / "papers.md").read_text(encoding="utf-8")
PATHS = sorted(set(re.findall(r"`((?:[a-z_0-9]+/)+[a-z_0-9.]*)`", PAGE)))


@pytest.mark.parametrize("path", PATHS)
def test_every_file_that_is_named_is_there(path: str) -> None:
    found = RESULTS if path.startswith("papers/") else ROOT
    assert (found / path).exists()


@pytest.mark.parametrize("name", ["espresso", "hexiscale"])
def test_every_section_says_on_what_it_ran(name: str) -> None:
    page = (RESULTS / f"{name}.md").read_text(encoding="utf-8")
    sections = page.split("\n## ")[1:]
    assert sections
    for section in sections:
        assert re.search(r"\n\*Run \d{4}-.*limit .*cores.*Python.*\*", section), section
    assert f"`python benchmarks/{name}.py" in page
