"""The oracle of one pipeline: brute force agrees, bounds hold, outsiders are named."""

import json
import math
from pathlib import Path

from brute_force_training import best_one_pipeline, random_tiny_instance
from disk import put
from flat import flat
from hypothesis import given
from inputs import drawn, examples, tiny_instances

import hetopt
from hetopt import load
from hetopt.costs import without_update
from hetopt.exact import one_pipeline
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


def test_without_time_there_is_a_bound_or_nothing_but_no_lie() -> None:
    instance = load("metis/t4-v100-8-gpt3-2.6b")
    result = one_pipeline.solve(instance, limits=Limits(time_s=0))
    assert result.stop is Stop.TIME
    assert result.status is Status.UNDECIDED


# --- for methods of several pipelines ----------------------------------------------


@examples(6)
@given(drawn(random_tiny_instance, most_gpus=3))
def test_a_pipeline_is_offered_where_one_is_faster(tiny: Instance) -> None:
    instance = plain(tiny)
    best = one_pipeline.solve(instance).objective
    for than in (None, best) if best is None else (None, best, best + 1):
        offered: list[TrainingPlan] = []
        sizes = instance.workload.micro_batch_sizes
        one_pipeline.faster(instance, than, Limits(), offered.append, sizes)
        found = [judge.evaluate(instance, plan).objective for plan in offered]
        assert found == ([] if best is None or than == best else [best])


# --- by name -----------------------------------------------------------------------


def test_a_problem_file_poses_one_pipeline(tmp_path: Path) -> None:
    document = load("tiny/two-nodes").model_dump(mode="json")
    file = put(tmp_path / "one.json", {"problem": "one_pipeline", **document})
    result = hetopt.solve(file)
    assert result.objective == hetopt.solve("tiny/two-nodes", "one_pipeline").objective
    written = put(tmp_path / "result.json", result.to_json())
    assert hetopt.check(written, file).objective == result.objective
