"""What HexiScale's page counts as found and proved, and Eq. 4 as printed."""

import _hexiscale_milp as milp
import _hexiscale_sections as sections
import pytest

from hetopt.modelling import Limits
from hetopt.planners import hexiscale
from hetopt.problems import training_plan


def test_what_is_fed_or_declared_is_neither_found_nor_proved() -> None:
    instance = milp.small(6)
    for statement in milp.BACKENDS:
        row = milp.measure(instance, statement, True, Limits(time_s=0))
        assert row["objective_us"] == row["fed_us"]
        assert row["own_us"] is None
        assert row["own_bound_us"] is None


def test_what_the_solver_finds_and_proves_by_itself_is_told() -> None:
    row = milp.measure(milp.small(4), "hexiscale_milp", False, Limits(time_s=60))
    assert row["status"] == "optimal"
    assert row["own_us"] == row["own_bound_us"] == row["objective_us"]
    assert row["fed_us"] is None
    assert row["declared_bound_us"] < row["own_bound_us"] <= row["declared_horizon_us"]


def test_printed_eq_4_is_the_judges_without_tensor_parallelism() -> None:
    """Rounded to a us for each layer; twice as much for replicas of two GPUs."""
    instance = sections.instance_of("setting-1-llama2-7b")
    alone, two = hexiscale.plan(instance), sections.two_of_two(instance)
    assert {replica.degree for replica in alone.replicas()} == {1}
    rounding = instance.model.layers / 1e6
    for plan, times in ((alone, 1), (two, 2)):
        sync_s = training_plan.evaluate(instance, plan).parts["sync_us"] / 1e6
        printed = sections.printed_sync_s(instance, plan, devices=False)
        assert printed == pytest.approx(times * sync_s, abs=times * rounding)
