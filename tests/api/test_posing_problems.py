"""Problems named to `solve`: posed of an instance, with options, by every kind."""

from pathlib import Path
from typing import Any

import pytest
from disk import put

import hetopt
from hetopt import api, problems
from hetopt.errors import InstanceError, MixedData, UnknownName, Unsupported
from hetopt.modelling import Limits
from hetopt.problems import device_grouping, layer_partition, training_plan
from hetopt.result import Result

NAME = "autohet/a100-h20-4x4-gpt3-6.7b"
PRICES = {"A100": 2.0, "H20": 1.25}


@pytest.fixture(scope="module")
def planned() -> Result:
    return hetopt.plan(NAME, "megatron", limits=10)


@pytest.fixture
def plan_file(planned: Result, tmp_path: Path) -> Path:
    return put(tmp_path / "plan.json", planned.to_file())


def options_of(problem: str, file: Path) -> dict[str, Any]:
    """Options with which the instance poses a problem, in words of a command line."""
    return {
        "layer_partition": {"plan": str(file)},
        "provisioning": {"usd_per_hour": PRICES},
        "recovery": {"plan": str(file), "lost": "node1"},
    }.get(problem, {})


@pytest.mark.parametrize(
    "problem", [name for name in problems.names() if name != "job_scheduling"]
)
def test_one_instance_poses_every_problem(problem: str, plan_file: Path) -> None:
    options, name = options_of(problem, plan_file), NAME
    if problem == "post_training":  # which is of those that generate
        name = "post_training/tiny"
    limits = Limits(gap=1.0)  # no clock: any plan will do
    found = hetopt.solve(name, problem=problem, options=options, limits=limits)
    assert found.problem == problem
    data, rest = api.pose(name, problem, options)
    assert rest == {}
    assert data.digest == found.digest
    assert problems.get(problem).evaluate(data, found.plan).valid


def test_a_queue_is_posed_by_no_instance() -> None:
    with pytest.raises(InstanceError, match="has one model and no jobs"):
        hetopt.solve(NAME, problem="job_scheduling")


def test_a_problem_is_solved_by_statements_and_planners_too() -> None:
    exact = hetopt.solve(NAME, problem="device_grouping")
    stated = hetopt.solve(
        NAME, "device_grouping_patterns", "cpsat", problem="device_grouping"
    )
    assert stated.objective == exact.objective
    own = hetopt.solve(NAME, planner="metis", problem="one_pipeline")
    assert own.problem == "one_pipeline"
    assert own.bound is not None
    with pytest.raises(UnknownName, match="megatron"):
        hetopt.solve(NAME, planner="megatron", problem="one_pipeline")
    with pytest.raises(Unsupported, match="planner and method exclude each other"):
        hetopt.solve(NAME, "metis", planner="metis")


def test_options_are_the_problems_or_the_methods() -> None:
    data, rest = api.pose(NAME, "layer_partition", {"tensor_parallel": 4, "strange": 1})
    assert len(data.stages) == 2
    assert rest == {"strange": 1}
    listed, _ = api.pose(
        NAME, "layer_partition", {"stages": "node1, node0", "tensor_parallel": 4}
    )
    assert [stage.name for stage in listed.stages] == ["0:node1", "1:node0"]
    round_, _ = api.pose(NAME, "job_round", {"batches": "4,8", "jobs": 3})
    assert [one.jobs for one in round_.classes] == [2, 1]


def test_a_problem_stated_by_itself_is_taken_as_it_is() -> None:
    data = device_grouping.data(hetopt.load(NAME))
    assert api.pose(data, "device_grouping") == (data, {})
    with pytest.raises(Unsupported, match="found tensor_parallel with a problem"):
        api.pose(data, "device_grouping", {"tensor_parallel": 2})
    with pytest.raises(MixedData, match="found a problem 'device_grouping', expected"):
        api.pose(data, "recovery")
    with pytest.raises(UnknownName, match="'nonsense'"):
        api.pose(NAME, "nonsense")


def test_a_plan_that_breaks_a_rule_poses_nothing(
    planned: Result, tmp_path: Path
) -> None:
    document = planned.to_file()
    document["plan"]["pipelines"][0]["micro_batches"] += 1
    file = put(tmp_path / "wrong.json", {k: document[k] for k in ("instance", "plan")})
    with pytest.raises(InstanceError, match="plan: found a plan that breaks a rule"):
        api.pose(NAME, "layer_partition", {"plan": str(file)})


def test_a_recovery_goes_on_with_the_same_plan_every_time(plan_file: Path) -> None:
    asked = {"plan": str(plan_file), "lost": "node1"}
    one, two = (api.pose(NAME, "recovery", asked)[0] for _ in range(2))
    assert one == two
    assert {need.node for need in one.needs} == {"node0"}


def test_the_partition_of_a_plan_is_no_slower_than_the_plan(
    planned: Result, plan_file: Path
) -> None:
    found = hetopt.solve(
        NAME, problem="layer_partition", options={"plan": str(plan_file)}
    )
    assert isinstance(found.data, layer_partition.Data)
    judged = training_plan.evaluate(hetopt.load(NAME), planned.plan)
    assert found.objective <= judged.parts["pipeline_us"][0]
