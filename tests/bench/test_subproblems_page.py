"""The page of subproblems: its rows are what `compare` finds, none counted twice."""

import json

import pytest
import subproblems as script

import hetopt
from hetopt import problems, registry


def test_every_problem_with_an_exact_method_has_cases() -> None:
    expected = {*problems.names()} - {"job_scheduling"}
    assert set(script.CASES) == expected


@pytest.mark.parametrize(
    ("problem", "rules"), [("device_grouping", True), ("provisioning", False)]
)
def test_a_line_has_every_method_and_its_gap_to_the_optimum(
    problem: str, rules: bool
) -> None:
    """Statements are lines of one problem alone: some take as long as they may."""
    case = next(iter(script.CASES[problem](1, ("tiny",))))
    line = json.loads(json.dumps(script.measured(problem, case, 10.0, rules=rules)))
    named = [row["method"] for row in line["rows"] if row["kind"] == "heuristic"]
    assert named == registry.entries_for("planners", problem)
    best = hetopt.solve(case.name, problem=problem).objective
    assert line["optimum"] == pytest.approx(float(best))
    gaps = [row["gap"] for row in line["rows"] if row["status"] == "optimal"]
    assert set(gaps) == {0}
    page = script.page([line])
    assert all(f"| `{rule}` |" in page for rule in named)
    assert "| exact | 1 | 1 |" in page


def test_what_a_method_does_not_take_is_none_of_its_cases() -> None:
    """The exact method of one pipeline knows none in lockstep."""
    case = script.Case("random, unequal", "generated:unequal/tiny/2", {})
    line = json.loads(json.dumps(script.measured("one_pipeline", case, 1.0)))
    (exact,) = (row for row in line["rows"] if row["method"] == "exact")
    assert exact["status"] == "refused"
    assert "| exact |" not in script.page([line])
    assert "| `metis` | random, unequal |" in script.page([line])


def test_a_page_is_of_one_limit_and_says_what_poses_no_problem() -> None:
    def line(limit: float, gap: float, name: str) -> dict[str, object]:
        row = {"method": "has", "kind": "heuristic", "status": "feasible"}
        rows = [{**row, "gap": gap, "seconds": 0.5}]
        head = {"problem": "job_round", "family": "f", "instance": name, "options": {}}
        return {**head, "limit_s": limit, "optimum": 1.0, "rows": rows}

    refused = {**line(20, 0, "c"), "rows": [], "refused": "why", "optimum": None}
    lines = [line(2, 9.0, "a"), line(20, 0.1, "a"), line(20, 0.3, "b"), refused]
    page = script.page(lines)
    row = "| `has` | f | 2 of 2 | 20.0% | 20.0% | 30.0% | 20.0% of 2 | 0.5 |"
    assert row in page
    assert "Instances that do not pose it: 1." in page


def test_means_on_common_cases_leave_out_where_a_rule_has_no_plan() -> None:
    """A rule that plans the easy case only is not the better one for it."""
    head = {"problem": "job_round", "family": "f", "options": {}, "limit_s": 20}
    row = {"kind": "heuristic", "status": "feasible", "seconds": 0.5}
    lines = [
        {
            **head,
            "instance": name,
            "optimum": 1.0,
            "rows": [{**row, "method": rule, "gap": gap} for rule, gap in gaps],
        }
        for name, gaps in (
            ("easy", [("some", 0.1), ("all", 0.0), ("none", None)]),
            ("hard", [("some", None), ("all", 0.4), ("none", None)]),
        )
    ]
    page = script.page(lines)
    assert "| `all` | f | 2 of 2 | 20.0% | 20.0% | 40.0% | 0.0% of 1 | 0.5 |" in page
    assert "| `some` | f | 1 of 2 | 10.0% | 10.0% | 10.0% | 10.0% of 1 | 0.5 |" in page
    assert "| `none` | f | 0 of 2 | – | – | – | – | 0.5 |" in page
