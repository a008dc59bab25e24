"""Ports of nodes, which all stages share: by hand, and by independent computations."""

from random import Random
from typing import Any

import pytest
from flat import flat
from float_judge import FloatJudge
from hypothesis import given
from inputs import drawn, examples
from random_pipelines import random_instance, random_pipes
from test_adapters import parts_of, plan_of, two_nodes

from hetopt.explaining import explain
from hetopt.explaining.simulator import simulate
from hetopt.modelling import Limits
from hetopt.problems import training_plan
from hetopt.report import explanation as report
from hetopt.report import timeline
from hetopt.schema import Instance
from hetopt.schema.groups import WHOLE
from hetopt.search.fast_cost import FastCost
from hetopt.search.state import first_state

# Of `two_nodes`: activations of a sequence, and gradients of a layer; 2 GB/s between.
_BYTES, _RATE = 2_000_000, 2e9
_ACROSS = (["a", "b"],) * 4  # pipelines of two stages of a GPU each


@pytest.mark.parametrize("rows", [_ACROSS, (["a", "b"], ["b", "a"]) * 2])
def test_pipelines_that_cross_a_port_share_it(rows: tuple[list[str], ...]) -> None:
    """Each direction by itself: pipelines the other way make no difference."""
    parts = parts_of(two_nodes(1), plan_of(*rows, t=1))
    # 8 micro-batches in all, whichever pipeline has them.
    assert parts["ports"]["pipelines"]["us"] == 1e6 * 8 * _BYTES / _RATE
    assert parts["ports"]["pipelines"]["us"] > max(parts["pipeline_us"])
    assert parts["iteration_us"] == (
        parts["ports"]["pipelines"]["us"] + parts["sync_us"]
    )


@pytest.mark.parametrize(("zero", "passes"), [(0, 2), (3, 3)])
@pytest.mark.parametrize("sync", ["ring", "bottleneck"])
def test_stages_of_a_node_share_its_port_for_gradients(
    sync: str, zero: int, passes: int
) -> None:
    """However a node's layers are cut into stages: all gradients go through its port.

    Half of them in each pass, one replica being on each of two nodes.
    """
    instance = two_nodes(1, {"sync": sync, "zero": zero})
    seconds = passes * 8 * _BYTES / 2 / _RATE
    for rows, t in (((["a"], ["b"]), 4), ((["a", "a"], ["b", "b"]), 2)):
        parts = parts_of(instance, plan_of(*rows, t=t))
        assert parts["sync_us"] == pytest.approx(1e6 * seconds, abs=8)
    busy = parts["ports"]["sync"]
    assert busy == {"us": parts["sync_us"], "node": "a"}


# --- agreement -------------------------------------------------------------------


def shared(random: Random, instance: Instance, **costs: Any) -> Instance:
    """With slow links, and few ports on most nodes."""
    tree = flat(instance)
    inter = tree["cluster"]["inter"]
    inter["gbytes_per_s"] = random.choice([0.7, 0.05, 0.005])
    for node in tree["cluster"]["nodes"]:
        node["adapters"] = random.choice([None, 1, 1, 2])
    tree["workload"]["costs"] |= costs
    return Instance.model_validate(tree, strict=False)


def plainly(random: Random) -> tuple[Random, Instance]:
    return random, shared(random, random_instance(random, later=True))


@examples(40)
@given(drawn(plainly))
def test_judge_fast_evaluator_and_floats_agree(drawn: tuple[Random, Instance]) -> None:
    agree(*drawn)


def agree(random: Random, instance: Instance) -> None:
    cost, floats = FastCost(instance), FloatJudge(instance)
    named = {*instance.workload.recomputes} - {*WHOLE}  # which floats do not know
    for _ in range(4):
        pipes = random_pipes(random, instance)
        judged = training_plan.evaluate(instance, cost.plan(pipes))
        assert judged.objective == cost.iteration_us(pipes)
        theirs = 1e6 * floats.iteration(cost.plan(pipes))
        roundings = floats.roundings(cost.plan(pipes))
        assert named or abs(judged.objective - theirs) <= 1e-9 * theirs + roundings
        if (state := first_state(cost, pipes)) is not None:
            again = training_plan.evaluate(instance, cost.plan(state.pipes()))
            assert state.objective == again.objective


# --- what is said of them --------------------------------------------------------


def test_explain_and_the_timeline_name_the_busiest_port() -> None:
    instance, plan = two_nodes(1), plan_of(*_ACROSS, t=1)
    found = explain(instance, plan, Limits(time_s=0))
    assert "activations 8.00 ms at a" in " ".join(report.limits(found))
    assert found.to_json()["ports"]["pipelines"]["node"] == "a"
    for row in found.stages:
        assert sum(row.parts.values()) == found.iteration_us
        assert row.parts["ports"] > 0
    simulated = simulate(instance, plan)
    assert "busiest network port, 8.00 ms" in " ".join(timeline.sentences(simulated))
