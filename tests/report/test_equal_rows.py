"""Equal rows are shown once, and say of how many; nothing is lost by that."""

import json
import re

import pytest
from exporter_plans import pipeline
from hypothesis import given
from hypothesis import strategies as st

from hetopt import load
from hetopt.explaining import explain
from hetopt.modelling import Limits
from hetopt.plans import TrainingPlan
from hetopt.problems import training_plan
from hetopt.report import explanation, results, words
from hetopt.report.runs import runs_of
from hetopt.schema import Instance


def twins(copies: int) -> tuple[Instance, TrainingPlan]:
    """Equal pipelines of two stages, each on a node of its own."""
    tree = load("tiny/two-nodes").model_dump(mode="json")
    node = tree["cluster"]["nodes"][0]
    tree["cluster"]["nodes"] = [
        {**node, "name": f"n{i}", "count": 2} for i in range(copies)
    ]
    tree["cluster"]["gpus"] = {node["gpu"]: tree["cluster"]["gpus"][node["gpu"]]}
    tree["cluster"]["gpus"][node["gpu"]]["memory_gib"] = 4000.0
    tree["cluster"]["inter"] = {"gbytes_per_s": 10.0}
    tree["workload"] |= {"global_batch": 2 * copies, "micro_batch_sizes": [1]}
    layers = tree["model"]["layers"]
    cut = layers // 2
    shapes = [(cut, 1, 1), (layers - cut, 1, 1)]
    pipelines = [pipeline([f"n{i}:0", f"n{i}:1"], shapes, 2, 1) for i in range(copies)]
    instance = Instance.model_validate_json(json.dumps(tree))
    return instance, TrainingPlan(pipelines=tuple(pipelines))


@pytest.mark.parametrize("copies", [1, 2, 5])
def test_pipelines_that_are_equal_are_one(copies: int) -> None:
    instance, plan = twins(copies)
    judged = training_plan.evaluate(instance, plan)
    assert judged.valid, judged.violations
    table = results.table(instance, plan, judged.parts)
    many = [row[0].text for row in table.rows if row[0].text]
    assert many == [words.numbered(range(copies))]
    explained_rows = explanation.time_bars(explain(instance, plan, Limits(time_s=0)))
    assert len(explained_rows) <= 3


def test_gpus_without_work_are_named() -> None:
    instance, plan = twins(3)
    plan = plan.model_copy(update={"pipelines": plan.pipelines[:2]})
    (*_, last) = results.judged(instance, plan, training_plan.evaluate(instance, plan))
    card = instance.planned_cluster.nodes[0].gpu
    assert last.points[-1] == f"left idle: 2 × {card}"


def test_a_pipeline_that_differs_has_a_row_of_its_own() -> None:
    instance, plan = twins(3)
    uneven = [
        pipeline.model_copy(update={"micro_batches": n})
        for pipeline, n in zip(plan.pipelines, (3, 1, 2), strict=True)
    ]
    plan = plan.model_copy(update={"pipelines": tuple(uneven)})
    judged = training_plan.evaluate(instance, plan)
    table = results.table(instance, plan, judged.parts)
    assert [row[0].text for row in table.rows if row[0].text] == ["0", "1", "2"]


@given(st.sets(st.integers(0, 60), min_size=1))
def test_numbers_of_equal_rows_can_be_read_back(numbers: set[int]) -> None:
    text = words.spans(sorted(numbers))
    read: set[int] = set()
    for part in text.split(", "):
        first, _, last = part.partition("–")
        read |= set(range(int(first), int(last or first) + 1))
    assert read == numbers


@given(st.lists(st.tuples(st.sampled_from(["a-", "b", ""]), st.integers(0, 9))))
def test_names_of_nodes_can_be_read_back(pairs: list[tuple[str, int]]) -> None:
    names = [f"{word}{number}" for word, number in dict.fromkeys(pairs)]
    read: list[str] = []
    texts = runs_of(names)
    more = re.fullmatch(r"(\d+) more", texts[-1]) if texts else None
    for text in texts[:-1] if more else texts:
        start, dots, last = text.partition("..")
        word, first = re.fullmatch(r"(.*?)(\d+)", start).groups()  # type: ignore[union-attr]
        span = range(int(first), int(last if dots else first) + 1)
        read += [f"{word}{number}" for number in span]
    assert read == (names[: len(read)] if more else names)
