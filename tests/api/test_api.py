"""The library's front door does what it says, and says why when it cannot."""

from typing import Any

import pytest
from brute_force import best

import hetopt
from hetopt import api, registry
from hetopt.api import Listener
from hetopt.api.calling import Progress, progress_of
from hetopt.errors import MixedData, UnknownName, Unsupported
from hetopt.modelling import Limits
from hetopt.planners import megatron
from hetopt.problems import device_grouping
from hetopt.result import Status, Stop

SMALL = "tiny/two-nodes"
PLANNERS = registry.entries_for("planners", "training_plan")
DEVICES = device_grouping.Data(
    gpus=(
        device_grouping.DeviceType(type="A", count=3, gflops=10, memory_mib=5),
        device_grouping.DeviceType(type="B", count=2, gflops=7, memory_mib=9),
    ),
    minimum_memory_mib=9,
    micro_batches=4,
)


def stopped_by_ctrl_c(*args: Any, **kwargs: Any) -> Any:
    """A planner that is interrupted at once."""
    raise KeyboardInterrupt


def test_the_default_plan_is_no_worse_than_any_planners() -> None:
    result = hetopt.plan(SMALL, limits=10)
    each = [hetopt.plan(SMALL, planner).objective for planner in PLANNERS]
    assert result.objective is not None
    assert all(value is None or result.objective <= value for value in each)


def test_no_plan_is_a_result_with_the_planners_reason() -> None:
    instance = hetopt.load("tiny/two-nodes")
    # States fit, what a stage holds of such long sequences does not.
    longer = instance.with_workload(sequence_length=10_000_000)
    result = hetopt.plan(longer, "megatron")
    assert (result.status, result.stop) == (Status.UNDECIDED, Stop.FINISHED)
    assert result.objective is None
    assert "MiB" in result.reasons[0]
    known = hetopt.plan("tiny/infeasible", "megatron")
    assert (known.status, known.stop) == (Status.INFEASIBLE, Stop.PROVED)
    assert "short" in known.reasons[0]


@pytest.mark.parametrize(
    ("limits", "message"),
    [
        (-1, "time_limit is -1: expected at least 0"),
        (float("nan"), "time_limit is nan"),
        (Limits(gap=-0.1), "gap is -0.1"),
        (Limits(threads=0), "threads is 0: expected at least 1"),
        (Limits(seed=-3), "seed is -3"),
    ],
)
def test_limits_that_mean_nothing_are_refused(
    limits: float | Limits, message: str
) -> None:
    with pytest.raises(Unsupported, match=message):
        hetopt.plan(SMALL, limits=limits)


# --- solve -----------------------------------------------------------------------


def test_a_back_end_without_a_method_takes_a_statement_that_it_carries() -> None:
    result = hetopt.solve(DEVICES, backend="cpsat")
    assert (
        result.method.formulation in api.methods_for("device_grouping")["formulations"]
    )
    assert result.objective == best("device_grouping", DEVICES)


def test_what_poses_no_problem_is_refused() -> None:
    with pytest.raises(MixedData, match="expected an instance or a problem"):
        hetopt.solve(DEVICES.gpus[0])


# --- provision -------------------------------------------------------------------


def test_a_budget_asks_for_time() -> None:
    result = hetopt.provision("tiny/offers", budget_usd=1)
    assert result.to_json()["unit"] == "us"
    assert result.evaluation.parts["usd"] <= 1


# --- compare ---------------------------------------------------------------------


def test_compare_has_a_row_for_every_planner_on_every_instance() -> None:
    started: list[str] = []
    names = ["tiny/two-nodes", "tiny/three-nodes", "tiny/infeasible"]
    report = hetopt.compare(names, progress=Listener(started=started.append))
    pairs = [(row.instance, row.method) for row in report.rows]
    assert pairs == [(name, planner) for name in names for planner in PLANNERS]
    assert started == [f"{name}: {planner}" for name, planner in pairs]
    for row in report.rows:
        assert (row.gap_to_bound is None) == (row.result.plan is None)
        assert row.gap_to_bound is None or row.gap_to_bound >= 0


def test_nothing_is_planned_when_one_instance_is_wrong(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(megatron, "plan", stopped_by_ctrl_c)
    with pytest.raises(UnknownName, match="two-nodez"):
        hetopt.compare([SMALL, "tiny/two-nodez"], ["megatron"])
    with pytest.raises(MixedData, match="training_plan, provisioning"):
        hetopt.compare([SMALL, "tiny/offers"], ["megatron"])


def test_one_name_for_two_instances_is_refused() -> None:
    instance = hetopt.load(SMALL)
    other = instance.model_copy(update={"source": "changed"})
    with pytest.raises(MixedData, match="two different instances are named"):
        hetopt.compare([instance, other])


# --- check -----------------------------------------------------------------------


def test_a_plan_is_checked_on_the_instance_that_is_named() -> None:
    result = hetopt.plan(SMALL, "megatron")
    assert result.plan is not None
    elsewhere = hetopt.check(result.plan, "tiny/one-gpu")
    assert not elsewhere.valid
    assert {violation.rule for violation in elsewhere.violations} >= {"unknown_gpu"}


def test_a_plan_of_another_problem_is_refused() -> None:
    result = hetopt.plan(SMALL, "megatron")
    assert result.plan is not None
    with pytest.raises(MixedData, match="expected a plan of device_grouping"):
        hetopt.check(result.plan, DEVICES)


def test_a_function_alone_hears_the_reports() -> None:
    heard: list[Any] = []
    progress = progress_of(lambda *now: heard.append(now))
    progress.report(5, 4)
    progress.started("somebody")
    assert heard == [(5, 4)]
    assert isinstance(progress, Progress)
    assert progress_of(progress) is progress
