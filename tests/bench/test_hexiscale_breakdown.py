"""FSDP and the parts of an iteration on HexiScale's page, against sums by hand."""

from typing import Any

import _hexiscale_breakdown as script
import pytest
from places import INSTANCES

import hetopt
from hetopt.planners import galvatron_like, hexiscale
from hetopt.problems import training_plan


@pytest.mark.parametrize("b", [1, 32])
def test_fsdp_by_hand_gathers_for_every_micro_batch(b: int) -> None:
    """16 GPUs, 8 a node: to each other node's GPU a 16th of the weights, three times.

    8 of them over 0.7 GB/s, 7 over 32 GB/s.
    """
    name = "homogeneous-ethernet-llama2-7b"
    instance = script.instance_of(name)
    sharded = script.fsdp_instance(instance, b, "layers' inputs, Eq. 11")
    judged = training_plan.evaluate(sharded, script.fsdp_plan(sharded, b))
    assert judged.valid
    weights = 2 * 32 * 12 * 4096**2
    gathered_s = 3 * weights / 16 * (8 / 0.7e9 + 7 / 32e9)
    times = 512 // (16 * b)
    assert judged.parts["sync_us"] / 1e6 == pytest.approx(times * gathered_s, rel=1e-3)
    flops = 96 * b * 4096 * 4096**2 * (1 + 4096 / (6 * 4096)) * 32
    compute_s = times * flops / 312e12
    assert max(judged.parts["pipeline_us"]) / 1e6 == pytest.approx(compute_s, rel=1e-3)


def test_the_best_fsdp_fits_and_is_no_slower_than_one_sequence() -> None:
    instance = script.instance_of("homogeneous-rdma-llama2-7b")
    for held in script.ACTIVATIONS:
        best = script.best_fsdp(instance, held)
        assert best["if all is hidden, s"] <= best["FSDP, s"]
        assert best["FSDP, s"] <= best["one sequence a GPU, s"]
        both = best["computation, s"] + best["communication, s"]
        assert best["FSDP, s"] == pytest.approx(both)


@pytest.mark.parametrize("planner", [hexiscale, galvatron_like])
@pytest.mark.parametrize("name", ["two-nodes", "three-nodes", "star"])
def test_parts_add_up_to_the_iteration(planner: Any, name: str) -> None:
    instance = hetopt.load(str(INSTANCES / "tiny" / f"{name}.yaml"))
    row = script.divided(instance, planner.plan(instance))
    parts = [row[f"{part}, s"] for part in ("computation", "communication", "bubble")]
    assert sum(parts) == pytest.approx(row["iteration, s"])
    assert min(parts) >= 0
    assert 0 <= row["simulated bubble, %"] < 100


def test_work_and_idle_time_of_the_simulation_are_all_of_it() -> None:
    """Without synchronisation: what GPUs do, and when they do nothing."""
    instance = hetopt.load("tiny/one-gpu")
    plan = hexiscale.plan(instance)
    _, idle = script.simulated(instance, plan)
    assert idle == 0
    several = hetopt.load("tiny/two-nodes")
    plan = hexiscale.plan(several)
    judged = training_plan.evaluate(several, plan).parts
    iteration_us, idle = script.simulated(several, plan)
    busy = sum(
        replica.degree * pipeline.micro_batches * (row["compute_us"] + row["hop_us"])
        for pipeline, rows in zip(plan.pipelines, judged["stages"], strict=True)
        for stage, row in zip(pipeline.stages, rows, strict=True)
        for replica in stage.replicas
    )
    gpus = several.planned_cluster.gpu_count
    used = sum(r.degree for r in plan.replicas())
    after = judged["sync_us"] + judged["update_us"]
    assert idle * gpus * iteration_us == pytest.approx(
        gpus * iteration_us - busy - used * after
    )


def test_shape_counts_pipelines_by_depth() -> None:
    instance = script.instance_of("setting-1-llama2-7b")
    plan = hexiscale.plan(instance)
    told = [part.split(" x ") for part in script.shape(plan).split(", ")]
    assert sum(int(count) for count, _ in told) == len(plan.pipelines)
    depths = [len(pipeline.stages) for pipeline in plan.pipelines]
    assert sum(int(n) * int(d) for n, d in told) == sum(depths)
