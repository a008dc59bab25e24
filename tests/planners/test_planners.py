"""Every planner of training plans that is in the folder, and two of them in detail."""

import json
import time
from functools import cache
from itertools import pairwise
from typing import Any

import pytest
from brute_force_training import best_training_plan
from hypothesis import given
from hypothesis import strategies as st
from inputs import examples, seeds, tiny_instances
from places import INSTANCES
from small_instances import small

import hetopt
from hetopt import registry
from hetopt.bounds.training_plan import training_plan_bound
from hetopt.errors import NoPlan
from hetopt.exact import device_grouping
from hetopt.files.clusters import generate
from hetopt.planners import autohet, megatron
from hetopt.planners.autohet import mapping
from hetopt.plans import Pipeline, Replica, Stage, TrainingPlan
from hetopt.problems import training_plan
from hetopt.result import gap
from hetopt.schema import Instance
from hetopt.search.fast_cost import FastCost

PLANNERS = registry.entries_for("planners", "training_plan")
TINY = sorted(p.stem for p in (INSTANCES / "tiny").glob("*.yaml") if p.stem != "offers")
FAMILIES = ["equal", "unequal", "islands", "tight_memory", "steep"]


@cache
def shipped(name: str) -> Instance:
    return hetopt.load(str(INSTANCES / f"{name}.yaml"))


@cache
def least_of(name: str) -> int:
    """Return the bound of a shipped instance, which holds for every planner."""
    return training_plan_bound(shipped(name)).value


def objective_of(planner: str, instance: Instance) -> int | None:
    """The judged objective of a planner's plan, None where it says why not."""
    least = training_plan_bound(instance).value
    return judged_objective(planned(planner, instance), instance, least)


def judged_objective(
    found: tuple[TrainingPlan | None, str], instance: Instance, least: int
) -> int | None:
    """Return the objective of a plan that no bound contradicts, if there is one."""
    plan, reason = found
    if plan is None:
        assert len(reason) > 20
        return None
    judged = training_plan.evaluate(instance, plan)
    assert judged.violations == ()
    assert judged.objective >= least
    return judged.objective


def planned(planner: str, instance: Instance) -> tuple[TrainingPlan | None, str]:
    """The plan, or None and the reason."""
    module: Any = registry.entry("planners", planner)
    try:
        return module.plan(instance, seed=3, deadline=None), ""
    except NoPlan as error:
        return None, str(error)


# --- all planners ----------------------------------------------------------------


@pytest.mark.parametrize("planner", PLANNERS)
def test_planner_is_valid_and_bounded_on_shipped_tiny_instances(
    planner: str,
) -> None:
    for name in TINY:
        instance, least = shipped(f"tiny/{name}"), least_of(f"tiny/{name}")
        value = judged_objective(planned(planner, instance), instance, least)
        assert value is None or not name.startswith("infeasible"), name


@pytest.mark.parametrize("planner", PLANNERS)
@examples(5)
@given(family=st.sampled_from(FAMILIES), seed=seeds())
def test_planner_is_valid_bounded_and_repeatable_on_random_instances(
    planner: str, family: str, seed: int
) -> None:
    instance = generate(family, size="tiny", seed=seed)
    found = planned(planner, instance)
    assert planned(planner, instance) == found
    judged_objective(found, instance, training_plan_bound(instance).value)


@pytest.mark.parametrize("planner", PLANNERS)
@pytest.mark.parametrize(
    "name",
    [
        "setting-1-llama2-7b",
        pytest.param("setting-2-llama2-13b", marks=pytest.mark.slow),
    ],
)
def test_planner_that_is_in_a_hurry_is_valid_and_bounded(
    planner: str, name: str
) -> None:
    instance = shipped(f"hexiscale/{name}")
    module: Any = registry.entry("planners", planner)
    late = None
    try:
        plan = module.plan(instance, seed=0, deadline=time.monotonic() + 0.2)
    except NoPlan as reason:  # a busy machine has less than that for it
        late = str(reason)
    if late is not None:
        # Or it has none, however long it looks.
        assert "in time" in late or planned(planner, instance)[0] is None
        return
    judged = training_plan.evaluate(instance, plan)
    assert judged.valid
    assert judged.objective >= training_plan_bound(instance).value


