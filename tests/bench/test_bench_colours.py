"""What is marked as bad in a suite's report: failures, and not a planner's no."""

import pytest

from hetopt.bench.statistics import Summary
from hetopt.report import bench_tables


@pytest.mark.parametrize(
    ("unsolved", "mark"),
    [
        ({"undecided": 10}, ""),
        ({"undecided": 1, "timeout": 1}, "bad"),
        ({"crashed": 1}, "bad"),
    ],
)
def test_only_what_failed_is_marked(unsolved: dict[str, int], mark: str) -> None:
    summary = Summary(
        problem="p",
        method="m",
        rows=11,
        solved=1,
        proved=0,
        infeasible=0,
        unsolved=unsolved,
        referenced=0,
        median_gap=None,
        p90_gap=None,
        worst_gap=None,
        median_seconds=None,
    )
    (row,) = bench_tables.summary([summary]).rows
    marks = [cell.mark for cell in row if cell.mark]
    assert marks == ([mark] if mark else [])
