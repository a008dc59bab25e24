"""Results in notebooks and as data frames say what the result says."""

import re
from html.parser import HTMLParser
from pathlib import Path
from xml.etree import ElementTree

import pytest
from PIL import Image
from typer.testing import CliRunner

import hetopt
from hetopt import cli
from hetopt.errors import Unsupported

PLACE = "tiny/two-nodes"


@pytest.fixture(scope="module")
def result() -> hetopt.Result:
    return hetopt.plan(PLACE, "megatron", limits=5)


@pytest.fixture(scope="module")
def report() -> hetopt.GapReport:
    return hetopt.compare(PLACE, ["megatron", "whale"], limits=5)


def test_frames_have_the_plan_stage_by_stage(result: hetopt.Result) -> None:
    frame = result.to_frame()
    assert result.plan is not None
    stages = [stage for one in result.plan.pipelines for stage in one.stages]
    assert len(frame) == len(stages)
    assert list(frame["layers"]) == [len(stage.span) for stage in stages]
    assert (frame["compute_s"] * 1e6).round().tolist() == frame["compute_us"].tolist()


def test_frames_of_gaps_have_a_row_a_method(report: hetopt.GapReport) -> None:
    frame = report.to_frame()
    assert list(frame["method"]) == [row.method for row in report.rows]
    assert list(frame["iteration_us"]) == [row.result.objective for row in report.rows]


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


def test_without_a_plan_there_are_no_rows() -> None:
    none = hetopt.plan("generated:tight_memory/4/1", "whale", limits=2)
    if none.plan is None:
        with pytest.raises(Unsupported, match="no plan"):
            none.to_frame()
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
