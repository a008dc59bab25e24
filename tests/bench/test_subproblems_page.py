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
