"""Why there is no plan: the reason is a true one, and proved where arithmetic can."""

import json
from typing import Any

import pytest
from small_instances import document

import hetopt
from hetopt import registry
from hetopt.bounds import impossible
from hetopt.errors import NoPlan
from hetopt.exact import training_plan
from hetopt.modelling import Limits
from hetopt.result import Status
from hetopt.schema import Instance

PLANNERS = registry.entries_for("planners", "training_plan")


def tree(nodes: int = 1, **workload: Any) -> dict[str, Any]:
    shape = {"layers": 2, "vocabulary": 50_000, "parameters_per_layer": 10_000_000}
    asked = {"sequence_length": 256, "global_batch": 4, **workload}
    hosts = " ".join(["A*2"] * nodes)
    return document(hosts, {"A": (50, 8)}, model=shape, inter=5, **asked)


def read(data: dict[str, Any]) -> Instance:
    return Instance.model_validate_json(json.dumps(data))


def short_of_memory(nodes: int) -> dict[str, Any]:
    """Layers fit, embedding and head do not: 2 x 819 MB x 8 bytes, beyond 512 MiB."""
    data = tree(nodes, costs={"zero": 3}, alternatives={"zero": [0, 1, 2]})
    data["cluster"]["gpus"]["A"]["memory_gib"] = 0.6 / (2 * nodes)
    return data


IMPOSSIBLE = {
    "batch": [
        tree(nodes, global_batch=4, micro_batch_sizes=[3]) for nodes in (1, 4, 32)
    ],
    "memory": [short_of_memory(nodes) for nodes in (1, 4, 32)],
    "layers": [tree(nodes, costs={"interleave": 3}) for nodes in (1, 4)],
}
CASES = [(kind, data) for kind, cases in IMPOSSIBLE.items() for data in cases]
NAMES = [f"{kind}-{len(data['cluster']['nodes'])}" for kind, data in CASES]


@pytest.mark.parametrize(("kind", "data"), CASES, ids=NAMES)
def test_the_exact_method_proves_that_there_is_no_plan(
    kind: str, data: dict[str, Any]
) -> None:
    result = training_plan.solve(read(data), limits=Limits(time_s=5))
    assert result.status is Status.INFEASIBLE
    assert result.reasons[0].startswith(f"{kind}: ")


@pytest.mark.parametrize("planner", PLANNERS)
@pytest.mark.parametrize(("kind", "data"), CASES, ids=NAMES)
def test_a_planner_without_a_plan_says_the_proved_reason(
    planner: str, kind: str, data: dict[str, Any]
) -> None:
    result = hetopt.plan(read(data), planner, limits=5)
    assert result.status is Status.INFEASIBLE
    assert result.reasons[0].startswith(f"{kind}: ")
    if kind != "memory":
        assert len(result.reasons) == 1  # no remedy of memory helps


@pytest.mark.parametrize("planner", PLANNERS)
def test_no_planner_by_itself_blames_memory_for_the_sizes(planner: str) -> None:
    data = read(IMPOSSIBLE["batch"][1])
    with pytest.raises(NoPlan) as told:
        registry.entry("planners", planner).plan(data, seed=0, deadline=None)
    assert "holds the model" not in str(told.value)
    assert "MiB" not in str(told.value)


ROWS = [{"gpu": "A", "tensor_parallel": 1, "micro_batch": 2, "layer_us": [5, 5]}]
OF_TWO = {"layer_times": "profile", "profile": ROWS}


def test_sizes_that_were_not_measured_are_the_reason_not_memory() -> None:
    data = tree(global_batch=3, micro_batch_sizes=[1, 2, 3], costs=OF_TWO)
    reason = impossible.reason(read(data))
    assert "1, 3 cannot be put together" in reason
    data["workload"]["global_batch"] = 4
    assert impossible.reason(read(data)) is None


def test_shares_that_need_more_gpus_are_the_reason_not_memory() -> None:
    """Micro-batches of 6 need three replicas of 2, and there are two GPUs."""
    data = tree(global_batch=6, micro_batch_sizes=[6], costs=OF_TWO)
    assert str(impossible.reason(read(data))).startswith("batch: no GPUs take all")
    data["cluster"]["nodes"][0]["count"] = 3
    result = training_plan.solve(read(data), limits=Limits(time_s=5))
    assert result.status is Status.OPTIMAL


def test_pipelines_that_need_more_gpus_are_found_by_looking_at_every_plan() -> None:
    """A batch of 5 needs a pipeline of 2 and one of 3, and there is one GPU."""
    data = tree(global_batch=5, micro_batch_sizes=[2, 3])
    data["cluster"]["nodes"] = [{"name": "n0", "gpu": "A", "count": 1}]
    assert impossible.reason(read(data)) is None
    result = training_plan.solve(read(data), limits=Limits(time_s=5))
    assert result.status is Status.INFEASIBLE
    assert result.reasons[0].startswith("batch: every plan")


def test_tied_weights_are_held_once_by_a_single_stage() -> None:
    """Twice the embedding does not fit; a stage that is first and last has it once."""
    data = tree(global_batch=1)
    data["cluster"]["nodes"] = [{"name": "n0", "gpu": "A", "count": 1}]
    data["cluster"]["gpus"]["A"]["memory_gib"] = 1.5
    assert "embedding and head" in str(impossible.reason(read(data)))
    data["model"]["tied_embeddings"] = True
    assert impossible.reason(read(data)) is None
    assert hetopt.plan(read(data), limits=5).plan is not None
