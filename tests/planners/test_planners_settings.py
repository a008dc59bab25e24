"""Planners under every cost setting, and with profiles that lack measurements."""

import json
import time
from pathlib import Path
from random import Random
from typing import Any

import pytest
from counted_clock import counted_clock
from flat import flat
from hypothesis import given
from hypothesis import strategies as st
from inputs import drawn, examples, seeds
from places import TESTS
from random_holes import random_setting, with_holes, with_idle_layers

import hetopt
from hetopt import registry
from hetopt.bounds.training_plan import training_plan_bound
from hetopt.errors import NoPlan
from hetopt.formats.metis import profiles as metis
from hetopt.planners import whale
from hetopt.planners.whale.shares import cuts
from hetopt.plans import TrainingPlan
from hetopt.problems import training_plan
from hetopt.schema import Instance
from hetopt.search.choosing import remedies
from hetopt.search.fast_cost import FastCost
from hetopt.search.improving import improve
from hetopt.search.racing import raced
from hetopt.text.complaints import validated

PLANNERS = registry.entries_for("planners", "training_plan")
SETTINGS, HOLES = 24, 40
LOOKS = 20_000.0  # at the clock: a planner of the largest instances ends there
KINDS = {"settings": random_setting, "holes": with_holes, "idle": with_idle_layers}
DEFECTS = [
    "all-zero",
    "interleave-whale-crash",
    "unmeasured-degree-crash",
    "unmeasured-size",
    "unmeasured-size-lockstep",
    "unmeasured-size-overlap",
]


def defect(name: str) -> Instance:
    return hetopt.load(TESTS / "defects" / f"{name}.json")


def planned(
    planner: str, instance: Instance, least: int, deadline: float | None = None
) -> TrainingPlan | None:
    """A valid plan that takes `least` or more, None for a reason; nothing else."""
    module: Any = registry.entry("planners", planner)
    try:
        plan: TrainingPlan = module.plan(instance, seed=0, deadline=deadline)
    except NoPlan:
        return None
    judged = training_plan.evaluate(instance, plan)
    assert judged.violations == (), planner
    assert judged.objective >= least, planner
    return plan


@pytest.mark.parametrize("kind", KINDS)
@examples(6)
@given(data=st.data(), seed=seeds())
def test_every_planner_has_a_valid_plan_or_a_reason(
    kind: str, data: st.DataObject, seed: int
) -> None:
    instance = data.draw(drawn(KINDS[kind]))
    least = training_plan_bound(instance).value
    with counted_clock():
        plans = [planned(name, instance, least, deadline=LOOKS) for name in PLANNERS]
    start = next((plan for plan in plans if plan is not None), None)
    if start is None:
        return
    better = improve(instance, start, rounds=200, seed=seed)
    before, after = (training_plan.evaluate(instance, one) for one in (start, better))
    assert after.violations == ()
    assert after.objective <= before.objective
    settings = raced(instance, rounds=50)
    assert settings is None or training_plan.evaluate(instance, settings).valid


def test_the_instances_have_holes_and_plans() -> None:
    found = [with_holes(Random(f"holes {seed}")) for seed in range(HOLES)]
    costs = [FastCost(instance) for instance in found]
    assert sum(len(cost.timed_nodes) < len(cost.nodes) for cost in costs) > 3
    assert sum(planned("whale", one, 0) is not None for one in found) > 5
    interleaved = [random_setting(Random(f"settings {i}")) for i in range(SETTINGS)]
    runs = [one.workload.costs.interleave for one in interleaved]
    assert sum(n > 1 for n in runs) > 3


@examples(5)
@given(drawn(random_setting) | drawn(with_holes))
def test_whole_command_ends_with_a_plan_or_a_reason_and_no_planner_fails(
    instance: Instance,
) -> None:
    for result in (
        hetopt.plan(instance, limits=0.1),
        hetopt.plan(instance, improve=True, limits=0.1),
        hetopt.solve(instance, limits=0.1),
    ):
        assert result.failed == ()
        assert result.plan is not None or result.reasons or result.bound is not None
    assert all(map(str, remedies(instance, deadline=time.monotonic() + 0.1)))


