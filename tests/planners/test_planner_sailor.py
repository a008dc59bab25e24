"""Sailor: its programme against trying all, and the rules that keep it small."""

from itertools import permutations
from typing import Any

import pytest
from exporter_plans import pipeline
from hypothesis import given
from hypothesis import strategies as st
from inputs import examples, seeds
from small_instances import small

import hetopt
from hetopt.files.clusters import generate
from hetopt.planners import sailor
from hetopt.plans import TrainingPlan
from hetopt.problems import training_plan
from hetopt.schema import Instance
from hetopt.search.fast_cost import FastCost


def cluster(nodes: dict[str, tuple[int, int]], **workload: Any) -> Instance:
    """Nodes by name: peak TFLOP/s of their GPUs, and how many; 6 layers, 1200 samples.

    Their links are too slow for tensor parallelism.
    """
    costs = {"head": "omit", "recompute": "full", "in_flight": "1f1b"}
    asked = {"sequence_length": 1024, "global_batch": 1200, "costs": costs, **workload}
    hosts = " ".join(f"{x}=g{tflops}*{n}" for x, (tflops, n) in nodes.items())
    gpus = {f"g{tflops}": (tflops, 80) for tflops, _ in nodes.values()}
    return small(hosts, gpus, model={"layers": 6}, inter=10, rate=1, **asked)


def programme(
    instance: Instance, stages: int, d: int, splits: Any = "all", raised: bool = True
) -> Any:
    cost = FastCost(instance)
    types = sailor.types_of(cost)
    every = (raised,) * len(types)
    return sailor.Programme(cost, types, stages, 1, d, every, splits)


def whole(instance: Instance) -> tuple[int, ...]:
    return tuple(node.count for node in instance.planned_cluster.nodes)


# --- the rules -------------------------------------------------------------------


@given(st.lists(st.integers(0, 4), min_size=1, max_size=4), st.integers(1, 6))
def test_every_split_is_one_of_those_that_add_up(offers: list[int], d: int) -> None:
    found = list(sailor.every_split(offers, d))
    assert len(set(found)) == len(found)
    assert all(sum(split) == d for split in found)
    ways = [1] + [0] * d  # how many splits take so many, type by type
    for offer in offers:
        ways = [sum(ways[max(0, k - offer) : k + 1]) for k in range(d + 1)]
    assert len(found) == ways[d]


