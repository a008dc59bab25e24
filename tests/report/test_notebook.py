"""Results in notebooks say what the result says."""

import re
from html.parser import HTMLParser
from pathlib import Path
from xml.etree import ElementTree

import pytest
from PIL import Image
from typer.testing import CliRunner

import hetopt
from hetopt import cli

PLACE = "tiny/two-nodes"


@pytest.fixture(scope="module")
def result() -> hetopt.Result:
    return hetopt.plan(PLACE, "megatron", limits=5)


@pytest.fixture(scope="module")
def report() -> hetopt.GapReport:
    return hetopt.compare(PLACE, ["megatron", "whale"], limits=5)


def test_notebooks_show_well_formed_pieces(
    result: hetopt.Result, report: hetopt.GapReport
) -> None:
    grouping = hetopt.solve("generated:grouping/4/1", limits=5)
    for shown in (result, report, grouping):
        text = shown._repr_html_()
        HTMLParser(convert_charrefs=True).feed(text)
        assert "<script" not in text
        for drawing in re.findall(r"<svg.*?</svg>", text, re.S):
            ElementTree.fromstring(drawing.replace("xlink:href", "href"))
    assert "<svg" in result._repr_html_()
    assert report._repr_html_().count("<table>") == 1


def test_a_result_without_a_plan_is_shown_too() -> None:
    none = hetopt.plan("generated:tight_memory/4/1", "whale", limits=2)
    assert none._repr_html_()


@pytest.mark.parametrize("suffix", ["png", "svg"])
def test_gaps_are_drawn_beside_the_bound(suffix: str, tmp_path: Path) -> None:
    out = tmp_path / f"gaps.{suffix}"
    words = ["compare", PLACE, "generated:equal/4/1", "--planners", "megatron,whale"]
    told = CliRunner().invoke(
        cli.app, [*words, "--time-limit", "2", "--out", str(out), "--json"]
    )
    assert told.exit_code == 0, told.output
    if suffix == "png":
        with Image.open(out) as drawn:
            assert min(drawn.size) > 200
    else:
        assert ElementTree.parse(out).getroot().tag.endswith("svg")
