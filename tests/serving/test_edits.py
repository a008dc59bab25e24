"""Changes of a plan by hand: plans stay whole, and what breaks, the judge names."""

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import TypeAdapter

import hetopt
from hetopt.errors import InstanceError
from hetopt.plans import Pipeline, Replica, Stage, TrainingPlan
from hetopt.schema import Instance
from hetopt.serving import edits
from hetopt.serving.edits import Place

DATA = hetopt.load("autohet/a100-h20-4x4-gpt3-6.7b")
NODES = {node.name: node for node in DATA.planned_cluster.nodes}
LAYERS = DATA.model.layers


def stage(first: int, end: int, *gpus: str) -> Stage:
    return Stage(layers=(first, end), replicas=(Replica(gpus=gpus),))


def gpus() -> list[str]:
    return list(DATA.planned_cluster.gpu_ids())


def two_pipelines() -> TrainingPlan:
    """Two equal pipelines, a stage a node, which share the batch."""
    one, two = NODES
    batch = DATA.workload.global_batch
    shares = (batch - batch // 2, batch // 2)
    return TrainingPlan(
        pipelines=tuple(
            Pipeline(
                micro_batches=share,
                stages=(
                    stage(0, 12, f"{one}:{2 * p}", f"{one}:{2 * p + 1}"),
                    stage(12, LAYERS, f"{two}:{2 * p}", f"{two}:{2 * p + 1}"),
                ),
            )
            for p, share in enumerate(shares)
        )
    )


PLAN = two_pipelines()
EDIT: TypeAdapter[edits.Edit] = TypeAdapter(edits.Edit)
RULES_OF_STRUCTURE = {
    *("layer_missing", "layer_twice", "layer_order", "empty_stage", "unknown_layer"),
    *("gpu_twice", "unknown_gpu", "samples", "global_batch"),
}


def edited(plan: TrainingPlan, **fields: Any) -> TrainingPlan:
    """The plan after the change that a request asks for in these words."""
    return EDIT.validate_json(json.dumps(fields)).of(plan)


def broken(plan: TrainingPlan, data: Instance = DATA) -> set[str]:
    return {violation.rule for violation in hetopt.check(plan, data).violations}


def test_the_plan_to_start_from_breaks_no_rule_of_structure() -> None:
    assert broken(PLAN) & RULES_OF_STRUCTURE == set()


@given(st.data())
def test_changes_in_any_order_keep_every_layer_and_every_sequence(data: Any) -> None:
    plan = PLAN
    for _ in range(data.draw(st.integers(1, 4))):
        plan = drawn(plan, data)
        assert broken(plan) & RULES_OF_STRUCTURE == set()


def drawn(plan: TrainingPlan, data: Any) -> TrainingPlan:
    """The plan after a change of any kind, or as it was where that was refused."""
    pipeline = data.draw(st.integers(0, len(plan.pipelines) - 1))
    number = data.draw(st.integers(0, len(plan.pipelines[pipeline].stages) - 1))
    place = {"pipeline": pipeline, "stage": number}
    fields = data.draw(
        st.sampled_from(
            [
                {"kind": "border", "place": place, "layer": number * 7 + 3},
                {"kind": "swap", "place": place, "other": {"pipeline": 0, "stage": 0}},
                {"kind": "remove", "place": place},
                {"kind": "batch", "pipeline": pipeline, "to": 0},
                {"kind": "drop", "node": next(iter(NODES))},
                {"kind": "recompute", "place": place, "rule": "full"},
            ]
        )
    )
    try:
        return edited(plan, **fields)
    except InstanceError:
        return plan


def test_a_border_moves_layers_from_one_stage_to_the_next() -> None:
    place = {"pipeline": 1, "stage": 0}
    made = edited(PLAN, kind="border", place=place, layer=20)
    assert [one.layers for one in made.pipelines[1].stages] == [(0, 20), (20, LAYERS)]
    assert made.pipelines[0] == PLAN.pipelines[0]
    back = edited(made, kind="border", place=place, layer=12)
    assert back == PLAN


@pytest.mark.parametrize("layer", [0, LAYERS])
def test_a_border_leaves_both_stages_a_layer(layer: int) -> None:
    place = {"pipeline": 0, "stage": 0}
    with pytest.raises(InstanceError, match=f"expected one from 1 to {LAYERS - 1}"):
        edited(PLAN, kind="border", place=place, layer=layer)


def test_swapped_twice_is_as_before() -> None:
    places = {
        "place": {"pipeline": 0, "stage": 0},
        "other": {"pipeline": 1, "stage": 1},
    }
    once = edited(PLAN, kind="swap", **places)
    assert once.pipelines[0].stages[0].replicas == PLAN.pipelines[1].stages[1].replicas
    assert edited(once, kind="swap", **places) == PLAN


def test_a_stage_that_goes_leaves_its_layers_to_its_neighbours() -> None:
    ids = gpus()
    three = Pipeline(
        micro_batches=DATA.workload.global_batch,
        stages=(stage(0, 4, ids[0]), stage(4, 11, ids[1]), stage(11, LAYERS, ids[2])),
    )
    made = edited(
        TrainingPlan(pipelines=(three,)),
        kind="remove",
        place={"pipeline": 0, "stage": 1},
    )
    assert [s.layers for s in made.pipelines[0].stages] == [(0, 7), (7, LAYERS)]
    first = {"pipeline": 0, "stage": 0}
    one = edited(made, kind="remove", place=first)
    with pytest.raises(InstanceError, match="the only stage") as caught:
        edited(one, kind="remove", place=first)
    assert caught.value.field == "edit.stage"


def test_a_dropped_node_is_used_no_more_and_nothing_else_is_lost() -> None:
    node = next(iter(NODES))
    made = edited(PLAN, kind="drop", node=node)
    assert node not in {replica.node for replica in made.replicas()}
    assert broken(made) & RULES_OF_STRUCTURE == set()
    with pytest.raises(InstanceError, match="which the whole plan is on"):
        edited(made, kind="drop", node=[*NODES][1])
    with pytest.raises(InstanceError, match="expected a node that the plan uses"):
        edited(made, kind="drop", node=node)


def test_a_lost_pipeline_leaves_its_micro_batches_to_the_others() -> None:
    one, two = NODES
    batch = DATA.workload.global_batch
    halves = [
        Pipeline(micro_batches=share, stages=(stage(0, LAYERS, f"{node}:0"),))
        for node, share in ((one, batch - 3), (two, 3))
    ]
    made = edited(TrainingPlan(pipelines=tuple(halves)), kind="drop", node=one)
    assert [pipeline.micro_batches for pipeline in made.pipelines] == [batch]


def test_replicas_that_stay_take_the_samples_of_those_that_go() -> None:
    one, two = NODES
    shared = Stage(
        layers=(0, LAYERS),
        replicas=(
            Replica(gpus=(f"{one}:0",), samples=3),
            Replica(gpus=(f"{two}:0",), samples=1),
            Replica(gpus=(f"{two}:1",), samples=1),
        ),
    )
    plan = TrainingPlan(
        pipelines=(Pipeline(micro_batches=2, micro_batch_size=5, stages=(shared,)),)
    )
    made = edited(plan, kind="drop", node=one)
    assert [r.samples for r in made.replicas()] == [3, 2]


def test_places_that_are_not_there_are_refused() -> None:
    for place in (Place(pipeline=9, stage=0), Place(pipeline=0, stage=9)):
        with pytest.raises(InstanceError, match="expected one below 2"):
            edits.RemoveStage(kind="remove", place=place).of(PLAN)
    with pytest.raises(InstanceError, match="found the same pipeline"):
        edited(PLAN, kind="batch", pipeline=1, to=1)