@examples(8)
@given(tiny_instances())
def test_no_planner_beats_the_best_of_all_plans(instance: Instance) -> None:
    best = best_training_plan(instance, several_replicas=True)
    for planner in PLANNERS:
        plan, _ = planned(planner, instance)
        if plan is not None:
            assert best is not None, planner
            judged = training_plan.evaluate(instance, plan)
            assert judged.violations == (), planner
            assert judged.objective >= best[0], planner


# --- megatron --------------------------------------------------------------------


def best_symmetric(instance: Instance) -> int | None:
    """The least objective of symmetric plans on all GPUs in Megatron's rank order."""
    nodes = instance.planned_cluster.nodes
    gpus = [f"{node.name}:{i}" for node in nodes for i in range(node.count)]
    found = []
    for tp in range(1, len(gpus) + 1):
        if any(node.count % tp for node in nodes):
            continue
        groups = [tuple(gpus[i : i + tp]) for i in range(0, len(gpus), tp)]
        for pp in range(1, instance.model.layers + 1):
            for b in instance.workload.micro_batch_sizes:
                dp, left = divmod(len(groups), pp)
                if left or instance.workload.global_batch % (dp * b):
                    continue
                n = instance.workload.global_batch // (dp * b)
                for by_rank in (True, False):
                    rows = [
                        [
                            groups[j * dp + d if by_rank else d * pp + j]
                            for j in range(pp)
                        ]
                        for d in range(dp)
                    ]
                    plan = symmetric(instance.model.layers, rows, n, b)
                    judged = training_plan.evaluate(instance, plan)
                    if judged.valid:
                        found.append(judged.objective)
    return min(found, default=None)


def symmetric(layers: int, rows: list, n: int, b: int) -> TrainingPlan:
    share, more = divmod(layers, len(rows[0]))
    cuts = [0]
    for j in range(len(rows[0])):
        cuts.append(cuts[-1] + share + (1 if j < more else 0))
    return TrainingPlan(
        pipelines=tuple(
            Pipeline(
                micro_batches=n,
                micro_batch_size=b,
                stages=tuple(
                    Stage(layers=span, replicas=(Replica(gpus=gpus, samples=b),))
                    for span, gpus in zip(pairwise(cuts), row, strict=True)
                ),
            )
            for row in rows
        )
    )


@examples(25)
@given(st.sampled_from(["equal", "unequal", "steep"]), seeds())
def test_megatron_is_the_best_of_all_symmetric_plans(family: str, seed: int) -> None:
    instance = generate(family, size="tiny", seed=seed)
    expected = best_symmetric(instance)
    if expected is not None:
        assert objective_of("megatron", instance) == expected


def test_megatron_leaves_out_the_node_that_cannot_hold_its_share() -> None:
    document = shipped("hexiscale/setting-2-llama2-7b").model_dump(mode="json")
    document["cluster"]["gpus"]["RTX3080Ti"]["memory_gib"] = 1.0
    instance = Instance.model_validate_json(json.dumps(document))
    weak = {n.name for n in instance.planned_cluster.nodes if n.gpu == "RTX3080Ti"}
    plan = megatron.plan(instance)
    used = {r.node for p in plan.pipelines for s in p.stages for r in s.replicas}
    assert used == {n.name for n in instance.planned_cluster.nodes} - weak
    assert training_plan.evaluate(instance, plan).valid


def test_megatron_says_how_much_memory_is_short_and_where() -> None:
    with pytest.raises(NoPlan, match=r"lacks \d+ MiB a GPU on node 'node1', stage 1"):
        megatron.plan(shipped("tiny/infeasible"))


# --- islands ---------------------------------------------------------------------


