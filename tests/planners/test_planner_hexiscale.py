"""HexiScale's two phases and the islands: partitions, pipelines, plans."""

from itertools import combinations, pairwise
from random import Random
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from inputs import examples, seeds
from settings import SIMPLE, setting

from hetopt.planners import hexiscale
from hetopt.planners.hexiscale.graph import Graph
from hetopt.search import islands
from hetopt.search.quick import time_of

# The whole setting takes seconds for each claim; what it shows, a small one does too.
sizes = pytest.mark.parametrize(
    "size",
    [(4, 4, 16), pytest.param(None, marks=pytest.mark.slow)],
    ids=["small", "whole"],
)


def _cut(bandwidth: np.ndarray, groups: list[list[int]]) -> float:
    total = 0.0
    for i, one in enumerate(groups):
        for two in groups[i + 1 :]:
            total += np.array(one) @ bandwidth @ np.array(two)
    return total


def _cluster(nodes: int) -> tuple[np.ndarray, np.ndarray]:
    bandwidth = np.full((nodes, nodes), 0.7)
    np.fill_diagonal(bandwidth, 24.0)
    return bandwidth, np.ones(nodes)


@pytest.mark.parametrize("maximise", [False, True])
@pytest.mark.parametrize("groups", [1, 2, 3, 5, 8])
def test_every_gpu_is_in_one_group_and_loads_are_balanced(
    groups: int, maximise: bool
) -> None:
    graph = Graph(*_cluster(6))
    counts = [8, 8, 4, 4, 8, 8]
    found = graph.partition(counts, groups, Random(0), maximise=maximise)
    assert len(found) == groups
    assert [sum(column) for column in zip(*found, strict=True)] == counts
    loads = [sum(group) for group in found]
    assert max(loads) <= 1.35 * sum(loads) / groups


def test_least_cut_keeps_nodes_whole_and_greatest_cut_splits_them_evenly() -> None:
    bandwidth, compute = _cluster(4)
    graph = Graph(bandwidth, compute)
    least = graph.partition([4] * 4, 4, Random(1))
    assert sorted(map(sorted, least)) == [[0, 0, 0, 4]] * 4
    greatest = graph.partition([4] * 4, 4, Random(1), maximise=True)
    assert _cut(bandwidth, greatest) > _cut(bandwidth, least)
    assert all(max(group) <= 2 for group in greatest)


def _crossing(edges: np.ndarray, side: list[int]) -> int:
    pairs = combinations(range(len(side)), 2)
    return sum(int(edges[i, j]) for i, j in pairs if side[i] != side[j])


def _textbook(edges: np.ndarray, side: list[int]) -> int:
    """The least cut on the way of Kernighan and Lin's one sequence of swaps."""
    side, free = [*side], {*range(len(side))}
    cut = least = _crossing(edges, side)
    while pairs := [
        (i, j) for i, j in combinations(sorted(free), 2) if side[i] != side[j]
    ]:
        after = {}
        for i, j in pairs:
            swapped = [*side]
            swapped[i], swapped[j] = side[j], side[i]
            after[i, j] = _crossing(edges, swapped)
        i, j = min(pairs, key=after.__getitem__)
        side[i], side[j] = side[j], side[i]
        free -= {i, j}
        cut = after[i, j]
        least = min(least, cut)
    return least


@examples(25)
@given(seeds(), st.integers(2, 5), st.sampled_from([1, -1]))
def test_no_sequence_of_swaps_betters_a_refined_bisection(
    seed: int, half: int, sign: int
) -> None:
    random = Random(seed)
    edges = np.zeros((2 * half, 2 * half))
    for i, j in combinations(range(2 * half), 2):
        edges[i, j] = edges[j, i] = random.choice([0, 1, 2, 5, 10])
    graph = Graph(edges, np.ones(2 * half))
    start = np.array([0] * half + [1] * half)
    found = graph._refine(np.eye(2 * half), start, 2, random, sign, 1.0)
    side = [int(group) for group in found]
    assert sum(side) == half
    own = _crossing(sign * edges, side)
    assert own <= _crossing(sign * edges, [int(group) for group in start])
    assert _textbook(sign * edges, side) == own


@pytest.mark.parametrize(
    ("number", "model", "released_s"),
    [
        ("1", "7b", 62.0),
        ("2", "13b", 91.5),
        pytest.param("1", "13b", 122.0, marks=pytest.mark.slow),
        pytest.param("2", "7b", 56.1, marks=pytest.mark.slow),
    ],
)
def test_plans_beat_those_of_the_released_planner(
    number: str, model: str, released_s: float
) -> None:
    instance = setting(number, model)
    assert time_of(instance, hexiscale.plan(instance)) < released_s * 10**6


@pytest.mark.parametrize(("number", "model", "most_s"), SIMPLE)
def test_islands_reach_the_simple_families(
    number: str, model: str, most_s: float
) -> None:
    instance = setting(number, model)
    assert time_of(instance, islands.plan(instance)) <= most_s * 10**6


def test_rounds_are_kept_and_the_best_is_the_plan() -> None:
    instance = setting("2", "7b")
    plan, history = hexiscale.plan_with(instance, rounds=20)
    assert len(history) == 20
    assert {round_.maximise for round_ in history} == {False, True}
    reached = [r.objective for r in history if r.objective is not None]
    assert min(reached) == time_of(instance, plan)


@sizes
def test_random_partitions_do_worse_in_as_many_rounds(size: Any) -> None:
    instance = setting("1", "7b", size=size)
    dealt = hexiscale.plan(instance, random_partition=True)
    ours = hexiscale.plan(instance)
    assert time_of(instance, ours) < time_of(instance, dealt)


@sizes
@pytest.mark.parametrize("planner", [hexiscale, islands])
def test_one_slow_link_is_avoided(planner: object, size: Any) -> None:
    slow = ("node2", "node3")
    instance = setting("1", "13b", pairs=([*slow, 0.001],), size=size)
    plan = planner.plan(instance)  # type: ignore[attr-defined]
    hops = {
        (one.replicas[0].node, two.replicas[0].node)
        for pipeline in plan.pipelines
        for one, two in pairwise(pipeline.stages)
    }
    assert not hops & {slow, slow[::-1]}
    unaware = planner.plan(setting("1", "13b", size=size))  # type: ignore[attr-defined]
    assert time_of(instance, plan) < time_of(instance, unaware)
