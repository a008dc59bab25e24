"""Results in notebooks say what the result says."""

import re
from html.parser import HTMLParser
from xml.etree import ElementTree

import pytest

import hetopt

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
    none = hetopt.plan("generated:tight_memory/4/1", "whale", limits=2)
    for shown in (result, report, grouping, none):
        text = shown._repr_html_()
        HTMLParser(convert_charrefs=True).feed(text)
        assert "<script" not in text
        for drawing in re.findall(r"<svg.*?</svg>", text, re.S):
            ElementTree.fromstring(drawing.replace("xlink:href", "href"))
    assert "<svg" in result._repr_html_()
    assert "<svg" in report._repr_html_()
