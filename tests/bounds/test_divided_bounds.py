"""What is proved of experts, sequences, layers and states that plans may divide."""

import json

import pytest
from exporter_plans import pipeline
from places import TESTS
from small_instances import small

import hetopt
from hetopt import registry
from hetopt.bounds import impossible
from hetopt.bounds.training_plan import training_plan_bound
from hetopt.modelling import Limits
from hetopt.plans import TrainingPlan
from hetopt.problems import training_plan
from hetopt.result import Status
from hetopt.schema import Instance

DEFECTS = TESTS / "defects"
PLANS = {
    "expert-parallel-chain-bound": "expert-parallel-chain-bound.better-plan",
    "expert-parallel-false-infeasible": "expert-parallel-false-infeasible.plan",
    "interleave-alternative-false-infeasible": (
        "interleave-alternative-false-infeasible.plan"
    ),
    "undecided-bound-of-one-way": "undecided-bound-of-one-way.better-plan",
}
# Twelve layers of ten experts on ten GPUs, and what five pipelines take there.
MIXTURES = ("expert-parallel-bound-contradicted", "expert-parallel-bound-proved-again")


def instance_of(name: str) -> Instance:
    tree = json.loads((DEFECTS / f"{name}.json").read_text())
    return Instance.model_validate(tree.get("instance", tree), strict=False)


def plan_of(name: str) -> TrainingPlan:
    tree = json.loads((DEFECTS / f"{PLANS[name]}.json").read_text())
    return TrainingPlan.model_validate(tree["plan"], strict=False)


def found(name: str) -> tuple[Instance, int]:
    """The instance, and the time of a valid plan."""
    instance = instance_of(name)
    plan = plan_of(name) if name in PLANS else hetopt.plan(instance, "megatron").plan
    judged = training_plan.evaluate(instance, plan)
    assert judged.valid
    assert isinstance(judged.objective, int)
    return instance, judged.objective


@pytest.mark.parametrize("name", [*PLANS, *MIXTURES])
def test_no_bound_and_no_reason_excludes_a_valid_plan(name: str) -> None:
    instance, us = found(name)
    assert impossible.reason(instance) is None
    assert training_plan_bound(instance).value <= us


@pytest.mark.parametrize("name", [*PLANS, MIXTURES[0]])
def test_the_exact_method_excludes_no_valid_plan(name: str) -> None:
    instance, us = found(name)
    result = hetopt.solve(instance, limits=Limits(time_s=2))
    assert result.status is not Status.INFEASIBLE
    assert result.bound.value <= us


@pytest.mark.parametrize("planner", registry.entries_for("planners", "training_plan"))
@pytest.mark.parametrize("name", ["interleave-alternative-false-infeasible"])
def test_no_planner_says_that_there_is_none(name: str, planner: str) -> None:
    result = hetopt.plan(instance_of(name), planner, limits=3)
    assert result.status is not Status.INFEASIBLE


def test_stages_of_too_few_layers_are_told_under_every_alternative() -> None:
    tree = json.loads((DEFECTS / "interleave-whale-crash.json").read_text())
    tree = tree.get("instance", tree)
    layers = tree["model"]["layers"]
    tree["workload"]["costs"]["interleave"] = layers + 2
    tree["workload"]["alternatives"] = {"interleave": [layers + 1]}
    reason = impossible.reason(Instance.model_validate(tree, strict=False))
    assert f"{layers + 1} virtual stages" in reason


@pytest.mark.parametrize("gbytes_per_s", [0.001, 0.1, 0.5])
def test_hops_that_interleaving_hides_are_priced_so(gbytes_per_s: float) -> None:
    """Two nodes whose slow link costs two interleaved stages nothing."""
    instance = small(
        *("A*1 A*1", {"A": (100, 100)}),
        model={"vocabulary": 0, "parameters_per_layer": 200_000_000},
        inter=gbytes_per_s,
        costs={"interleave": 2, "interleaved_hop_factor": 0},
    )
    one = pipeline(["n0:0", "n1:0"], [(2, 1, 1), (2, 1, 1)], 8, 1)
    plan = TrainingPlan(pipelines=(one,))
    judged = training_plan.evaluate(instance, plan)
    assert judged.valid
    assert training_plan_bound(instance).value <= judged.objective
