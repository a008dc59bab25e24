"""Whale: shares in proportion to compute under memory, layers too; its structures."""

import json
from fractions import Fraction
from itertools import combinations, pairwise, permutations, product
from typing import Any

import pytest
from changed_records import changed
from hypothesis import given
from hypothesis import strategies as st
from inputs import examples, seeds

import hetopt
from hetopt.errors import NoPlan
from hetopt.files.clusters import generate
from hetopt.planners import whale
from hetopt.plans import TrainingPlan
from hetopt.problems import training_plan
from hetopt.schema import Instance, exact


def power(instance: Instance, node: str) -> Fraction:
    """Effective TFLOP/s."""
    gpu = instance.planned_cluster.gpus[instance.planned_cluster.node[node].gpu]
    return exact(gpu.peak_tflops) * exact(gpu.efficiency)


# --- shares ----------------------------------------------------------------------


kinds = st.tuples(st.integers(1, 9), st.integers(1, 3), st.integers(0, 6))


@examples(30)
@given(st.lists(kinds, min_size=1, max_size=4), st.integers(1, 9))
def test_shares_have_the_least_largest_load_that_whole_numbers_and_caps_allow(
    drawn: list[tuple[int, int, int]], total: int
) -> None:
    powers = [Fraction(upper, lower) for upper, lower, _ in drawn]
    caps = [cap for _, _, cap in drawn]
    ranges = [range(1, cap + 1) for cap in caps]
    loads = [
        max(s / p for s, p in zip(shares, powers, strict=True))
        for shares in product(*ranges)
        if sum(shares) == total
    ]
    found = whale.proportional(powers, caps, total)
    assert (found is None) == (not loads)
    if found is not None:
        assert sum(found) == total
        assert all(1 <= s <= cap for s, cap in zip(found, caps, strict=True))
        assert max(s / p for s, p in zip(found, powers, strict=True)) == min(loads)


loads_and_sizes = st.tuples(st.integers(1, 9), st.integers(1, 5))


@examples(30)
@given(
    st.lists(loads_and_sizes, min_size=1, max_size=7),
    st.lists(st.integers(1, 9), min_size=1, max_size=4),
    st.integers(4, 18),
)
def test_cuts_have_the_least_largest_load_that_memory_allows(
    drawn: list[tuple[int, int]], powers: list[int], room: int
) -> None:
    layers, stages = len(drawn), len(powers)
    each, sizes = zip(*drawn, strict=True)
    work = [sum(each[:i]) for i in range(layers + 1)]

    def fits(j: int, first: int, last: int) -> bool:
        return sum(sizes[first:last]) <= room - j

    def load(ends: list[int]) -> Fraction:
        spans = zip(pairwise(ends), powers, strict=True)
        return max(Fraction(work[b] - work[a], p) for (a, b), p in spans)

    def whole(ends: list[int]) -> bool:
        return all(a < b and fits(j, a, b) for j, (a, b) in enumerate(pairwise(ends)))

    every = (
        [0, *inner, layers] for inner in combinations(range(1, layers), stages - 1)
    )
    loads = [load(ends) for ends in every if whole(ends)]
    found = whale.cuts(work, powers, fits)
    assert (found is None) == (not loads)
    if found is not None:
        assert (found[0], found[-1], len(found)) == (0, layers, stages + 1)
        assert whole(found)
        assert load(found) == min(loads)


# --- plans -----------------------------------------------------------------------


def with_samples(seed: int) -> Instance:
    """A random instance whose micro-batches replicas share; memory may be short."""
    instance = generate(["unequal", "tight_memory"][seed % 2], size="tiny", seed=seed)

    def larger(data: dict[str, Any]) -> None:
        data["workload"] |= {"micro_batch_sizes": [8], "global_batch": 16}

    return changed(instance, larger)


def planned(instance: Instance, **switches: bool) -> TrainingPlan | None:
    try:
        plan = whale.plan(instance, **switches)
    except NoPlan:
        return None
    assert training_plan.evaluate(instance, plan).valid
    return plan


@examples(10)
@given(seeds())
def test_samples_are_in_proportion_to_compute_unless_memory_forbids(seed: int) -> None:
    instance = with_samples(seed)
    plan = planned(instance)
    for i, pipeline in enumerate(plan.pipelines if plan else ()):
        for j, stage in enumerate(pipeline.stages):
            for one, two in permutations(range(len(stage.replicas)), 2):
                giver, taker = stage.replicas[one], stage.replicas[two]
                last = giver.samples / power(instance, giver.node)
                sooner = (taker.samples + 1) / power(instance, taker.node) < last
                if sooner and giver.samples > 1:
                    document = plan.model_dump(mode="json")
                    replicas = document["pipelines"][i]["stages"][j]["replicas"]
                    replicas[one]["samples"] -= 1
                    replicas[two]["samples"] += 1
                    other = TrainingPlan.model_validate_json(json.dumps(document))
                    judged = training_plan.evaluate(instance, other)
                    assert {v.rule for v in judged.violations} == {"memory"}


@pytest.mark.parametrize("equal", [False, True])
@pytest.mark.parametrize(
    "name", ["h800-a100-4x4-gpt3-6.7b", "5-a100-3-h800-llama-6.7b"]
)
def test_replicas_of_a_stage_have_the_same_layers(name: str, equal: bool) -> None:
    instance = hetopt.load(f"autohet/{name}")
    plan = planned(instance, equal_layers=equal)
    spans = [tuple(stage.layers for stage in p.stages) for p in plan.pipelines]
    assert len(set(spans)) == 1
    if equal:
        sizes = [last - first for first, last in spans[0]]
        assert max(sizes) - min(sizes) <= 1


def test_nodes_of_larger_memory_serve_the_earlier_stages() -> None:
    instance = hetopt.load("autohet/1-a100-4-h20-llama-6.7b")
    plan = planned(instance)
    gpus = instance.planned_cluster.node
    types = [gpus[s.replicas[0].node].gpu for s in plan.pipelines[0].stages]
    assert types == ["H20"] * 4 + ["A100"]