def two_nodes_and(slow_gpus: int) -> Instance:
    """Two nodes of four GPUs on a slow network, and perhaps a slow one of few."""
    hosts, gpus = "fast*4 fast*4", {"fast": (100, 24)}
    if slow_gpus:
        hosts, gpus = f"{hosts} slow*{slow_gpus}", gpus | {"slow": (2, 48)}
    shape = {"layers": 8, "hidden": 2048, "heads": 16, "vocabulary": 0}
    shape["parameters_per_layer"] = 50_000_000
    asked = {"sequence_length": 1024, "global_batch": 64, "costs": {"flash": True}}
    return small(hosts, gpus, model=shape, inter=0.5, rate=300, **asked)


def test_islands_leave_a_node_idle_that_would_hold_the_others_back() -> None:
    without, beside = (objective_of("islands", two_nodes_and(n)) for n in (0, 1))
    assert without is not None
    assert beside is not None
    assert beside <= without


# --- autohet ---------------------------------------------------------------------


@pytest.mark.parametrize(
    "name",
    ["h800-a100-4x4-gpt3-6.7b", "a100-h20-8x8-gpt3-6.7b", "4-a100-2-h800-llama-6.7b"],
)
def test_autohet_groups_are_within_a_thousandth_of_the_best(name: str) -> None:
    cost = FastCost(shipped(f"autohet/{name}"))
    for t in (1, 2):
        data = autohet.grouping_data(cost, t, 1)
        groups = next(autohet._groupings(data, "here", None, []))
        found = min(
            sum(g.gflops * group.get(g.type, 0) for g in data.gpus)
            * data.micro_batches_of(len(groups))
            / (data.micro_batches_of(len(groups)) + sum(group.values()) - 1)
            for group in groups
        )
        best = device_grouping.solve(data).objective
        assert best is not None
        assert gap(int(len(groups) * found), int(best)) <= 0.0011


def test_autohet_maps_the_weakest_type_to_the_first_stage_on_one_node() -> None:
    cost = FastCost(shipped("autohet/h800-a100-4x4-gpt3-6.7b"))
    kind = {i: node.gpu for i, node in enumerate(cost.nodes)}
    rows = mapping.map_stages(cost, [{"A100": 1, "H800": 1}] * 4, 1)
    assert [[kind[node] for node in row] for row in rows] == [["A100", "H800"]] * 4


def test_autohet_maps_what_cannot_be_shared_group_by_group() -> None:
    cost = FastCost(shipped("autohet/4-a100-2-h800-llama-6.7b"))
    kind = {i: node.gpu for i, node in enumerate(cost.nodes)}
    groups = [{"A100": 3}, {"A100": 1, "H800": 2}]
    rows = mapping.map_stages(cost, groups, 1)
    assert [kind[row[0]] for row in rows] == ["A100", "A100"]
    assert sorted(kind[node] for node in rows[1]) == ["A100", "H800", "H800"]


def test_autohet_without_time_says_so_in_a_sentence() -> None:
    instance = shipped("tiny/two-nodes")
    with pytest.raises(NoPlan) as caught:
        autohet.plan(instance, deadline=0.0)
    assert str(caught.value) == "autohet: no plan was found in time"


@pytest.mark.parametrize("name", ["h800-a100-4x4-gpt3-6.7b", "a100-h20-8x8-gpt3-6.7b"])
def test_autohet_without_balancing_or_grouping_is_slower(name: str) -> None:
    instance = shipped(f"autohet/{name}")

    def value(**steps: bool) -> int:
        judged = training_plan.evaluate(instance, autohet.plan(instance, **steps))
        assert judged.valid
        return judged.objective

    whole = value()
    assert whole < value(balancing=False)
    assert whole < value(grouping=False)
    assert whole <= value(mapping=False)


def test_autohet_beats_symmetric_plans_on_its_own_settings() -> None:
    for name in ("5-a100-3-h800-llama-6.7b", "a100-h20-4x4-gpt3-6.7b"):
        instance = shipped(f"autohet/{name}")
        own, other = (
            objective_of("autohet", instance),
            objective_of("megatron", instance),
        )
        assert own < 0.8 * other
