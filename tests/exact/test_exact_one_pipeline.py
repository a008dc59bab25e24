"""The oracle of one pipeline: brute force agrees, bounds hold, outsiders are named."""

import json
import math
from itertools import count
from pathlib import Path
from typing import Any

import pytest
from brute_force_training import best_one_pipeline, random_tiny_instance, tiny_instance
from flat import flat
from hypothesis import given
from inputs import drawn, examples, tiny_instances

import hetopt
from hetopt import load
from hetopt.costs import without_update
from hetopt.errors import OutOfTime, Unsupported
from hetopt.exact import one_pipeline
from hetopt.exact.one_pipeline.boxes import Size
from hetopt.exact.one_pipeline.cluster_tables import BIG, ClusterTables
from hetopt.exact.one_pipeline.shares import least_us, shared
from hetopt.modelling import Limits
from hetopt.plans import TrainingPlan
from hetopt.problems import one_pipeline as judge
from hetopt.result import Status, Stop
from hetopt.schema import Instance

SEVERAL = {"micro_batch_sizes": [1, 2, 3], "global_batch": 6}


def plain(tiny: Instance, several: bool = False) -> Instance:
    """A tiny instance with the costs that the oracle carries."""
    document = flat(without_update(tiny))
    document["workload"]["costs"] |= {"pipeline": "critical", "sync_overlap": "none"}
    document["workload"] |= SEVERAL if several else {}
    return Instance.model_validate_json(json.dumps(document))


def agrees_with_all_plans(instance: Instance) -> None:
    """The optimum is that of all plans, and no bound on the way was above it."""
    result, expected = one_pipeline.solve(instance), best_one_pipeline(instance)
    assert result.objective == expected
    if expected is None:
        assert result.status is Status.INFEASIBLE
        assert "memory" in result.reasons[0]
    else:
        assert result.status is Status.OPTIMAL
    bounds = [point.bound for point in result.trace if point.bound is not None]
    assert bounds == sorted(bounds)
    assert all(bound <= (result.objective or math.inf) for bound in bounds)


@examples(7)
@given(tiny_instances())
def test_exact_optimum_equals_best_by_trying_all(tiny: Instance) -> None:
    agrees_with_all_plans(plain(tiny))


@examples(6)
@given(drawn(random_tiny_instance, most_gpus=3))
def test_stages_of_several_replicas_are_proved_like_trying_all(tiny: Instance) -> None:
    agrees_with_all_plans(plain(tiny, several=True))


@pytest.mark.parametrize("seed", [1, 7])
def test_a_warm_start_is_kept_until_there_is_a_better_plan(seed: int) -> None:
    instance = plain(tiny_instance(seed), several=True)
    plan = one_pipeline.solve(instance).plan
    again = one_pipeline.solve(instance, warm_start=plan)
    assert again.status is Status.OPTIMAL
    assert again.plan == plan


def test_without_time_there_is_a_bound_or_nothing_but_no_lie() -> None:
    instance = load("metis/t4-v100-8-gpt3-2.6b")
    result = one_pipeline.solve(instance, limits=Limits(time_s=0))
    assert result.stop is Stop.TIME
    assert result.status is Status.UNDECIDED


# --- what lies outside -----------------------------------------------------------


def stage(layers: list[int], *replicas: tuple[list[str], int]) -> dict[str, Any]:
    rows = [{"gpus": gpus, "samples": samples} for gpus, samples in replicas]
    return {"layers": layers, "replicas": rows}


@pytest.mark.parametrize(
    ("pipelines", "rule"),
    [
        (
            [
                {
                    "micro_batches": 2,
                    "micro_batch_size": 1,
                    "stages": [stage([0, 4], ([f"node{i}:0"], 1))],
                }
                for i in range(2)
            ],
            "one_pipeline",
        ),
        (
            [
                {
                    "micro_batches": 2,
                    "micro_batch_size": 2,
                    "stages": [
                        stage([0, 4], (["node0:0"], 1), (["node1:0", "node1:1"], 1))
                    ],
                }
            ],
            "one_degree",
        ),
    ],
)
def test_plans_outside_the_space_are_named(pipelines: Any, rule: str) -> None:
    instance = load("tiny/several-samples")
    document = instance.model_dump(mode="json")
    document["workload"] |= {"global_batch": 4, "micro_batch_sizes": [1, 2]}
    instance = Instance.model_validate_json(json.dumps(document))
    text = json.dumps({"pipelines": pipelines})
    judged = judge.evaluate(instance, TrainingPlan.model_validate_json(text))
    assert rule in {violation.rule for violation in judged.violations}


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("pipeline", "lockstep"),
        ("sync_overlap", "backward"),
        ("zero", 1),
        ("interleave", 2),
        ("hops", "both"),
    ],
)
def test_settings_that_are_not_followed_are_refused(field: str, value: Any) -> None:
    document = flat(plain(tiny_instance(0)))
    document["workload"]["costs"][field] = value
    if field == "interleave":
        document["workload"]["costs"]["in_flight"] = "1f1b"
    instance = Instance.model_validate_json(json.dumps(document))
    with pytest.raises(Unsupported, match=f"costs.{field}"):
        one_pipeline.solve(instance)


