"""Limits, interrupts, progress and warm starts: the same of every exact method."""

import os
import signal
from typing import Any

import pytest
import test_exact_device_grouping as of_groupings
import test_exact_layer_partition as of_partitions

from hetopt import problems, registry
from hetopt.errors import InstanceError
from hetopt.modelling import Limits
from hetopt.plans import Group, Grouping, Partition
from hetopt.result import Result, Status, Stop

STAGES = tuple(stage.name for stage in of_partitions.LARGE.stages)
#: Data that take a while, a plan of them that breaks a rule, and the rule.
CASES: dict[str, tuple[Any, Any, str]] = {
    "device_grouping": (
        of_groupings.LARGE,
        Grouping(groups=(Group(gpus={"A100": 1}),)),
        "every_device_once",
    ),
    "layer_partition": (
        of_partitions.LARGE,
        Partition(order=STAGES, layers=(1,) * len(STAGES)),
        "every_layer_once",
    ),
}

of_each = pytest.mark.parametrize("problem", CASES)


def solve(problem: str, **options: Any) -> Result:
    method: Any = registry.entry("exact", problem)
    return method.solve(CASES[problem][0], **options)


def ascending(problem: str, *values: Any) -> bool:
    """Whether values rise, as bounds of the problem do on their way to its plans."""
    falling = problems.get(problem).sense == "maximise"
    return [*values] == sorted(values, reverse=falling)


@of_each
def test_no_time_at_all_is_a_result_and_no_error(problem: str) -> None:
    result = solve(problem, limits=Limits(time_s=0.0))
    assert result.stop is Stop.TIME
    assert result.status is Status.UNDECIDED


@of_each
def test_a_gap_target_ends_the_work_with_a_valid_bound(problem: str) -> None:
    target = {"device_grouping": 0.5, "layer_partition": 0.2}[problem]
    result = solve(problem, limits=Limits(gap=target))
    assert result.gap <= target
    best = solve(problem).objective
    assert ascending(problem, result.bound.value, best, result.objective)


@pytest.mark.parametrize("signal_", [signal.SIGINT, signal.SIGTERM])
def test_an_interrupt_returns_incumbent_and_bound(signal_: signal.Signals) -> None:
    problem = "device_grouping"

    def interrupt(incumbent: Any, bound: Any) -> None:
        if incumbent is not None and bound is not None:
            os.kill(os.getpid(), signal_)

    result = solve(problem, report=interrupt)
    assert result.stop is Stop.INTERRUPTED
    best = solve(problem).objective
    assert ascending(problem, result.bound.value, best, result.objective)


@of_each
def test_progress_only_improves_and_ends_in_the_result(problem: str) -> None:
    seen: list[tuple[Any, Any]] = []
    result = solve(problem, report=lambda *now: seen.append(now))
    incumbents = [value for value, _ in seen if value is not None]
    bounds = [bound for _, bound in seen if bound is not None]
    assert ascending(problem, *bounds)
    assert ascending(problem, *reversed(incumbents))
    assert seen[-1] == (result.objective, result.bound.value)
    assert [(p.incumbent, p.bound) for p in result.trace] == seen


@of_each
def test_an_optimal_warm_start_is_kept(problem: str) -> None:
    first = solve(problem)
    again = solve(problem, warm_start=first.plan)
    assert again.objective == first.objective
    assert again.trace[0].incumbent == first.objective


@of_each
def test_a_warm_start_that_breaks_a_rule_is_refused(problem: str) -> None:
    _, plan, rule = CASES[problem]
    with pytest.raises(InstanceError, match=rule):
        solve(problem, warm_start=plan)
