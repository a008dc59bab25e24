"""`verify` holds planners of every problem to the same rules, and finds cheats."""

from pathlib import Path

import pytest

from hetopt import problems, registry
from hetopt.api.verifying import PLANNED, POSED, verify

CHEAT = '''"""Leaves out a device of each type: what remains is stronger, one by one."""

from hetopt.plans import Group, Grouping

problem = "device_grouping"


def plan(data, *, seed=0, deadline=None):
    counts = {gpu.type: gpu.count - 1 for gpu in data.gpus if gpu.count > 1}
    return Grouping(groups=(Group(gpus=counts or {data.gpus[0].type: 1}),))
'''


def test_there_is_small_data_for_every_problem_with_planners() -> None:
    planned = {x for x in problems.names() if registry.entries_for("planners", x)}
    assert planned == {*POSED, "training_plan"}
    assert len(PLANNED) > 1


@pytest.mark.parametrize("problem", [x for x in POSED if x != "one_pipeline"])
def test_a_planner_of_each_problem_passes(problem: str) -> None:
    name = registry.entries_for("planners", problem)[0]
    found = verify(name)
    assert [check for check in found.checks if not check.passed] == []
    assert {check.rule for check in found.checks} >= {
        "valid",
        "same seed, same plan",
        "never better than a bound",
    }


def test_a_planner_that_leaves_devices_out_is_found(tmp_path: Path) -> None:
    file = tmp_path / "cheat.py"
    file.write_text(CHEAT)
    found = verify(file)
    assert not found.passed
    assert any(
        check.rule == "valid" and "every_device_once" in check.seen
        for check in found.checks
    )
