"""Subproblems that an instance poses, beside what the training plan's judge finds."""

from collections import Counter
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from inputs import examples, seeds
from places import INSTANCES

import hetopt
from hetopt import registry
from hetopt.errors import InstanceError, NoPlan, Unsupported
from hetopt.files.clusters import generate
from hetopt.plans import Partition, TrainingPlan
from hetopt.problems import (
    device_grouping,
    job_round,
    layer_partition,
    provisioning,
    recovery,
    training_plan,
)
from hetopt.problems.recovery import changes
from hetopt.schema import Instance

FAMILIES = ["equal", "unequal", "islands", "tight_memory", "steep"]
PLANNERS = ["megatron", "autohet", "metis", "hexiscale", "whale"]


def shipped(name: str) -> Instance:
    return hetopt.load(str(INSTANCES / f"{name}.yaml"))


def planned(planner: str, instance: Instance) -> TrainingPlan | None:
    module: Any = registry.entry("planners", planner)
    try:
        return module.plan(instance, seed=0)
    except NoPlan:
        return None


def partition(
    instance: Instance, plan: TrainingPlan, number: int
) -> layer_partition.Data | None:
    """The partition of a pipeline; None where the problem has no words for it."""
    try:
        return layer_partition.data(instance, plan=plan, pipeline=number)
    except Unsupported as reason:
        told = str(reason)
    known = "lockstep", "which of its replicas is the slowest"
    return pytest.fail(told) if not any(word in told for word in known) else None


# --- device grouping -------------------------------------------------------------


@pytest.mark.parametrize("t", [1, 2, 3, 8])
def test_devices_are_whole_groups_of_gpus_within_nodes(t: int) -> None:
    instance = shipped("hexiscale/setting-3-llama-30b")
    data = device_grouping.data(instance, tensor_parallel=t)
    wanted: Counter[str] = Counter()
    for node in instance.planned_cluster.nodes:
        wanted[node.gpu] += node.count // t
    assert {gpu.type: gpu.count for gpu in data.gpus} == {
        name: count for name, count in wanted.items() if count
    }


def test_a_degree_that_no_node_has_room_for_is_refused() -> None:
    with pytest.raises(InstanceError, match="tensor_parallel 16, expected at most 8"):
        device_grouping.data(
            shipped("hexiscale/setting-1-llama2-7b"), tensor_parallel=16
        )


# --- layer partition -------------------------------------------------------------


@examples(15)
@given(st.sampled_from(FAMILIES), st.sampled_from(PLANNERS), seeds())
def test_a_plans_own_partition_takes_as_long_as_its_pipeline(
    family: str, planner: str, seed: int
) -> None:
    instance = generate(family, size="tiny", seed=seed)
    plan = planned(planner, instance)
    if plan is None:
        return
    judged = training_plan.evaluate(instance, plan)
    for number, pipeline in enumerate(plan.pipelines):
        data = partition(instance, plan, number)
        if data is None:
            continue
        own = Partition(
            order=tuple(stage.name for stage in data.stages),
            layers=tuple(len(stage.span) for stage in pipeline.stages),
        )
        found = layer_partition.evaluate(data, own)
        assert found.objective == judged.parts["pipeline_us"][number]
        # Rounded up a layer, needs may pass what is free by a MiB each.
        spare = judged.parts["least_headroom_mib"]
        assert found.valid or spare < 2 * instance.model.layers + 2


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({"stages": ("nowhere",)}, "found 'nowhere', expected nodes of instance"),
        ({"stages": ("node0",) * 9}, "9 stages of 1 GPUs on node 'node0'"),
        ({"tensor_parallel": 64}, "found 0, expected from 1 to 32"),
        ({"pipeline": 1}, "pipeline 1 needs a plan"),
    ],
)
def test_stages_that_there_cannot_be_are_refused(
    wrong: dict[str, Any], message: str
) -> None:
    with pytest.raises(InstanceError, match=message):
        layer_partition.data(shipped("autohet/a100-h20-4x4-gpt3-6.7b"), **wrong)


def test_a_plan_says_its_stages_itself() -> None:
    instance = shipped("tiny/two-nodes")
    plan = planned("megatron", instance)
    with pytest.raises(InstanceError, match="found tensor_parallel and a plan"):
        layer_partition.data(instance, plan=plan, tensor_parallel=2)
    with pytest.raises(InstanceError, match="pipeline: found 99, expected one from 0"):
        layer_partition.data(instance, plan=plan, pipeline=99)


# --- provisioning ----------------------------------------------------------------


PRICES = {"A100": 2.0, "H20": 1.25}


def test_a_cluster_is_offered_with_its_numbers_of_gpus() -> None:
    instance = shipped("autohet/a100-h20-4x4-gpt3-6.7b")
    data = provisioning.data(instance, usd_per_hour=PRICES, deadline_s=9)
    assert {offer.gpu: offer.quota for offer in data.offers} == {"A100": 4, "H20": 4}
    assert {offer.gpu: offer.usd_per_hour for offer in data.offers} == PRICES
    assert (data.deadline_s, data.layers) == (9, instance.model.layers)
    assert provisioning.data(shipped("tiny/offers"), budget_usd=3).budget_usd == 3


def test_offers_are_a_cluster_of_all_their_machines() -> None:
    instance = shipped("espresso/llama-3b")
    groups = device_grouping.data(instance)
    assert {gpu.type: gpu.count for gpu in groups.gpus} == {
        offer.gpu: offer.quota for offer in instance.offers
    }
    names = ("A30#1", "A6000#0")
    rented = provisioning.data(instance)
    share = instance.workload.global_batch // rented.micro_batches
    data = layer_partition.data(instance, stages=names, micro_batch=share)
    assert [stage.name for stage in data.stages] == ["0:A30#1", "1:A6000#0"]
    for stage, gpu in zip(data.stages, ("A30", "A6000"), strict=True):
        (offer,) = (offer for offer in rented.offers if offer.gpu == gpu)
        alone = offer.by_data_parallel["1"]
        assert stage.memory_mib == offer.memory_mib
        assert 0 <= alone.forward_us + alone.backward_us - stage.layer_us[0] <= 1
        assert {*data.layer_mib[1:-1]} == {offer.layer_mib}
    small = shipped("espresso/llama-1.3b")
    assert job_round.data(small, jobs=2, batches=(1,)).jobs == 2


# --- rounds ----------------------------------------------------------------------


def test_a_round_of_an_instance_has_its_gpus_and_its_model() -> None:
    instance = shipped("autohet/a100-h20-4x4-bert-large")
    data = job_round.data(instance, jobs=5, batches=(2, 4))
    assert [(c.name, c.jobs) for c in data.classes] == [
        ("bert-large/2", 3),
        ("bert-large/4", 2),
    ]
    assert {(s.gpu, s.size): s.gpus for s in data.slots} == {
        (gpu, size): 4 for gpu in ("A100", "H20") for size in (1, 2, 4)
    }


# --- recovery --------------------------------------------------------------------


def test_a_recovery_has_what_both_plans_hold() -> None:
    instance = shipped("autohet/a100-h20-4x4-gpt3-6.7b")
    old = planned("megatron", instance)
    change = changes.between(instance, instance, ("node1",))
    new = planned("megatron", change.new)
    assert old is not None
    assert new is not None
    data = recovery.data(instance, plan=old, new_plan=new, lost=("node1",))
    assert {need.node for need in data.needs} == {"node0"}
    assert {saved.place for saved in data.saved} == {"node0", "cloud"}
    with pytest.raises(InstanceError, match="found no new_plan, expected the plan"):
        recovery.data(instance, plan=old)
