"""Sailor's own simulator and controller; SAILOR is a checkout."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from exporter_plans import ALONE, instance

from hetopt.formats import exporting
from hetopt.plans import TrainingPlan

pytestmark = [pytest.mark.targets, pytest.mark.tool("sailor")]
Read = dict[str, Any]


@pytest.fixture(params=ALONE[:3], ids=["four stages", "two replicas", "one stage"])
def plan(request: pytest.FixtureRequest) -> TrainingPlan:
    made: TrainingPlan = request.param
    return made


@pytest.fixture
def read(
    plan: TrainingPlan,
    told: Callable[..., Any],
    checkout: Callable[[str], Path],
    tmp_path: Path,
) -> Read:
    source = checkout("SAILOR")
    exporting.write(tmp_path, exporting.export_plan("sailor", instance(), plan))
    batch = {"global_batch_size": instance().workload.global_batch}
    (tmp_path / "training.json").write_text(json.dumps(batch))
    needs = "grpc pandas torch"
    found: Read = told(
        "sailor_start.py", needs, "training.json", PYTHONPATH=str(source)
    )
    return found


def test_its_simulator_has_the_stages_and_the_cards(
    plan: TrainingPlan, read: Read
) -> None:
    (pipeline,) = plan.pipelines
    node, last = instance().planned_cluster.node, instance().model.layers
    # Its first layer is the embedding, its last one the head.
    found = [[n - 1 for n in one if 0 < n <= last] for one in read["read"]["layers"]]
    assert found == [list(stage.span) for stage in pipeline.stages]
    assert read["read"]["stages"] == [
        [[one.degree, node[one.node].gpu] for one in stage.replicas]
        for stage in pipeline.stages
    ]
    assert read["read"]["samples"] == pipeline.stages[0].replicas[0].samples


def test_its_controller_tells_every_group_its_ranks(
    plan: TrainingPlan, read: Read, note: Callable[[object], None]
) -> None:
    (pipeline,) = plan.pipelines
    held = [one for stage in pipeline.stages for one in stage.replicas]
    sent = read["sent"]
    assert [len(one["ranks"]) for one in sent] == [one.degree for one in held]
    world = sum(one.degree for one in held)
    assert [rank for one in sent for rank in one["ranks"]] == list(range(world))
    for one in sent:
        assert one["world"] == world
        assert one["head"] == held[0].node
        assert one["steps"] == pipeline.micro_batches
        assert sum(one["layers"]) == instance().model.layers + 2
    assert [one["host"] for one in sent] == [one.node for one in held]
    note("; ".join(f"{one['host']}: ranks {one['ranks']}" for one in sent))
