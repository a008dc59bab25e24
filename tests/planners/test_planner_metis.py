"""Metis, its oracle and the baselines that see averaged GPUs only."""

import json
from functools import cache
from itertools import combinations, pairwise, product

import pytest
from hypothesis import assume, given, reject
from hypothesis import strategies as st
from inputs import examples, plans_of, seeds, tiny_instances

from hetopt import load, registry
from hetopt.errors import InstanceError, NoPlan
from hetopt.exact import one_pipeline
from hetopt.files.clusters import generate
from hetopt.modelling import Limits
from hetopt.planners import metis
from hetopt.planners.metis import cuts as layer_cuts
from hetopt.planners.metis import node_groups
from hetopt.planners.metis.costs import Laid, LineCost, Row, Share
from hetopt.plans import TrainingPlan
from hetopt.problems import one_pipeline as judge
from hetopt.problems import training_plan
from hetopt.result import Status
from hetopt.schema import Instance
from hetopt.search.fast_cost import FastCost

PLANNERS = ("metis", "amp", "alpa_like", "galvatron_like")


def planned(planner: str, instance: Instance, **options: float) -> TrainingPlan | None:
    module = registry.entry("planners", planner)
    try:
        if options:
            return module.plan(instance, **options)
        return module.plan(instance)
    except NoPlan:
        return None


@cache
def usual_us(name: str) -> int:
    """What Metis takes as it is."""
    instance = load(f"metis/{name}")
    return objective(instance, metis.plan(instance))


def objective(instance: Instance, plan: TrainingPlan) -> int:
    judged = judge.evaluate(instance, plan)
    assert judged.violations == ()
    return judged.objective


# --- beside the oracle -------------------------------------------------------------


@pytest.mark.parametrize(
    "name",
    [
        "p100-t4-4-gpt3-1.3b",
        pytest.param("t4-v100-4-gpt3-1.3b", marks=pytest.mark.slow),
    ],
)
def test_metis_is_within_two_per_cent_of_the_oracle_at_four_gpus(name: str) -> None:
    instance = load(f"metis/{name}")
    result = one_pipeline.solve(instance, limits=Limits(time_s=60))
    assert result.status is Status.OPTIMAL
    mine = objective(instance, metis.plan(instance))
    assert result.objective <= mine <= 1.02 * result.objective


@pytest.mark.parametrize(
    "name",
    [
        "nonuniform-a-gpt3-1.3b",
        pytest.param("t4-v100-8-gpt3-2.6b", marks=pytest.mark.slow),
        pytest.param("p100-v100-8-gpt3-2.6b", marks=pytest.mark.slow),
    ],
)
def test_metis_beats_what_sees_averaged_gpus_on_its_own_clusters(name: str) -> None:
    instance = load(f"metis/{name}")
    found = {p: planned(p, instance) for p in PLANNERS}
    times = {p: objective(instance, plan) for p, plan in found.items() if plan}
    assert times["metis"] == min(times.values())
    assert all(us > 1.05 * times["metis"] for p, us in times.items() if p != "metis")


# --- the evaluator -------------------------------------------------------------------


unequal = seeds().map(lambda seed: generate("unequal", seed=seed))


@examples(30)
@given(st.data(), tiny_instances() | unequal)
def test_the_planners_cost_is_the_judges_on_random_pipelines(
    data: st.DataObject, instance: Instance
) -> None:
    plan = data.draw(plans_of(instance))
    first = plan.pipelines[0]
    batch = first.micro_batches * first.micro_batch_size
    instance = instance.with_workload(global_batch=batch)
    alone = TrainingPlan(pipelines=(first,))
    try:
        judged = training_plan.evaluate(instance, alone)
    except InstanceError:  # a degree or size that the profile lacks
        reject()
    assume(judged.objective is not None)  # of a size that the instance has not
    line = LineCost(instance)
    node = {name: i for i, name in enumerate(line.cost.names)}
    stages = [
        Laid(
            Row(Share(node[r.node], r.degree, r.samples) for r in stage.replicas),
            *stage.layers,
        )
        for stage in first.stages
    ]
    assert line.iteration_us(first.micro_batches, stages) == judged.objective
    rules = {violation.rule for violation in judged.violations}
    assert line.fits(first.micro_batches, stages) == (not rules)
    if not rules:
        again = line.plan(first.micro_batches, first.micro_batch_size, stages)
        assert training_plan.evaluate(instance, again).objective == judged.objective


# --- device groups -------------------------------------------------------------------


def made(*nodes: tuple[str, int]) -> FastCost:
    """A cluster of these nodes, by type and number of GPUs."""
    document = load("metis/t4-v100-4-gpt3-1.3b").model_dump(mode="json")
    cluster = document["cluster"]
    one = cluster["nodes"][0]
    cluster["nodes"] = [
        one | {"name": f"n{i}", "gpu": gpu, "count": count}
        for i, (gpu, count) in enumerate(nodes)
    ]
    kept = {gpu for gpu, _ in nodes}
    cluster["gpus"] = {g: what for g, what in cluster["gpus"].items() if g in kept}
    return FastCost(Instance.model_validate_json(json.dumps(document)))


