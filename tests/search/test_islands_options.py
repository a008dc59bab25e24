"""Islands: options that are kept are the best of all, and sets of nodes of a plan."""

from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st
from inputs import examples

import hetopt
from hetopt.search.balancing import Balancer
from hetopt.search.fast_cost import FastCost, Pipe, Slot
from hetopt.search.islands import _sets_of
from hetopt.search.islands.options import Options

NAMES = (
    "hexiscale/large-240-llama2-70b",
    "autohet/three-types-24-gpt3-6.7b",
    "metis/t4-v100-16-moe-10b",
    "metis/nonuniform-c-gpt3-2.6b",
    "generated:unequal/64/0",
)


@pytest.mark.parametrize("name", NAMES)
def test_options_that_are_kept_are_the_best_of_all(name: str) -> None:
    cost = FastCost(hetopt.load(name))
    some = Options(cost, Balancer(cost), kept=5)
    every = Options(cost, Balancer(cost), kept=1_000_000)
    random, numbers = Random(0), range(len(cost.nodes))
    for _ in range(10):
        nodes = tuple(
            sorted(random.sample(numbers, random.randint(1, min(3, len(numbers)))))
        )
        assert some.of(nodes) == every.of(nodes)[:5]


@examples(100)
@given(st.lists(st.lists(st.integers(0, 9), min_size=1, max_size=4), max_size=6))
def test_nodes_are_in_one_set_where_pipelines_lead_from_one_to_the_other(
    pipelines: list[list[int]],
) -> None:
    pipes = [
        Pipe(1, 1, tuple(Slot(node, 1, 0, 1) for node in nodes)) for nodes in pipelines
    ]
    reached = {node: {node} for nodes in pipelines for node in nodes}
    for _ in reached:  # as many steps as the longest way
        for nodes in pipelines:
            together = set().union(*(reached[node] for node in nodes))
            for node in nodes:
                reached[node] |= together
    expected = sorted({tuple(sorted(one)) for one in reached.values()})
    assert _sets_of(pipes) == expected
