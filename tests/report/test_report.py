"""Reports: every number is the judge's, every name is shown as it is."""

import csv
import io
import re
from dataclasses import replace
from typing import Any

import pytest
from exporter_plans import pipeline
from flat import flat
from html_page import HOSTILE, Page

import hetopt
from hetopt import api
from hetopt.files import load_instance
from hetopt.gaps import GapReport
from hetopt.plans import Pipeline, TrainingPlan
from hetopt.report import front, gaps, plans, words, writers
from hetopt.result import Bound, Method, Result, Status, Stop
from hetopt.schema import Instance

TWO_STAGES = [pipeline(["node0:0", "node0:1", "node1:0"], [(3, 2, 1), (1, 1, 1)], 4, 1)]
TWO_PIPELINES = [
    pipeline(["node0:0"], [(4, 1, 1)], 3, 1),
    pipeline(["node1:1"], [(4, 1, 1)], 1, 1),
]


def made(
    plan: list[Pipeline], by: str = "someone", instance: Instance | None = None
) -> Result:
    """A result of a plan that is written by hand."""
    return Result(
        problem="training_plan",
        data=instance or load_instance("tiny/two-nodes"),
        method=Method(by, "heuristic"),
        status=Status.FEASIBLE,
        stop=Stop.FINISHED,
        plan=TrainingPlan(pipelines=tuple(plan)),
        bound=Bound(1000, "a guess"),
        seconds={"solve": 0.25},
    )


def none(by: str, reason: str) -> Result:
    """A result without a plan."""
    return replace(
        made(TWO_STAGES, by),
        status=Status.UNDECIDED,
        plan=None,
        evaluation=None,
        bound=None,
        reasons=(reason,),
    )


@pytest.fixture(scope="module")
def report() -> GapReport:
    """Two plans, one method without a plan, and a second instance."""
    other = load_instance("tiny/two-nodes").model_copy(update={"name": HOSTILE})
    return GapReport.of(
        [
            made(TWO_STAGES),
            made(TWO_PIPELINES, "other"),
            none("nobody", "no room: <b>12 MiB</b> short"),
            made(TWO_STAGES, "someone", other),
        ]
    )


@pytest.fixture(scope="module")
def html(report: GapReport) -> str:
    """The page of the report."""
    return writers.page(gaps.sheet(report))


def test_hostile_names_are_shown_and_not_run(html: str) -> None:
    assert len(Page(html).of("script")) == 1
    assert Page(html).of("b") == []
    assert "<script>alert(1)</script> & | `x` [y](z) " in Page(html).words
    assert "\x1b" not in html


def test_the_page_draws_every_plan_and_says_where_its_layers_are(html: str) -> None:
    found = Page(html)
    beside = "Planners and the proved bound"
    pictures = [title.partition(": ")[0] for title in found.pictures]
    assert pictures == [beside, "someone", "other", beside, "someone"]
    drawn = [one for one in found.of("details") if one.get("class") != "inner"]
    assert len(drawn) == 3
    assert all("open" in one for one in drawn)
    assert "2 × big on node0" in found.words


def boxes(result: Result) -> list[Any]:
    """What is drawn of a plan: stages, and the darker ends that are hops."""
    (axes,) = plans.drawing(result, plans.colours(["big", "small"])).axes
    return list(axes.patches)


def test_a_hop_is_the_end_of_its_box_and_the_next_stage_begins_behind_it() -> None:
    result = made(TWO_STAGES)
    (rows,) = result.evaluation.parts["stages"]
    first, hop, second = boxes(result)
    assert hop.get_width() * 1e3 == pytest.approx(rows[0]["hop_us"])
    ends = [box.get_x() + box.get_width() for box in (first, hop)]
    assert ends == pytest.approx([second.get_x()] * 2)


def test_the_comma_separated_numbers_are_the_reports(report: GapReport) -> None:
    table = list(csv.DictReader(io.StringIO(writers.records(gaps.sheet(report)))))
    for line, row in zip(table, report.rows, strict=True):
        assert line["instance"] == row.instance
        assert line["method"] == row.method
        objective = row.result.objective
        assert line["iteration_us"] == ("" if objective is None else str(objective))
        gap = row.gap_to_bound
        assert line["gap_to_bound"] == ("" if gap is None else str(gap))


def test_markdown_cells_keep_their_columns_whatever_the_names(
    report: GapReport,
) -> None:
    lines = writers.markdown(gaps.sheet(report)).splitlines()
    tables = [line for line in lines if line.startswith("|")]
    widths = {len(re.findall(r"(?<!\\)\|", line)) - 1 for line in tables}
    assert widths == {len(gaps.HEADINGS), 1 + len(gaps.SUMMARY_HEADINGS)}
    assert not any("<script>" in line or "<b>" in line for line in lines)


def test_the_headline_is_the_strongest_bound() -> None:
    strong = replace(made(TWO_PIPELINES), bound=Bound(2000, "a proof"))
    rows = GapReport.of([made(TWO_STAGES), strong]).rows
    assert gaps.headline(rows) == (
        "no plan is faster than 2.00 ms (proof: a proof; by this method only)"
    )
    asked = replace(strong, bound=Bound(2000, "cpsat dual of a_statement"))
    assert "by CP-SAT" in gaps.outcome(GapReport.of([asked]).rows[0])


@pytest.mark.parametrize(
    ("value", "unit", "shown"),
    [
        (26_312_345, "us", "26.31 s"),
        (31.4278, "USD", "31.43 USD"),
        (0.037590, "USD", "0.03759 USD"),
        (1234, "GFLOP/s", "1,234 GFLOP/s"),
        (None, "us", "–"),
    ],
)
def test_amounts_read_as_people_say_them(
    value: float | None, unit: str, shown: str
) -> None:
    assert words.amount(value, unit) == shown


def test_a_front_says_which_settings_its_plans_chose() -> None:
    plain = flat(hetopt.load("tiny/offers"), exclude_unset=True)
    costs = plain["workload"]["costs"]
    plain["requirements"] = {}
    chosen = {**plain, "workload": dict(plain["workload"])}
    chosen["workload"]["costs"] = {**costs, "activations": "standard", "zero": 1}
    chosen["workload"]["alternatives"] = {"recompute": ["none"], "zero": [0]}
    shown = {}
    for name, document in (("plain", plain), ("chosen", chosen)):
        found = api.frontier(document)
        assert found.points
        sheet = front.sheet(found)
        shown[name] = writers.records(sheet)
        assert ("settings" in writers.page(sheet)) is (name == "chosen")
    assert "recompute none" in shown["chosen"]
    assert "recompute" not in shown["plain"]
