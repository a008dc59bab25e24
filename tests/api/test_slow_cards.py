"""What slow cards do: every way is what its plan does, and none beats all plans."""

import json
from random import Random

import pytest
from brute_force_training import best_training_plan, random_tiny_instance
from places import INSTANCES
from typer.testing import CliRunner

import hetopt
from hetopt import cli
from hetopt.api.slow_cards import Way, by_speed, way_of
from hetopt.errors import Unsupported
from hetopt.plans import Pipeline, Replica, Stage, TrainingPlan
from hetopt.problems import training_plan
from hetopt.schema import Instance

MIXED = "metis/t4-v100-4-gpt3-1.3b"


def mixed(seed: int) -> Instance:
    """The first instance from a seed on that has several kinds and a plan."""
    while True:
        instance = random_tiny_instance(Random(seed), 4)
        kinds = {node.gpu for node in instance.planned_cluster.nodes}
        if len(kinds) > 1 and best_training_plan(instance, several_replicas=True):
            return instance
        seed += 1000


@pytest.mark.parametrize("seed", range(6))
def test_options_are_valid_of_their_way_and_no_faster_than_all_plans(seed: int) -> None:
    instance = mixed(seed)
    found = hetopt.roles(instance, limits=10)
    best = best_training_plan(instance, several_replicas=True)
    assert best is not None
    cluster = instance.planned_cluster
    assert found.options
    for one in found.options:
        judged = training_plan.evaluate(instance, one.plan)
        assert judged.valid
        assert judged.objective == one.iteration_us >= best[0]
        assert way_of(cluster, one.plan, found.slow) is one.way
    times = [one.iteration_us for one in found.options]
    assert times == sorted(times)
    assert found.bound is None or found.bound.value <= best[0]


def stage(first: int, end: int, *gpus: str) -> Stage:
    return Stage(layers=(first, end), replicas=tuple(Replica(gpus=(g,)) for g in gpus))


def test_ways_are_told_apart() -> None:
    instance = hetopt.load(MIXED)
    cluster = instance.planned_cluster
    slow, fast = by_speed(cluster)[-1], by_speed(cluster)[0]
    gpus = {
        kind: [f"{n.name}:0" for n in cluster.nodes if n.gpu == kind]
        for kind in (slow, fast)
    }
    a, b = gpus[fast][0], gpus[slow][0]

    def plan(*pipelines: tuple[Stage, ...]) -> TrainingPlan:
        made = (Pipeline(micro_batches=1, stages=stages) for stages in pipelines)
        return TrainingPlan(pipelines=tuple(made))

    ways = {
        Way.STAGES: plan((stage(0, 8, b), stage(8, 24, a))),
        Way.REPLICAS: plan((stage(0, 24, a, b),)),
        Way.PIPELINES: plan((stage(0, 24, a),), (stage(0, 24, b),)),
        Way.IDLE: plan((stage(0, 24, a),)),
    }
    for way, made in ways.items():
        assert way_of(cluster, made, slow) is way


def test_the_answer_names_the_slow_cards_and_what_they_do() -> None:
    words = ["roles", MIXED, "--time-limit", "2", "--json"]
    told = CliRunner().invoke(cli.app, words)
    document = json.loads(told.stdout)
    assert told.exit_code == 0
    assert document["answer"].startswith("The slow cards (2 × T4) do best ")
    assert {row["gpu"] for row in document["roles"]} == {"V100", "T4"}
    ways = [option["way"] for option in document["options"]]
    assert len(ways) == len(set(ways)) > 1
    # What the screen begins with is in `cli/test_questions.py`.


def test_one_kind_of_card_has_no_slow_one() -> None:
    name = str(INSTANCES / "tiny" / "two-nodes.yaml")
    instance = hetopt.load(name)
    cluster = instance.planned_cluster
    alike = instance.model_copy(update={"cluster": cluster.only(cluster.nodes[:1])})
    with pytest.raises(Unsupported, match="found one kind of card"):
        hetopt.roles(alike)
