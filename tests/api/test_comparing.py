"""`compare` on every problem: all methods in rows, and gaps to what is known."""

import json
from pathlib import Path
from typing import Any

import pytest
from html_page import Page
from random_data import tiny

import hetopt
from hetopt import registry
from hetopt.errors import MixedData, UnknownName, Unsupported
from hetopt.gaps import GapReport
from hetopt.report import gaps, writers
from hetopt.result import Status

SUBPROBLEMS = ("device_grouping", "layer_partition", "provisioning")
NAME = "tiny/two-nodes"


@pytest.mark.parametrize("problem", SUBPROBLEMS)
@pytest.mark.parametrize("seed", range(2))
def test_all_proved_rows_of_a_problem_agree_and_no_planner_beats_them(
    problem: str, seed: int
) -> None:
    report = hetopt.compare(tiny(problem, seed), limits=20)
    labels = [row.method for row in report.rows]
    assert len(set(labels)) == len(labels) - labels.count(problem) + 1
    proved = [r.result for r in report.rows if r.result.status is Status.OPTIMAL]
    refuted = [r.result for r in report.rows if r.result.status is Status.INFEASIBLE]
    assert len({result.objective for result in proved}) == bool(proved)
    assert not (proved and refuted)
    assert len(proved) + len(refuted) >= 4
    for row in report.rows:
        if row.result.plan is None:
            assert row.gap_to_bound is None
        else:
            assert row.gap_to_bound >= 0


def methods(report: GapReport) -> dict[str, int]:
    """How many rows are planners, statements and exact methods."""
    found = {"planner": 0, "statement": 0, "exact": 0}
    for row in report.rows:
        method = row.result.method
        stated = method.formulation is not None
        kind = "statement" if stated else "exact" if method.kind == "exact" else None
        found[kind or "planner"] += 1
    return found


@pytest.mark.parametrize(
    ("problem", "options"),
    [
        ("device_grouping", {"tensor_parallel": 2}),
        ("layer_partition", {"tensor_parallel": 2}),
        ("job_round", {}),
        ("one_pipeline", {}),
        ("training_plan", {}),
        ("provisioning", {}),
    ],
)
def test_every_kind_of_method_is_a_row_of_a_problem_of_an_instance(
    problem: str, options: dict[str, Any]
) -> None:
    kinds = hetopt.api.methods_for(problem)
    report = hetopt.compare(
        NAME, problem=problem, options=options, backends=["cpsat"], limits=5
    )
    assert {row.instance for row in report.rows} == {NAME}
    carried = [x for x in kinds["formulations"] if "cpsat" in hetopt.api.carriers(x)]
    assert methods(report) == {
        "planner": len(kinds["planners"]),
        "statement": len(carried),
        "exact": 1,
    }
    for row in report.rows:
        assert row.result.problem == problem


def test_methods_are_chosen_by_name_and_left_out() -> None:
    data = tiny("device_grouping", 3)
    report = hetopt.compare(
        data,
        ["strongest_first"],
        statements=["device_grouping_counts"],
        backends=["scip", "pulp"],
        exact=False,
    )
    assert [row.method for row in report.rows] == [
        "strongest_first",
        "device_grouping_counts, scip",
        "device_grouping_counts, pulp",
    ]
    alone = hetopt.compare(data, [], statements=[])
    assert [row.method for row in alone.rows] == ["device_grouping"]
    with pytest.raises(UnknownName, match="metis"):
        hetopt.compare(data, ["metis"])
    with pytest.raises(UnknownName, match="nonsense"):
        hetopt.compare(data, statements=["nonsense"])


def test_no_statement_has_the_name_of_a_planner() -> None:
    statements, planners = (registry.names(x) for x in ("formulations", "planners"))
    assert not {*statements} & {*planners}


def test_a_statement_that_a_problem_is_too_large_for_is_a_row_that_says_so() -> None:
    large = "generated:grouping/200/1"
    stated = ["device_grouping_patterns", "device_grouping"]
    report = hetopt.compare(
        large, [], statements=stated, backends=["scip"], exact=False, limits=0.3
    )
    assert len(report.rows) == len(stated)
    assert all(
        result.reasons or result.plan is not None or result.stop.value == "time"
        for result in (row.result for row in report.rows)
    )
    (exact,) = hetopt.compare(large, [], statements=[]).rows
    assert exact.result.status is Status.OPTIMAL


def test_the_librarys_best_counts_for_offers_and_queues() -> None:
    rented = hetopt.compare("espresso/llama-1.3b", ["espresso"], statements=[])
    assert rented.rows[0].reference.best is not None
    assert rented.rows[0].result.problem == "provisioning"
    queue = hetopt.compare("frenzy/simulator-30", ["frenzy", "opportunistic"])
    assert [row.method for row in queue.runs] == ["frenzy", "opportunistic"]
    assert {row.reference.best_by for row in queue.rows} == {"the library"}
    assert [report.rows[-1].method for report in (rented, queue)] == ["library"] * 2


def test_what_a_problem_does_not_know_is_refused() -> None:
    with pytest.raises(Unsupported, match="found options x, which device_grouping"):
        hetopt.compare(NAME, problem="device_grouping", options={"x": 1})
    with pytest.raises(Unsupported, match="need a problem"):
        hetopt.compare(NAME, statements=["hexiscale_milp"])
    with pytest.raises(Unsupported, match="are for training plans only"):
        hetopt.compare(NAME, problem="device_grouping", runs_on="megatron")
    with pytest.raises(MixedData, match="expected one: compare them one by one"):
        hetopt.compare([tiny("device_grouping", 1), tiny("layer_partition", 1)])


# --- reports ---------------------------------------------------------------------


@pytest.fixture(scope="module")
def report() -> GapReport:
    """Groupings of two sizes: a problem whose objective is to be large."""
    names = ["generated:grouping/12/3", "generated:grouping/16/3"]
    return hetopt.compare(names, statements=[], limits=10)


def test_the_gap_of_a_row_follows_from_its_row(report: GapReport) -> None:
    for row in report.to_json()["rows"]:
        bound, objective = row["reference_bound"], row["objective"]
        assert row["gap_to_bound"] == pytest.approx((bound - objective) / bound)
        assert row["best_known"] >= objective


def test_forms_of_a_report_are_of_any_problem(
    report: GapReport, tmp_path: Path
) -> None:
    for suffix in (".html", ".md", ".csv", ".json", ".svg"):
        writers.write(gaps.sheet(report), report.to_json(), tmp_path / f"gaps{suffix}")
    page = Page((tmp_path / "gaps.html").read_text())
    assert "no plan has more than" in page.words
    assert "no plan is faster" not in page.words
    text = (tmp_path / "gaps.md").read_text()
    assert "| method | objective | gap to bound |" in text
    lines = (tmp_path / "gaps.csv").read_text().splitlines()
    assert len(lines) == 1 + len(report.rows)
    document = json.loads((tmp_path / "gaps.json").read_text())
    assert {row["result"]["problem"] for row in document["rows"]} == {"device_grouping"}
