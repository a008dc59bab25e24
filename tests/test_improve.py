"""The local search never loses, repeats itself, and claims what the judge finds."""

from random import Random

import pytest
from random_pipelines import random_instance, random_pipes
from settings import setting

from hetopt._improve_moves import Moves
from hetopt._improve_state import first_state
from hetopt.balancing import Balancer
from hetopt.fast_cost import FastCost, Pipe
from hetopt.improve import improve
from hetopt.planners import islands
from hetopt.plans import TrainingPlan
from hetopt.problems import training_plan
from hetopt.schema import Instance


def _random_plan(seed: int) -> tuple[Instance, TrainingPlan]:
    """A plan on a random cluster with random cost settings; it may be refused."""
    random = Random(f"improve {seed}")
    instance = random_instance(random)
    return instance, FastCost(instance).plan(random_pipes(random, instance))


@pytest.mark.parametrize("seed", range(40))
def test_the_result_is_valid_and_never_worse(seed: int) -> None:
    instance, plan = _random_plan(seed)
    before = training_plan.evaluate(instance, plan)
    found = improve(instance, plan, rounds=150, seed=seed)
    if not before.valid:
        assert found is plan
        return
    after = training_plan.evaluate(instance, found)
    assert after.valid
    assert after.objective is not None
    assert before.objective is not None
    assert after.objective <= before.objective
    assert found is plan or after.objective < before.objective


def test_random_plans_are_both_refused_and_improved() -> None:
    kept = improved = 0
    for seed in range(40):
        instance, plan = _random_plan(seed)
        kept += not training_plan.evaluate(instance, plan).valid
        improved += improve(instance, plan, rounds=150, seed=seed) is not plan
    assert kept > 3
    assert improved > 10


def test_the_same_seed_and_rounds_give_the_same_plan() -> None:
    instance = setting("1", "7b")
    plan = islands.plan(instance)
    bad = _one_pipeline(instance)
    assert improve(instance, bad, rounds=400, seed=3) == improve(
        instance, bad, rounds=400, seed=3
    )
    assert improve(instance, plan, rounds=50, seed=3) == improve(
        instance, plan, rounds=50, seed=3
    )


def _one_pipeline(instance: Instance) -> TrainingPlan:
    """All nodes in one pipeline, a whole node a stage: valid, and far from good."""
    cost = FastCost(instance)
    chain = tuple((i, node.count) for i, node in enumerate(cost.nodes))
    batch = instance.workload.global_batch
    slots = Balancer(cost).balanced(1, batch, chain)
    assert slots is not None
    return cost.plan([Pipe(batch, 1, slots)])


def test_reported_objectives_fall_and_end_at_the_judges() -> None:
    instance = setting("1", "7b")
    reported: list[int] = []
    plan = _one_pipeline(instance)
    found = improve(instance, plan, rounds=500, report=reported.append)
    assert reported == sorted(reported, reverse=True)
    assert reported[-1] == training_plan.evaluate(instance, found).objective


@pytest.mark.parametrize(
    ("number", "model", "most_s"),
    [("1", "7b", 30.7), ("1", "13b", 58.2), ("2", "7b", 30.8), ("2", "13b", 57.2)],
)
def test_simple_families_are_reached_from_a_bad_plan(
    number: str, model: str, most_s: float
) -> None:
    instance = setting(number, model)
    found = improve(instance, _one_pipeline(instance), rounds=4000)
    objective = training_plan.evaluate(instance, found).objective
    assert objective is not None
    assert objective <= most_s * 10**6


def test_a_stage_with_several_replicas_is_left_as_it_is() -> None:
    instance = setting("1", "7b", micro_batch_sizes=(2,))
    plan = _several_replicas(instance)
    assert training_plan.evaluate(instance, plan).valid
    assert improve(instance, plan, rounds=100) is plan


def _several_replicas(instance: Instance) -> TrainingPlan:
    """One pipeline of the third and fourth node; each stage has two replicas."""
    names = [node.name for node in instance.planned_cluster.nodes]
    stages = []
    for k, name in enumerate(names[2:4]):
        gpus = [f"{name}:{i}" for i in range(8)]
        halves = [{"gpus": gpus[:4]}, {"gpus": gpus[4:]}]
        stages.append({"layers": (16 * k, 16 * k + 16), "replicas": halves})
    document = {
        "pipelines": [
            {
                "micro_batches": instance.workload.global_batch // 2,
                "micro_batch_size": 2,
                "stages": stages,
            }
        ]
    }
    return TrainingPlan.model_validate(document, strict=False)


@pytest.mark.parametrize("seed", range(6))
def test_a_state_after_many_moves_is_worth_what_the_judge_says(seed: int) -> None:
    random = Random(f"moves {seed}")
    state = None
    while state is None:
        instance = random_instance(random, uniform=seed % 2 == 0)
        cost = FastCost(instance)
        pipes = random_pipes(random, instance)
        state = first_state(cost, pipes) if all(map(cost.fits, pipes)) else None
    moves = Moves(Balancer(cost), random)
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
