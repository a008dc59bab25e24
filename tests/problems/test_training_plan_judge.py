"""The judge of training plans: its times, its rules, and what must not matter."""

import json
from random import Random
from typing import Any

import drawing
import pytest
from changed_records import changed
from exporter_plans import pipeline
from hypothesis import given
from inputs import drawn, examples
from places import INSTANCES
from random_plans import any_plan
from renaming import plan_under, renamed, with_an_idle_gpu

from hetopt.files import load_instance, load_plan
from hetopt.formats.exporting.launching import ranks
from hetopt.plans import TrainingPlan
from hetopt.problems import training_plan
from hetopt.problems.training_plan.shapes import normal, place
from hetopt.schema import Instance
from hetopt.search import choices
from hetopt.search.fast_cost import FastCost


def judged(instance: Instance, plan: TrainingPlan) -> dict[str, Any]:
    found = training_plan.evaluate(instance, plan)
    assert {v.rule for v in found.violations} <= {"memory"}
    return found.parts


def test_a_profiled_instance_is_timed_by_its_profile() -> None:
    instance = load_instance("tiny/profiled")
    plan = two_stage_plan(instance)
    parts = judged(instance, plan)
    # Two GPUs of node0 take layers 0-2 (540, 540), one GPU of node1 2000 and 2600.
    assert [row["compute_us"] for row in parts["stages"][0]] == [1080, 4600]


# --- figures of the papers ----------------------------------------------------


def test_stage_times_of_table_2_are_the_papers() -> None:
    """HexiScale, table 2: 0.633 s, and 0.799, 0.799, 0.799, 0.802 s."""
    _, instance, plan = load_plan(INSTANCES / "hexiscale/table-2.plan.json")
    found = training_plan.evaluate(instance, plan)
    assert found.valid
    times = [
        [round(row["compute_us"] / 1e6, 3) for row in rows]
        for rows in found.parts["stages"]
    ]
    assert times[0] == [0.633]
    assert times[1] == times[2] == [0.799, 0.799, 0.799, 0.802]


@pytest.mark.parametrize(
    ("name", "paper_s", "pipelines_s"),
    [
        ("case-study-megatron", 41.52, (31.62, 32.17)),
        ("case-study-hexiscale", 25.55, (19.14, 20.48)),
    ],
)
def test_iteration_times_of_the_case_study_are_the_papers(
    name: str, paper_s: float, pipelines_s: tuple[float, float]
) -> None:
    """HexiScale, sections 3.1 and 3.3, in its units and with its factors."""
    _, instance, plan = load_plan(INSTANCES / f"hexiscale/{name}.plan.json")
    found = training_plan.evaluate(instance, plan)
    assert found.valid
    assert found.parts["iteration_us"] / 1e6 == pytest.approx(paper_s, rel=0.01)
    calibrated = [1.8 * us / 1e6 for us in found.parts["pipeline_us"]]
    assert calibrated == pytest.approx(pipelines_s, abs=0.005)


def test_hfu_of_table_2_counts_recomputation_and_mfu_does_not() -> None:
    _, instance, plan = load_plan(INSTANCES / "hexiscale/table-2.plan.json")
    parts = training_plan.evaluate(instance, plan).parts
    assert parts["hfu"] == pytest.approx(parts["mfu"] * 4 / 3)
    seconds = parts["iteration_us"] / 1e6
    b, s, h = 1024, 4096, 6656
    work = 60 * 96 * b * s * h**2 * (1 + s / (6 * h))
    peak = (16 * 80 + 32 * 165.2 + 8 * 312) * 1e12
    assert parts["hfu"] == pytest.approx(work / (seconds * peak), rel=1e-9)


# --- the rules ----------------------------------------------------------------


def two_stage_plan(instance: Instance) -> TrainingPlan:
    """On two nodes of two GPUs: two GPUs for the first half, one for the second."""
    half, batch = instance.model.layers // 2, instance.workload.global_batch
    shapes = [(half, 2, 1), (instance.model.layers - half, 1, 1)]
    made = pipeline(["node0:0", "node0:1", "node1:0"], shapes, batch, 1)
    return TrainingPlan(pipelines=(made,))