@pytest.mark.parametrize("name", DEFECTS)
def test_every_planner_has_a_valid_plan_or_a_reason_where_it_once_failed(
    name: str,
) -> None:
    instance = defect(name)
    least = training_plan_bound(instance).value
    for planner in PLANNERS:
        planned(planner, instance, least, deadline=time.monotonic() + 1)


@pytest.mark.parametrize("name", DEFECTS)
def test_plan_and_solve_answer_where_they_once_ended_with_an_error(name: str) -> None:
    instance = defect(name)
    plan = hetopt.plan(instance, limits=1)
    assert plan.plan is not None
    assert plan.failed == ()
    assert hetopt.solve(instance, limits=0.5).failed == ()


def test_interleaved_whale_deals_out_whole_pipelines_of_micro_batches() -> None:
    instance = defect("interleave-whale-crash")
    pipelines = whale.plan(instance).pipelines
    assert len(pipelines) > 1
    for one in pipelines:
        assert one.micro_batches % len(one.stages) == 0
        assert min(z - a for a, z in (s.layers for s in one.stages)) >= 2


def test_least_number_of_layers_is_kept_by_cuts_in_proportion() -> None:
    work, powers = list(range(11)), [1, 1, 8]
    found = cuts(work, powers, lambda j, first, last: last - first >= 3, 3)
    assert found == [0, 3, 6, 10]
    assert cuts(work, powers, lambda j, first, last: True, 4) is None


def test_node_that_was_not_measured_stays_idle() -> None:
    """The large node is the one that megatron would keep longest."""
    document = flat(defect("unmeasured-size"))
    document["workload"] |= {"micro_batch_sizes": (1,)}
    document["workload"]["costs"]["profile"] = [
        row for row in document["workload"]["costs"]["profile"] if row["gpu"] == "A"
    ]
    document["cluster"]["gpus"]["B"]["memory_gib"] = 9
    instance = Instance.model_validate(document, strict=False)
    assert FastCost(instance).timed_nodes == [0]
    least = training_plan_bound(instance).value
    for planner in ("megatron", "whale", "islands", "hexiscale"):
        plan = planned(planner, instance, least)
        assert plan is not None
        stages = [stage for pipeline in plan.pipelines for stage in pipeline.stages]
        assert {r.node for stage in stages for r in stage.replicas} == {"n0"}


@pytest.mark.parametrize("first", ["X90", "Y10"])
def test_imported_profile_of_powers_of_two_is_planned_on_12_and_4_gpus(
    first: str, tmp_path: Path
) -> None:
    """Degrees 3, 6 and 12 were not measured: the local search asked for them."""
    samples = TESTS / "imports" / "metis"
    hosts = ["10.0.0.1", "10.0.0.2"]
    (tmp_path / "hostfile").write_text(f"{hosts[0]} slots=12\n{hosts[1]} slots=4\n")
    cards = ["X90", "Y10"] if first == "X90" else ["Y10", "X90"]
    (tmp_path / "clusterfile.json").write_text(_clusterfile(hosts, cards))
    read = metis.read(
        [],
        hostfile=tmp_path / "hostfile",
        clusterfile=tmp_path / "clusterfile.json",
        profiles=samples / "profiles",
        bandwidth_unit="bytes/s",
        parameter_unit="elements",
        hidden=512,
        heads=8,
        sequence_length=256,
        global_batch=32,
    )
    instance = validated(Instance, read, "imported")
    least = training_plan_bound(instance).value
    plans = (planned(name, instance, least) for name in PLANNERS)
    start = next(plan for plan in plans if plan is not None)
    better = improve(instance, start, rounds=2_000, seed=1)
    assert training_plan.evaluate(instance, better).valid


def _clusterfile(hosts: list[str], cards: list[str]) -> str:
    links = {"inter_bandwidth": 1.25e9, "intra_bandwidth": 5e10, "memory": 1.5}
    rows = zip(hosts, cards, strict=True)
    return json.dumps({host: {"instance_type": card, **links} for host, card in rows})
