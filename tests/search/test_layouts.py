"""Layouts, as many replicas of every stage: valid plans, and what a search keeps."""

from random import Random
from typing import Any

from hypothesis import given
from inputs import drawn, examples
from random_pipelines import random_instance
from small_instances import small

from hetopt.planners import sailor
from hetopt.problems import training_plan as judge
from hetopt.schema import Instance
from hetopt.search import islands, layouts
from hetopt.search.balancing import Balancer
from hetopt.search.fast_cost import FastCost
from hetopt.search.layouts import Layouts


def searched(instance: Instance, most: int = 200) -> tuple[FastCost, Layouts]:
    cost = FastCost(instance)
    found = Layouts(cost, Balancer(cost))
    found.search(None, most)
    return cost, found


@examples(25)
@given(drawn(random_instance, later=True))
def test_every_layout_is_a_valid_plan_that_takes_what_the_judge_says(
    instance: Instance,
) -> None:
    cost, found = searched(instance, 60)
    for layout, us in found._tried.items():
        if us is None:
            continue
        pipes = found.plan(layout)
        assert pipes is not None
        assert len(pipes) == layout.replicas
        assert len({tuple(slot[2:4] for slot in pipe.slots) for pipe in pipes}) == 1
        judged = judge.evaluate(instance, cost.plan(pipes))
        assert not judged.violations
        assert judged.objective == us
    plans = [us for us in found._tried.values() if us is not None]
    assert (found.best[0] if found.best else None) == min(plans, default=None)


@examples(20)
@given(drawn(random_instance))
def test_the_best_layout_has_no_better_neighbour(instance: Instance) -> None:
    _, found = searched(instance, 10_000)
    tried = {layout: us for layout, us in found._tried.items() if us is not None}
    if not tried:
        return
    best = [layout for layout in tried if tried[layout] == min(tried.values())]
    if not found._over():  # then every neighbour of a best one was tried
        assert any({*found._neighbours(one)} <= {*found._tried} for one in best)


def many_small_hosts() -> Instance:
    """40 hosts of a fast card and 30 of 4 slow ones; embedding and head are layers."""

    def profile(gpu: str, t: int, us: int) -> dict[str, Any]:
        times = [us // 20, *[us] * 12, us // 2]
        return {
            **{"gpu": gpu, "tensor_parallel": t, "micro_batch": 1, "layer_us": times},
            "layer_mib": [900, *[400] * 12, 900],
            "activation_mib": [20, *[400] * 12, 400],
        }

    rows = [profile("A", 1, 12_000), profile("V", 4, 16_000)]
    ends = [30_000_000, *[12_600_000] * 12, 30_000_000]
    shape = {"layers": 14, "heads": 16, "vocabulary": 50_000, "layer_parameters": ends}
    costs = {"layer_times": "profile", "head": "omit", "sync": "bottleneck"}
    return small(
        " ".join(["A*1"] * 40 + ["V*4"] * 30),
        {"A": (300, 40), "V": (100, 16)},
        model=shape,
        inter=2,
        rate=100,
        sequence_length=1024,
        global_batch=256,
        costs=costs | {"profile": rows},
    )


def test_islands_on_many_small_hosts_are_no_worse_than_stage_by_stage() -> None:
    instance = many_small_hosts()
    cost = FastCost(instance)
    pipes = islands.search(cost, Balancer(cost), Random(0), None, 200)
    other = judge.evaluate(instance, sailor.plan(instance)).objective
    assert other is not None
    assert cost.iteration_us(pipes) <= other


def test_degrees_next_to_one_that_a_size_lacks() -> None:
    """Three GPUs were measured with one size alone, which stages that are left lack."""
    assert list(layouts._beside([0, 1, 2, 4], 3)) == [2, 4]
    assert list(layouts._beside([0, 1, 2, 4], 2)) == [1, 4]
    assert list(layouts._beside(range(3), 2)) == [1]
    assert list(layouts._beside([0], 3)) == [0]
