"""The judge of post-training: by hand, rule by rule, and beside a simulation."""

from math import ceil
from random import Random
from statistics import median
from typing import Any

import pytest
from brute_force_training import best_training_plan
from hypothesis import given
from inputs import examples, tiny_problems
from simulated_rl import alone_ns, period_ns
from small_instances import small

import hetopt
from hetopt.costs.decoding import Engine
from hetopt.errors import InstanceError
from hetopt.plans import Engines, PostTraining, TrainingPlan
from hetopt.problems import post_training as judge
from hetopt.problems import training_plan
from hetopt.schema import Instance
from hetopt.search.halves import Halves

CARDS: dict[str, Any] = {
    "A": {"peak_tflops": 100, "memory_gib": 4, "memory_gbytes_per_s": 500},
    "B": {"peak_tflops": 50, "memory_gib": 4, "memory_gbytes_per_s": 800},
}
GENERATION = {
    **{"answers": 10, "prompt_tokens": 100, "staleness": 1},
    "answer_tokens": {"mean": 200, "longest": 600},
}


def instance(nodes: str = "A*2 B*2", **changes: Any) -> Instance:
    return small(nodes, CARDS, generation=GENERATION | changes)


def trained_on(whole: Instance, *nodes: str) -> TrainingPlan:
    """The best training plan on some nodes, named, by trying all."""
    cluster = whole.planned_cluster
    some = cluster.only([node for node in cluster.nodes if node.name in nodes])
    found = best_training_plan(whole.model_copy(update={"cluster": some}))
    return found[1]


def apart(whole: Instance, gpus: tuple[str, ...], degree: int = 1) -> PostTraining:
    engines = Engines(gpus=gpus, degree=degree)
    return PostTraining(training=trained_on(whole, "n0"), engines=(engines,))


@pytest.mark.parametrize("staleness", [0, 0.25, 1, 3])
def test_a_step_apart_is_what_the_formula_says(staleness: float) -> None:
    whole = instance(staleness=staleness)
    data, plan = judge.data(whole), apart(whole, ("n1:0", "n1:1"), 2)
    found = judge.evaluate(data, plan)
    one = data.tables.engines("n1")[2]
    us = training_plan.evaluate(whole, plan.trains).objective
    assert isinstance(us, int)
    training = ceil(us * 10 * 300 / (8 * 512))
    behind = training + ceil(training / 3)
    sent = ceil(whole.model.total_parameters * 2 / 1e9 * 1e6)  # 1 GB/s, 16 bits

    def time(steps: int) -> int:
        many = one.step_ns * max(steps, ceil(10 * 200 / one.at_once))
        return ceil((many + (one.answer_ns * 200 + one.prompt_ns) * 10) / 1e3)

    loop = (time(600) + behind + sent) / (1 + staleness)
    longest = ceil(600 / (1 + staleness))
    assert found.valid
    assert found.objective == ceil(max(time(longest) + sent, behind + sent, loop))
    shared = PostTraining(shared=plan.training, engines=plan.engines)
    assert judge.evaluate(data, shared).objective == time(600) + behind + sent


RULES = {
    "no_engines": {"engines": []},
    "unknown_gpu": {"engines": [{"gpus": ["n1:7"]}]},
    "engine_degree": {"engines": [{"gpus": ["n1:0", "n1:1", "n2:0"], "degree": 2}]},
    "engine_across_nodes": {"engines": [{"gpus": ["n1:0", "n2:0"], "degree": 2}]},
    "gpu_twice": {"engines": [{"gpus": ["n1:0", "n1:0"]}]},
    "divided_node": {"engines": [{"gpus": ["n0:1"]}]},
    "engine_memory": {"engines": [{"gpus": ["n3:0"]}]},
}


@pytest.mark.parametrize("rule", RULES)
def test_a_broken_rule_is_named(rule: str) -> None:
    none = {"peak_tflops": 50, "memory_gib": 2, "memory_gbytes_per_s": 800}
    whole = small("A*2 B*2 B*1 none*1", CARDS | {"none": none}, generation=GENERATION)
    made = trained_on(whole, "n0")
    if rule == "divided_node":  # on its first GPU
        one = whole.planned_cluster.nodes[0].model_copy(update={"count": 1})
        part = whole.planned_cluster.only([one])
        made = best_training_plan(whole.model_copy(update={"cluster": part}))[1]
    plan = {"training": made.model_dump(mode="json"), **RULES[rule]}
    found = hetopt.check({"plan": plan, "instance": whole.model_dump(mode="json")})
    assert [x.rule for x in found.violations] == [rule]
    if rule == "divided_node":
        parts = judge.Data(instance=whole, divide="gpus")
        plan = PostTraining.model_validate(plan, strict=False)
        assert judge.evaluate(parts, plan).valid


def test_a_list_of_lengths_is_its_mean_and_its_longest() -> None:
    found = set()
    for told in ((100, 300, 199, 600), {"mean": 300, "longest": 600}):
        whole = instance(answer_tokens=told)
        found.add(judge.evaluate(judge.data(whole), apart(whole, ("n1:0",))).objective)
    assert len(found) == 1


def test_an_instance_that_generates_nothing_poses_no_post_training() -> None:
    with pytest.raises(InstanceError, match=r"workload\.generation: found nothing"):
        hetopt.solve("tiny/two-nodes", problem="post_training")


@examples(30)
@given(data=tiny_problems("post_training"))
def test_idle_gpus_change_no_training(data: judge.Data) -> None:
    """What is proved of training on some GPUs holds on the whole cluster."""
    halves = Halves(data)
    for units in {tuple((n + 1) // 2 for n in halves.units), halves.units}:
        part = halves.instance(units)
        if (found := best_training_plan(part)) is not None:
            assert training_plan.evaluate(data.instance, found[1]).objective == found[0]


# --- beside a simulation -----------------------------------------------------------


def beside(seed: int) -> float:
    """What a drawn step takes by simulation, in steps of the formula."""
    rng = Random(seed)
    step_ns, answer_ns = rng.choice([2000, 10_000]), rng.choice([20, 100])
    one = Engine(step_ns, answer_ns, 500, rng.choice([8, 32]))
    mean, spread, answers = 60, rng.choice([0, 0.4, 0.8]), rng.choice([16, 96])
    each = answers * (one.answer_ns * mean + one.prompt_ns)

    def length() -> int:
        drawn = rng.lognormvariate(-(spread**2) / 2, spread)
        return max(1, round(mean * drawn))

    def time(least: int) -> int:
        return one.step_ns * max(least, ceil(answers * mean / one.at_once)) + each

    batch = [length() for _ in range(answers)]
    steps = max(*batch, ceil(sum(batch) / one.at_once))
    whole = one.step_ns * steps + one.answer_ns * sum(batch) + one.prompt_ns * answers
    # As many steps more as the longest answer has, where it begins late.
    assert 0 <= alone_ns(one, batch) - whole <= one.step_ns * max(batch)
    q = round(median(max(length() for _ in batch) for _ in range(30)))
    s, behind = rng.choice([0, 1, 2]), round(time(q) * rng.choice([0.3, 1.5]))
    sent = time(q) // 20
    keeps_up, loop = time(ceil(q / (1 + s))) + sent, time(q) + behind + sent
    formula = max(keeps_up, behind + sent, loop / (1 + s))
    return period_ns(one, length, answers, behind, sent, s, 60) / formula


def test_formulas_are_near_a_simulation_of_drawn_lengths() -> None:
    ratios = [beside(seed) for seed in range(20)]
    assert 0.98 < median(ratios) < 1.05
    assert 0.95 < min(ratios) < max(ratios) < 1.5
