"""HexiScale's page: what counts as found and proved, Eq. 4 as printed, FSDP by hand."""

import _hexiscale_breakdown as breakdown
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


@pytest.mark.parametrize("b", [1, 32])
def test_fsdp_by_hand_gathers_for_every_micro_batch(b: int) -> None:
    """16 GPUs, 8 a node: to each other node's GPU a 16th of the weights, three times.

    8 of them over 0.7 GB/s, 7 over 32 GB/s.
    """
    name = "homogeneous-ethernet-llama2-7b"
    instance = breakdown.instance_of(name)
    sharded = breakdown.fsdp_instance(instance, b, "layers' inputs, Eq. 11")
    judged = training_plan.evaluate(sharded, breakdown.fsdp_plan(sharded, b))
    assert judged.valid
    weights = 2 * 32 * 12 * 4096**2
    gathered_s = 3 * weights / 16 * (8 / 0.7e9 + 7 / 32e9)
    times = 512 // (16 * b)
    assert judged.parts["sync_us"] / 1e6 == pytest.approx(times * gathered_s, rel=1e-3)
    flops = 96 * b * 4096 * 4096**2 * (1 + 4096 / (6 * 4096)) * 32
    compute_s = times * flops / 312e12
    assert max(judged.parts["pipeline_us"]) / 1e6 == pytest.approx(compute_s, rel=1e-3)