def edited(instance: Instance, path: str, value: Any) -> TrainingPlan:
    """The two-stage plan with one place changed, such as `0.stages.1.layers`."""
    data = two_stage_plan(instance).model_dump(mode="json")
    *way, last = path.split(".")
    place: Any = data["pipelines"]
    for step in way:
        place = place[int(step) if step.isdigit() else step]
    place[last] = value
    return TrainingPlan.model_validate_json(json.dumps(data))


STAGE = "0.stages.0.replicas.0.gpus"
BACKWARD = [
    {"layers": span, "replicas": [{"gpus": [f"node{i}:0"]}]}
    for i, span in enumerate([[2, 4], [0, 2]])
]
RULES = [
    ("0.stages.1.layers", [3, 4], "layer_missing: pipelines[0]: layer 2"),
    ("0.stages.0.layers", [0, 1], "layer_missing: pipelines[0]: layer 1"),
    ("0.stages.1.layers", [1, 4], "layer_twice: pipelines[0]: layer 1"),
    ("0.stages.1.layers", [0, 4], "layer_twice: pipelines[0]: layers 0-1"),
    ("0.stages.1.layers", [2, 6], "unknown_layer: @[1]: ends at 6, the model has 4"),
    ("0.stages.1.layers", [2, 2], "empty_stage: @[1]: [2, 2]; layer_missing: "),
    (STAGE, ["node0:0", "node0:0"], "gpu_twice: node0:0: used 2 times"),
    (STAGE, ["node1:0"], "gpu_twice: node1:0: used 2 times"),
    (STAGE, ["node0:2"], "unknown_gpu: @[0].replicas[0]: 'node0:2'"),
    (STAGE, ["node0:00"], "unknown_gpu: @[0].replicas[0]: 'node0:00'"),
    (STAGE, ["rack:0"], "unknown_gpu: @[0].replicas[0]: 'rack:0'"),
    (
        STAGE,
        ["node0:0", "node1:1"],
        "group_across_types: @[0].replicas[0]: big, small; "
        "group_across_nodes: @[0].replicas[0]: node0, node1",
    ),
    ("0.micro_batches", 3, "global_batch: plan: 3 sequences, expected 4"),
    (
        "0.micro_batch_size",
        2,
        "micro_batch_size: pipelines[0]: 2 is not in [1]; "
        "samples: @[0]: replicas take 1 samples, the micro-batch has 2; "
        "samples: @[1]: replicas take 1 samples, the micro-batch has 2; "
        "global_batch: plan: 8 sequences, expected 4",
    ),
    ("0.stages.1.replicas.0.samples", 3, "samples: @[1]: replicas take 3 samples, "),
    ("0.stages", BACKWARD, "layer_order: @[1]: starts at 0, after a stage from 2"),
]


@pytest.mark.parametrize(("path", "value", "message"), RULES)
def test_a_broken_rule_is_named_with_its_place_and_amount(
    path: str, value: Any, message: str
) -> None:
    instance = load_instance("tiny/two-nodes")
    found = training_plan.evaluate(instance, edited(instance, path, value))
    said = "; ".join(map(str, found.violations))
    assert said.startswith(message.replace("@", "pipelines[0].stages"))
    assert found.objective is None


def test_a_group_across_nodes_of_one_type_is_named_without_the_type() -> None:
    def same_type(data: dict[str, Any]) -> None:
        data["cluster"]["nodes"][1]["gpu"] = "big"
        del data["cluster"]["gpus"]["small"]

    instance = changed(load_instance("tiny/two-nodes"), same_type)
    plan = edited(instance, STAGE, ["node0:0", "node1:1"])
    rules = [v.rule for v in training_plan.evaluate(instance, plan).violations]
    assert rules == ["group_across_nodes"]