@pytest.mark.parametrize(
    "nodes",
    [
        (("V100", 2), ("V100", 2), ("T4", 1)),
        (("V100", 2), ("V100", 1), ("T4", 3)),
        (("T4", 2), ("T4", 2), ("T4", 2)),
    ],
)
def test_mappings_are_all_that_differ_by_more_than_equal_nodes(
    nodes: tuple[tuple[str, int], ...],
) -> None:
    """Beside all ways to take k GPUs of each node, up to names of equal nodes."""
    cost = made(*nodes)
    counts = [count for _, count in nodes]
    for stages in range(1, 5):
        for order in node_groups.sizes(sum(counts), stages, 1.0, 10):
            ways = product(*(held_by(count, stages) for count in counts))
            every = {
                tuple(sorted(zip(nodes, way, strict=True)))
                for way in ways
                if tuple(map(sum, zip(*way, strict=True))) == order
            }
            found = [by_node(nodes, m) for m in node_groups.mappings(cost, order)]
            assert len(found) == len(set(found))
            assert set(found) == every


def held_by(count: int, stages: int) -> list[tuple[int, ...]]:
    """How the GPUs of a node may be divided among stages."""
    rows = product(range(count + 1), repeat=stages)
    return [row for row in rows if sum(row) == count]


def by_node(
    nodes: tuple[tuple[str, int], ...], mapping: tuple[node_groups.Group, ...]
) -> tuple[tuple[tuple[str, int], tuple[int, ...]], ...]:
    """What each node gives to the stages, nodes without their names."""
    given = [tuple(dict(g).get(i, 0) for g in mapping) for i in range(len(nodes))]
    return tuple(sorted(zip(nodes, given, strict=True)))


@pytest.mark.parametrize(
    ("name", "options"),
    [
        ("t4-v100-8-gpt3-2.6b", {"variance": 0.0}),
        ("p100-t4-8-gpt3-2.6b", {"max_permute_len": 1}),
        ("t4-v100-8-gpt3-2.6b", {"most_plans": 20}),
        ("t4-v100-4-moe-1.3b", {"layer_balancing": False}),
        ("t4-v100-4-moe-1.3b", {"layer_balancing": False, "dp_first": False}),
    ],
)
def test_options_change_what_is_searched_and_plans_stay_valid(
    name: str, options: dict[str, float]
) -> None:
    instance, usual = load(f"metis/{name}"), usual_us(name)
    plan = planned("metis", instance, **options)
    assert plan is not None
    assert planned("metis", instance, **options) == plan
    other = objective(instance, plan)
    assert other != usual
    less = {"variance", "max_permute_len", "most_plans"}
    assert (other > usual) == (options.keys() <= less)  # the other two look at more


# --- cuts ----------------------------------------------------------------------------


@examples(60)
@given(
    st.data(),
    st.lists(st.integers(0, 9), min_size=1, max_size=8),
    st.integers(0, 9),
    st.integers(1, 9),
)
def test_cuts_are_legal_and_the_best_ones_are_those_of_trying_all(
    data: st.DataObject, load_us: list[int], head_us: int, n: int
) -> None:
    layers = len(load_us)
    rows = st.lists(
        st.tuples(st.integers(1, layers), st.floats(0.1, 9)),
        min_size=1,
        max_size=layers,
    )
    most, capacity = zip(*data.draw(rows), strict=True)
    stages = len(most)
    cuts = layer_cuts.proportional(load_us, head_us, capacity, most)
    assert (cuts is None) == (sum(most) < layers)
    if cuts is not None:
        assert (cuts[0], cuts[-1]) == (0, layers)
        runs = [last - first for first, last in pairwise(cuts)]
        assert all(1 <= run <= m for run, m in zip(runs, most, strict=True))

    def tau(j: int, first: int, last: int) -> int:
        if last - first > most[j]:
            return layer_cuts.NEVER
        return int(sum(load_us[first:last]) / capacity[j]) + 1

    values = []
    for inner in combinations(range(1, layers), stages - 1):
        taus = [tau(j, *span) for j, span in enumerate(pairwise((0, *inner, layers)))]
        if max(taus) < layer_cuts.NEVER:
            values.append(sum(taus) + (n - 1) * max(taus))
    found = layer_cuts.best(stages, layers, n, tau)
    assert (found is None) == (not values)
    if found is not None:
        taus = [tau(j, *span) for j, span in enumerate(pairwise(found))]
        assert sum(taus) + (n - 1) * max(taus) == min(values)