def test_without_a_micro_batch_size_that_divides_the_batch_there_is_no_plan() -> None:
    document = plain(tiny_instance(0)).model_dump(mode="json")
    document["workload"] |= {"micro_batch_sizes": [3], "global_batch": 4}
    found = one_pipeline.solve(Instance.model_validate_json(json.dumps(document)))
    assert found.status is Status.INFEASIBLE
    assert "none" in found.reasons[0]


# --- for methods of several pipelines ----------------------------------------------


@examples(6)
@given(drawn(random_tiny_instance, most_gpus=3))
def test_a_pipeline_is_offered_where_one_is_faster(tiny: Instance) -> None:
    instance = plain(tiny)
    best = one_pipeline.solve(instance).objective
    for than in (None, best) if best is None else (None, best, best + 1):
        offered: list[TrainingPlan] = []
        one_pipeline.faster(instance, than, Limits(), offered.append)
        found = [judge.evaluate(instance, plan).objective for plan in offered]
        assert found == ([] if best is None or than == best else [best])


# --- samples ---------------------------------------------------------------------


@pytest.mark.parametrize(
    ("times", "replicas", "b", "most", "expected"),
    [
        ([[10, 20, 30, 40]], [2], 4, 4, 20),
        ([[10, 20, 30, 40], [5, 10, 15, 20]], [1, 1], 4, 4, 15),
        ([[10, 20, 30, 40], [5, 10, 15, 20]], [1, 1], 4, 2, 20),
        ([[10, 20, 30, 40]], [5], 4, 4, BIG),  # more replicas than samples
        ([[10, 9, 30, 8]], [1], 4, 4, 8),  # measured times that fall
        ([[10, BIG, 30, BIG]], [2], 4, 4, 30),  # sizes that do not fit
        ([[10, BIG, BIG, 30]], [2], 4, 4, BIG),
    ],
)
def test_samples_are_shared_for_the_least_time(
    times: list[list[int]], replicas: list[int], b: int, most: int, expected: int
) -> None:
    assert least_us(times, replicas, b, most) == expected
    if expected < BIG:
        dealt = shared(times, replicas, b, most, expected)
        assert [len(row) for row in dealt] == replicas
        assert sum(map(sum, dealt)) == b
        used = [
            times[c][s - 1] for c, row in enumerate(dealt) for s in row if s <= most
        ]
        assert max(used) == expected
        assert len(used) == sum(replicas)


# --- by name -----------------------------------------------------------------------


def test_an_instance_is_solved_as_one_pipeline_when_the_method_is_asked_for() -> None:
    result = hetopt.solve("tiny/two-nodes", "one_pipeline")
    assert result.problem == "one_pipeline"
    assert result.status is Status.OPTIMAL
    joint = hetopt.solve("tiny/two-nodes", limits=20)
    assert joint.problem == "training_plan"
    assert joint.bound is not None
    assert joint.bound.value <= (result.objective or 0)


def test_a_problem_file_poses_one_pipeline(tmp_path: Path) -> None:
    document = load("tiny/two-nodes").model_dump(mode="json")
    file = tmp_path / "one.json"
    file.write_text(json.dumps({"problem": "one_pipeline", **document}))
    result = hetopt.solve(file)
    assert result.objective == hetopt.solve("tiny/two-nodes", "one_pipeline").objective
    written = tmp_path / "result.json"
    written.write_text(json.dumps(result.to_json()))
    assert hetopt.check(written, file).objective == result.objective


def test_the_time_limit_is_asked_for_while_stages_are_listed() -> None:
    """Of hundreds of layers these take long, whatever is left of the time."""
    asked = count()

    def check() -> None:
        if next(asked) == 2:
            raise OutOfTime

    with pytest.raises(OutOfTime):
        Size(ClusterTables(load("tiny/two-nodes")), 1, check)