@pytest.mark.parametrize("short", [0, 7])
def test_memory_is_refused_by_how_much_and_where(short: int) -> None:
    instance = load_instance("tiny/two-nodes-head")
    plan = two_stage_plan(instance)
    parts = judged(instance, plan)
    first, need = (parts["peak_memory_mib"][f"node{i}:0"] for i in (0, 1))

    def less(data: dict[str, Any]) -> None:
        data["cluster"]["gpus"]["big"]["memory_gib"] = first / 1024
        data["cluster"]["gpus"]["small"]["memory_gib"] = (need - short) / 1024

    found = training_plan.evaluate(changed(instance, less), plan)
    assert found.parts["least_headroom_mib"] == -short
    assert [str(v) for v in found.violations] == [
        f"memory: pipelines[0].stages[1].replicas[0]: 7 MiB too much "
        f"({need} MiB of {need - 7} MiB)"
    ] * bool(short)
    assert found.objective == parts["iteration_us"]


def test_prices_are_unknown_unless_every_gpu_that_is_held_has_one() -> None:
    instance = load_instance("tiny/two-nodes")
    parts = judged(instance, two_stage_plan(instance))
    assert parts["usd_per_hour"] == 2 * 3 + 1
    hours = parts["iteration_us"] / 3.6e9
    assert parts["usd_per_iteration"] == pytest.approx(7 * hours)

    def no_price(data: dict[str, Any]) -> None:
        data["cluster"]["gpus"]["small"]["usd_per_hour"] = None

    unpriced = changed(instance, no_price)
    assert judged(unpriced, two_stage_plan(instance))["usd_per_hour"] is None


# --- what must not matter -------------------------------------------------------


def _drawn(rng: Random) -> tuple[Random, Instance]:
    counts = rng.choice([(1, 1, 1, 1), (2, 1, 1), (2, 2), (1, 4, 1)])
    size = {"layers": rng.choice([1, 2, 4]), "batch": rng.choice([2, 4])}
    tree = drawing.instance(rng, counts, **size, sizes=(1,), even=True, divides=True)
    return rng, drawing.read(tree)


@examples(20)
@given(drawn(_drawn))
def test_names_orders_of_nodes_and_idle_gpus_change_no_time(
    case: tuple[Random, Instance],
) -> None:
    """Nor does the fast evaluator, which searches ask, see them."""
    rng, instance = case
    tree = instance.model_dump(mode="json", exclude_unset=True)
    more = drawing.read(with_an_idle_gpu(rng, tree))
    tree, names = renamed(rng, instance)
    other = drawing.read(tree)
    for plan in (any_plan(instance, rng) for _ in range(4)):
        if plan is None:
            continue
        ours = training_plan.evaluate(instance, plan)
        theirs = training_plan.evaluate(more, plan)
        assert (ours.valid, ours.objective) == (theirs.valid, theirs.objective)
        theirs = training_plan.evaluate(other, plan_under(plan, names))
        assert ours.objective == theirs.objective
        assert len(ours.violations) == len(theirs.violations)
        for data in (instance, more):
            settled, chosen = choices.settled(data, plan)
            pipes = FastCost(settled).compact(chosen)
            if pipes is not None and ours.objective is not None:
                assert FastCost(settled).iteration_us(pipes) == ours.objective


@examples(15)
@given(drawn(_drawn))
def test_exports_number_ranks_as_blocks_of_experts_are_made(
    case: tuple[Random, Instance],
) -> None:
    """Pipelines of one shape, in any order: ranks of a stage are its holders' GPUs."""
    rng, instance = case
    plan = any_plan(instance, rng)
    if plan is None or len(normal(plan).pipelines) > 1:
        return
    given = [
        gpu
        for pipeline in plan.pipelines
        for replica in pipeline.stages[0].replicas
        for gpu in sorted(replica.gpus, key=place)
    ]
    assert ranks(normal(plan).pipelines[0])[: len(given)] == given
