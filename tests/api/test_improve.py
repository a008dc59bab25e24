"""The local search never loses, repeats itself, and claims what the judge finds."""

from itertools import pairwise
from random import Random

import pytest
from random_pipelines import random_instance, random_pipes
from settings import SIMPLE, setting

from hetopt import api, registry
from hetopt.modelling import Limits
from hetopt.plans import TrainingPlan
from hetopt.portfolio import searching
from hetopt.problems import Objective, training_plan
from hetopt.result import Method, Result, Status, Stop
from hetopt.schema import Instance
from hetopt.search.balancing import Balancer
from hetopt.search.fast_cost import FastCost, Pipe
from hetopt.search.improving import improve
from hetopt.search.moves import Moves
from hetopt.search.quick import time_of
from hetopt.search.state import first_state


def _one_pipeline(instance: Instance) -> TrainingPlan:
    """All nodes in one pipeline, a whole node a stage: valid, and far from good."""
    cost = FastCost(instance)
    chain = tuple((i, node.count) for i, node in enumerate(cost.nodes))
    batch = instance.workload.global_batch
    slots = Balancer(cost).balanced(1, batch, chain)
    assert slots is not None
    return cost.plan([Pipe(batch, 1, slots)])


@pytest.mark.parametrize(("number", "model", "most_s"), SIMPLE)
def test_simple_families_are_reached_from_a_bad_plan(
    number: str, model: str, most_s: float
) -> None:
    instance = setting(number, model)
    found = improve(instance, _one_pipeline(instance), rounds=2000)
    objective = training_plan.evaluate(instance, found).objective
    assert objective <= most_s * 10**6


def test_the_search_ends_as_soon_as_the_target_is_reached() -> None:
    instance = setting("1", "7b")
    plan = _one_pipeline(instance)
    start = time_of(instance, plan)
    assert improve(instance, plan, target=start) is plan
    reported: list[int] = []
    target = start * 9 // 10
    found = improve(instance, plan, target=target, report=reported.append)
    assert time_of(instance, found) == reported[-1] <= target
    assert all(objective > target for objective in reported[:-1])


def _crossing(plan: TrainingPlan, link: set[str]) -> int:
    """Hops and synchronised layers of a plan between the two nodes of a link."""
    hops = sum(
        {one.replicas[0].node, two.replicas[0].node} == link
        for pipeline in plan.pipelines
        for one, two in pairwise(pipeline.stages)
    )
    holders: dict[int, set[str]] = {}
    for pipeline in plan.pipelines:
        for stage in pipeline.stages:
            for layer in stage.span:
                holders.setdefault(layer, set()).add(stage.replicas[0].node)
    return hops + sum(link <= nodes for nodes in holders.values())


def test_one_slow_link_loses_its_traffic() -> None:
    link = {"node2", "node3"}
    size = (4, 4, 16)
    instance = setting("1", "13b", pairs=([*sorted(link), 0.001],), size=size)
    plan = _one_pipeline(instance)
    assert _crossing(plan, link)
    unaware = setting("1", "13b", size=size)
    assert _crossing(improve(unaware, plan, rounds=1500), link)
    assert not _crossing(improve(instance, plan, rounds=1500), link)


# --- as a result -----------------------------------------------------------------

PLANNERS = registry.entries_for("planners", "training_plan")


@pytest.mark.parametrize("planner", PLANNERS)
def test_improved_results_are_never_worse_than_the_planners(planner: str) -> None:
    instance = setting("2", "7b", size=(3, 4, 12))
    before = api.plan(instance, planner, limits=10)
    after = api.plan(instance, planner, improve=True, limits=Limits(1, gap=0.3))
    assert after.method.name == f"{planner}+improve"
    assert after.objective <= before.objective
    assert after.bound is not None
    assert after.gap is not None
    assert after.stop is not Stop.GAP or after.gap <= 0.3
    values = [point.incumbent for point in after.trace]
    assert values[-1] == after.objective


def test_an_interrupted_search_keeps_what_it_found() -> None:
    instance = setting("1", "13b")
    heard: list[Objective] = []

    def interrupt(objective: Objective | None, bound: Objective | None) -> None:
        assert objective is not None
        heard.append(objective)
        if len(heard) == 3:
            raise KeyboardInterrupt

    start = Result(
        problem="training_plan",
        data=instance,
        method=Method("by hand", "given"),
        status=Status.FEASIBLE,
        stop=Stop.FINISHED,
        plan=_one_pipeline(instance),
    )
    result = searching.improve_result(start, Limits(time_s=60), interrupt)
    assert result.stop is Stop.INTERRUPTED
    assert heard[0] == start.objective
    assert result.objective == heard[2] < heard[1]


@pytest.mark.parametrize("seed", range(6))
def test_a_state_after_many_moves_is_worth_what_the_judge_says(seed: int) -> None:
    random = Random(f"moves {seed}")
    state = None
    while state is None:
        instance = random_instance(random, uniform=seed % 2 == 0)
        cost = FastCost(instance)
        pipes = random_pipes(random, instance)
        state = first_state(cost, pipes) if all(map(cost.fits, pipes)) else None
    moves = Moves(Balancer(cost), Random(seed))
    taken = 0
    for _ in range(300):
        move = moves.draw(state)
        trial = None if move is None else state.changed(*move)
        if trial is not None:
            state, taken = trial, taken + 1
            if taken % 10 == 0:
                judged = training_plan.evaluate(instance, cost.plan(state.pipes()))
                assert judged.valid
                assert judged.objective == state.objective
    assert taken > 20
