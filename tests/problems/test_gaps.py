"""A gap report names its references, never mixes them, and hides no failure."""

from dataclasses import replace
from fractions import Fraction
from typing import Any

import pytest
from test_result import grouping, partition

from hetopt.errors import MixedData
from hetopt.gaps import GapReport
from hetopt.plans import Partition
from hetopt.result import Bound, Method, Result, Status, Stop

SLOW = Partition(order=("a", "b"), layers=(1, 2))  # bottleneck 30, as the other
OTHER_DATA = partition().data.model_copy(update={"micro_batches": 5})


def by(name: str, result: Result) -> Result:
    """The same result by another method."""
    return replace(result, method=Method(name, "heuristic"))


def nothing(name: str) -> Result:
    """A method that found no plan on the same data."""
    return by(name, partition(status=Status.UNDECIDED, plan=None, stop=Stop.TIME))


@pytest.mark.parametrize(
    ("of", "weak", "strong"), [(partition, 10, 25), (grouping, Fraction(80), 25)]
)
def test_every_plan_is_measured_against_the_strongest_bound(
    of: Any, weak: int | Fraction, strong: int
) -> None:
    bounds = {"weak": Bound(weak, "weak"), "strong": Bound(strong, "strong")}
    runs = [by(name, of(bound=bound)) for name, bound in bounds.items()]
    report = GapReport.of([*runs, by("none", of())])
    assert [row.gap_to_bound for row in report.rows] == pytest.approx([0.2] * 3)


def test_without_a_bound_there_is_no_gap_to_it_though_a_best_plan_is_known() -> None:
    (row,) = GapReport.of([partition()]).rows
    assert row.gap_to_bound is None
    assert row.gap_to_best == 0


def test_instances_are_not_measured_against_each_other() -> None:
    elsewhere = by("elsewhere", partition(data=OTHER_DATA, plan=SLOW))
    here = by("here", partition(bound=Bound(30, "enumeration"), status=Status.OPTIMAL))
    report = GapReport.of([here, elsewhere])
    assert [row.gap_to_bound for row in report.rows] == [0, None]


def test_different_problems_in_one_report_are_refused() -> None:
    stranger = Result(
        problem="device_grouping",
        data=partition().data,
        method=Method("stranger", "heuristic"),
        status=Status.UNDECIDED,
        stop=Stop.TIME,
    )
    with pytest.raises(MixedData, match="different problems"):
        GapReport.of([partition(), stranger])


def test_the_summary_counts_unsolved_and_unproven_apart() -> None:
    proved = partition(bound=Bound(30, "enumeration"), status=Status.OPTIMAL)
    elsewhere = partition(data=OTHER_DATA, bound=Bound(20, "guess"))
    third = partition().data.model_copy(update={"micro_batches": 6})
    unsolved = replace(nothing("one"), data=third)
    none = partition(data=third, status=Status.INFEASIBLE, plan=None, stop=Stop.PROVED)
    found = [by("one", proved), by("one", elsewhere), unsolved, by("two", none)]
    assert GapReport.of(found).summary() == {
        "one": {
            "instances": 3,
            "runs": 3,
            "with_plan": 2,
            "proved_optimal": 1,
            "proved_infeasible": 0,
            "without_plan_or_proof": 1,
            "median_gap_to_bound": pytest.approx(0.25),
            "p90_gap_to_bound": pytest.approx(0.5),
            "worst_gap_to_bound": pytest.approx(0.5),
            "shifted_mean_s": pytest.approx(0),
        },
        "two": {
            "instances": 1,
            "runs": 1,
            "with_plan": 0,
            "proved_optimal": 0,
            "proved_infeasible": 1,
            "without_plan_or_proof": 0,
            "median_gap_to_bound": None,
            "p90_gap_to_bound": None,
            "worst_gap_to_bound": None,
            "shifted_mean_s": pytest.approx(0),
        },
    }