@pytest.mark.parametrize("raised", [True, False])
@pytest.mark.parametrize("name", ["hexiscale/setting-1-llama2-7b", "tiny/two-nodes"])
def test_a_degree_is_doubled_while_that_is_worth_it_and_memory_asks_for_it(
    name: str, raised: bool
) -> None:
    """Checked by what the choice and its neighbours take."""
    instance = hetopt.load(name)
    for stages in (1, 2, 4):
        made = programme(instance, stages, 1, raised=raised)
        for j, row in enumerate(made.choices):
            for choice, nodes in zip(row, made.types, strict=True):
                usable = made.cost.degrees(nodes[0], 1)
                degrees = [t for t in usable if t in (1, 2, 4, 8)]
                us = {t: made.stage_us(j, nodes[0], t) for t in degrees}
                fit = [
                    t
                    for t in degrees
                    if made.cost.need_mib(
                        1, made.n, stages, j, made.slot(j, nodes[0], t), 1
                    )
                    <= made.cost.room[nodes[0]]
                ]
                if choice is None:
                    assert not fit
                    continue
                assert choice == (choice.t, us[choice.t])
                assert choice.t in fit
                if choice.t > min(fit):  # memory did not ask for it
                    assert raised
                    assert us[choice.t // 2] >= sailor.SPEEDUP * us[choice.t]
                if raised and 2 * choice.t in us and min(fit) == 1:
                    assert us[choice.t] < sailor.SPEEDUP * us[2 * choice.t]


@given(st.integers(1, 300), st.integers(1, 60))
def test_degrees_that_save_no_micro_batch_are_left_out(total: int, most: int) -> None:
    found = list(sailor.worthwhile(total, most))
    counts = [-(-total // d) for d in found]
    assert counts == sorted({-(-total // d) for d in range(1, min(most, total) + 1)})
    for d, count in zip(found, counts, strict=True):
        assert d == min(k for k in range(1, most + 1) if -(-total // k) == count)


@examples(10)
@given(family=st.sampled_from(["equal", "unequal", "steep"]), seed=seeds())
def test_what_is_forgotten_as_slow_loses_no_better_plan(family: str, seed: int) -> None:
    instance = generate(family, size="tiny", seed=seed)
    values = []
    for forget in (True, False):
        search = sailor.Search(FastCost(instance), "all")
        with pytest.MonkeyPatch.context() as patch:
            if not forget:
                patch.setattr(sailor.Programme, "forget_slow", lambda *_: None)
            search.run()
        values.append(search.best.us)
    kept, every = values
    assert (kept is None) == (every is None)
    assert kept is None or kept <= every


# --- the programme ---------------------------------------------------------------


def one_gpu_each(family: str, seed: int) -> Instance:
    """A random instance whose nodes have one GPU, and room for everything."""
    document = generate(family, size="tiny", seed=seed).model_dump(mode="json")
    for node in document["cluster"]["nodes"]:
        node["count"] = 1
    for card in document["cluster"]["gpus"].values():
        card["memory_gib"] = 1000.0
    document["workload"]["micro_batch_sizes"] = [1]
    return Instance.model_validate(document, strict=False)


@examples(15)
@given(family=st.sampled_from(["equal", "unequal"]), seed=seeds())
def test_two_stages_are_the_best_of_all_firsts_by_the_judge(
    family: str, seed: int
) -> None:
    """One pipeline over two nodes; behind each first one the fastest of the others."""
    instance = one_gpu_each(family, seed)
    nodes, cut = instance.planned_cluster.nodes, instance.model.layers // 2
    kinds = set(FastCost(instance).kind)
    if len(nodes) < 2 or instance.model.layers < 2 or len(kinds) < len(nodes):
        return
    judged: dict[str, list[tuple[int, int]]] = {}
    for first, last in permutations(nodes, 2):
        shapes = [(cut, 1, 1), (instance.model.layers - cut, 1, 1)]
        gpus = [f"{node.name}:0" for node in (first, last)]
        one = pipeline(gpus, shapes, instance.workload.global_batch, 1)
        plan = TrainingPlan(pipelines=(one,))
        parts = training_plan.evaluate(instance, plan).parts
        times = parts["stages"][0][1]["compute_us"], parts["pipeline_us"][0]
        judged.setdefault(first.name, []).append(times)
    least = [min(last_us for last_us, _ in rows) for rows in judged.values()]
    tied = [
        [us for last_us, us in rows if last_us == fastest]
        for rows, fastest in zip(judged.values(), least, strict=True)
    ]
    found = programme(instance, 2, 1).solve(0, whole(instance))
    assert min(map(min, tied)) <= found.us <= min(map(max, tied))


def test_by_hand_fast_gpus_pace_one_pipeline_each() -> None:
    """2 fast and 2 slow GPUs, 6 layers: the slow ones pace every stage they are in."""
    instance = cluster({"f": (200, 2), "s": (100, 2)})
    found = programme(instance, 1, 4).solve(0, whole(instance))
    slow_us = FastCost(instance).prefix(1, 1, 1)[0][6]
    sync_us = found.sync
    assert found.us == 1200 // 4 * slow_us + sync_us
    fast = programme(instance, 1, 2).solve(0, whole(instance))
    fast_us = FastCost(instance).prefix(0, 1, 1)[0][6]
    assert fast.us == 1200 // 2 * fast_us + fast.sync
    assert {slot.node for slot in fast.rows[0]} == {0}
