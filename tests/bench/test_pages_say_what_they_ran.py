"""Every page of a paper names the command that makes it, and says on what that ran."""

import re

import pytest
from places import ROOT

from hetopt.bench.suites import tasks

RESULTS = ROOT / "benchmarks" / "results"
RAN = re.compile(r"^\*.*\bcores, load .* Python .*\*$", re.MULTILINE)


@pytest.mark.parametrize(
    "name", ["autohet", "espresso", "frenzy", "hexiscale", "metis", "recovery"]
)
def test_a_page_names_its_command_and_its_machine(name: str) -> None:
    page = (RESULTS / f"{name}.md").read_text(encoding="utf-8")
    assert f"`python benchmarks/{name}.py" in page
    assert (ROOT / "benchmarks" / f"{name}.py").is_file()
    assert RAN.search(page)
    words = re.findall(r"one thread|limit of time|limit \d+ s|time-limit", page)
    assert words


@pytest.mark.parametrize(
    "name",
    sorted({str(task.script) for task in tasks("papers")}),
)
def test_a_page_that_the_suite_makes_says_on_what(name: str) -> None:
    page = (RESULTS / f"{name}.md").read_text(encoding="utf-8")
    assert RAN.search(page), "written by `_measuring.publish`"
