"""All nodes or some: the best set takes least, and no less than what is proved."""

import json
from fractions import Fraction
from functools import cache
from typing import Any

import pytest
from small_instances import small

import hetopt
from hetopt.api import nodes
from hetopt.api.nodes import NodeChoice
from hetopt.errors import InstanceError
from hetopt.problems import training_plan

GPUS = {
    "big": {"peak_tflops": 300, "memory_gib": 80, "usd_per_hour": 3, "watts": 400},
    "small": {"peak_tflops": 60, "memory_gib": 24, "usd_per_hour": 2, "watts": 350},
}


def mixed(**gpus: dict[str, Any]) -> hetopt.Instance:
    """A node that is worth its price, and two that are not."""
    hosts, cards = "b-1=big*2 s-1=small*2 s-2=small*2", {**GPUS, **gpus}
    return small(hosts, cards, model={"layers": 8}, inter=5, global_batch=16)


def usd(instance: hetopt.Instance, plan: hetopt.TrainingPlan) -> Fraction:
    us = training_plan.evaluate(instance, plan).objective
    assert isinstance(us, int)
    nodes = [instance.planned_cluster.node[name] for name in plan.gpus_by_node]
    rate = sum(n.count * GPUS[n.gpu]["usd_per_hour"] for n in nodes)
    return Fraction(rate * us, 3_600_000_000)


@cache
def chosen() -> NodeChoice:
    return hetopt.choose_nodes(mixed(), limits=3)


def test_the_chosen_set_costs_least_and_no_less_than_is_proved() -> None:
    instance = mixed()
    choice = chosen()
    values = [one.usd for one in choice.sets if one.usd is not None]
    assert choice.value == min(values)
    assert choice.bound.value <= min(values)
    plan = choice.result.plan
    assert choice.result.data == instance
    assert choice.result.bound is None  # that would be one on the time
    assert training_plan.evaluate(instance, plan).valid
    assert choice.value == usd(instance, plan)


def test_dear_nodes_are_left_idle() -> None:
    choice = chosen()
    assert {*choice.result.plan.gpus_by_node} == {"b-1"}
    everything = [one.usd for one in choice.sets if one.usd is not None]
    assert choice.value == min(everything)


def test_of_many_groups_each_is_left_out() -> None:
    tree = mixed().model_dump(mode="json")
    nodes = [
        {"name": f"s-{i}", "gpu": "small", "count": i, "intra_gbytes_per_s": 50}
        for i in (1, 2, 3, 4)
    ]
    tree["cluster"]["nodes"] = [tree["cluster"]["nodes"][0], *nodes]
    instance = hetopt.Instance.model_validate_json(json.dumps(tree))
    choice = hetopt.choose_nodes(instance, limits=1)
    assert len(choice.sets) <= 1 + 5
    assert all(len(one.without) <= 1 for one in choice.sets)
    values = [one.usd for one in choice.sets if one.usd is not None]
    assert choice.value == min(values)
    assert "NodeChoice: " in repr(choice)


def test_without_any_plan_no_set_is_looked_at() -> None:
    tiny = {name: {**gpu, "memory_gib": 0.001} for name, gpu in GPUS.items()}
    choice = hetopt.choose_nodes(mixed(**tiny), limits=1)
    assert (len(choice.sets), choice.best, choice.value) == (1, None, None)
    assert choice.result.status is hetopt.Status.INFEASIBLE


def test_a_price_that_is_not_known_is_asked_for() -> None:
    dear = {k: v for k, v in GPUS["big"].items() if k != "usd_per_hour"}
    with pytest.raises(InstanceError, match=r"cluster\.gpus\.big\.usd_per_hour"):
        hetopt.choose_nodes(mixed(big=dear), limits=1)


def test_a_bound_that_is_above_a_plan_is_no_choice() -> None:
    choice = chosen()
    wrong = hetopt.Bound((choice.value or 0) + 1, "nothing")
    with pytest.raises(Exception, match="contradicts"):
        NodeChoice(choice.result, choice.sets, choice.best, wrong)


def test_all_nodes_have_the_time_that_plan_has(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[tuple[int, float]] = []
    plan = nodes.planning.plan

    def heard(data: hetopt.Instance, *words: Any, **named: Any) -> hetopt.Result:
        limits = hetopt.Limits(1) if named["limits"].time_s else named["limits"]
        asked.append((len(data.planned_cluster.nodes), named["limits"].time_s))
        return plan(data, *words, **named | {"limits": limits})

    monkeypatch.setattr(nodes.planning, "plan", heard)
    hetopt.choose_nodes(mixed(), limits=600)
    assert asked[0] == (3, 600)
    assert all(600 >= seconds > 100 for count, seconds in asked[1:] if count < 3)


def test_plans_of_all_nodes_are_starts_of_some() -> None:
    # A plan that happens to use the big node alone is a start without the small ones.
    instance = mixed()
    cluster = instance.planned_cluster
    alone = instance.model_copy(update={"cluster": cluster.only([cluster.node["b-1"]])})
    plan = hetopt.plan(alone, limits=5).plan
    choice = hetopt.choose_nodes(instance, start=plan, limits=0)
    assert [one.without for one in choice.sets] == [()]  # no time for any
    choice = hetopt.choose_nodes(instance, start=plan, limits=2)
    judged = training_plan.evaluate(instance, plan).objective
    without_small = next(o for o in choice.sets if {*o.without} == {"s-1", "s-2"})
    assert (without_small.iteration_us or 10**18) <= (judged or 0)
