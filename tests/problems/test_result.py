"""A result refuses to exist when it lies."""

import json
from fractions import Fraction
from typing import Any

import pytest

from hetopt.errors import (
    BoundContradicted,
    InternalError,
    ObjectiveMismatch,
    PlanRejected,
)
from hetopt.plans import Group, Grouping, Partition
from hetopt.problems import device_grouping, layer_partition
from hetopt.result import Bound, Method, Result, Status, Stop, gap

LAYERS = layer_partition.Data.model_validate_json(
    json.dumps(
        {
            "layer_mib": [1, 1, 1],
            "in_flight_mib": [0, 0, 0],
            "stages": [
                {"name": "a", "memory_mib": 2, "layer_us": [10, 20, 30]},
                {"name": "b", "memory_mib": 2, "layer_us": [30, 20, 10]},
            ],
            "micro_batches": 4,
            "objective": "bottleneck",
        }
    )
)
SPLIT = Partition(order=("a", "b"), layers=(2, 1))  # bottleneck 30
DEVICES = device_grouping.Data.model_validate_json(
    json.dumps(
        {
            "gpus": [{"type": "A", "count": 3, "gflops": 10, "memory_mib": 5}],
            "micro_batches": 5,
        }
    )
)
PAIR_AND_ONE = Grouping(groups=(Group(gpus={"A": 2}), Group(gpus={"A": 1})))


def partition(**given: Any) -> Result:
    """A result on LAYERS, feasible with SPLIT unless told otherwise."""
    fields: dict[str, Any] = {
        "problem": "layer_partition",
        "data": LAYERS,
        "method": Method("somebody", "heuristic"),
        "status": Status.FEASIBLE,
        "stop": Stop.FINISHED,
        "plan": SPLIT,
    }
    return Result(**(fields | given))


def grouping(**given: Any) -> Result:
    """A result on DEVICES: two groups, the weaker of 10 GFLOP/s."""
    fields: dict[str, Any] = {
        "problem": "device_grouping",
        "data": DEVICES,
        "plan": PAIR_AND_ONE,
    }
    return partition(**(fields | given))


def test_the_objective_is_the_judges() -> None:
    assert partition().objective == 30
    assert grouping().objective == 20


@pytest.mark.parametrize("status", Status)
def test_a_status_that_contradicts_the_plan_is_refused(status: Status) -> None:
    has = status in (Status.OPTIMAL, Status.FEASIBLE)
    word, plan = ("without", None) if has else ("with", SPLIT)
    with pytest.raises(InternalError, match=f"status {status} {word} a plan"):
        partition(status=status, plan=plan)


def test_a_plan_that_breaks_a_rule_is_refused_by_name() -> None:
    short = Partition(order=("a", "b"), layers=(1, 1))
    with pytest.raises(PlanRejected, match="every_layer_once: plan: 2 layers placed"):
        partition(plan=short)


@pytest.mark.parametrize("bound", [None, Bound(29, "guess")])
def test_optimal_needs_a_bound_that_meets_the_objective(bound: Bound | None) -> None:
    with pytest.raises(InternalError, match="optimal at 30"):
        partition(status=Status.OPTIMAL, bound=bound)


def test_a_bound_on_the_wrong_side_of_the_plan_is_refused() -> None:
    with pytest.raises(BoundContradicted, match=r"bound 31 \(guess\) contradicts"):
        partition(bound=Bound(31, "guess"))
    with pytest.raises(BoundContradicted, match="contradicts the plan at 20"):
        grouping(bound=Bound(Fraction(39, 2), "guess"))


def test_a_bound_on_the_right_side_is_kept_and_gives_the_gap() -> None:
    assert partition(bound=Bound(20, "guess")).gap == pytest.approx(0.5)
    assert grouping(bound=Bound(Fraction(25), "guess")).gap == pytest.approx(0.2)


def test_a_bound_that_meets_the_objective_makes_the_result_optimal() -> None:
    result = partition().with_bound(Bound(30, "enumeration"))
    assert result.status is Status.OPTIMAL
    assert result.gap == 0


def test_another_objective_than_the_judges_is_refused() -> None:
    assert partition().claimed(30).objective == 30
    with pytest.raises(ObjectiveMismatch, match="claimed 29, the judge finds 30"):
        partition().claimed(29)


def test_what_is_absent_is_null_in_the_document() -> None:
    document = partition(status=Status.UNDECIDED, plan=None).to_json()
    absent = ("objective", "bound", "bound_source", "gap", "plan", "evaluation")
    assert [document[key] for key in absent] == [None] * len(absent)


def test_an_infinite_gap_is_null_so_that_the_document_stays_json() -> None:
    document = partition(bound=Bound(0, "times are not negative")).to_json()
    assert document["bound"] == 0
    assert document["gap"] is None
    assert json.loads(json.dumps(document, allow_nan=False)) == document


def test_a_fraction_is_in_the_document_exactly_too() -> None:
    third = device_grouping.Data(
        gpus=(device_grouping.DeviceType(type="A", count=3, gflops=10, memory_mib=1),),
        micro_batches=1,
    )
    result = grouping(
        data=third,
        plan=Grouping(groups=(Group(gpus={"A": 3}),)),
        bound=Bound(Fraction(100, 3), "guess"),
    )
    document = result.to_json()
    assert document["objective_exact"] == [10, 1]
    assert document["bound_exact"] == [100, 3]
    assert document["bound"] == pytest.approx(100 / 3)


def test_the_gap_is_relative_to_the_reference() -> None:
    assert gap(120, 100) == pytest.approx(0.2)
    assert gap(80, 100) == pytest.approx(0.2)
    assert gap(0, 0) == 0
    assert gap(1, 0) == float("inf")
