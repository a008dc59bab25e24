"""Searches end at their deadline, wherever they are; large clusters have plans soon."""

import time
from collections.abc import Iterator
from typing import Any

import pytest
from counted_clock import Clock, counted_clock

import hetopt
from hetopt import registry
from hetopt.errors import NoPlan
from hetopt.files.clusters import generate
from hetopt.problems import training_plan

PLANNERS = registry.entries_for("planners", "training_plan")


@pytest.fixture
def clock() -> Iterator[Clock]:
    with counted_clock() as made:
        yield made


@pytest.mark.parametrize("name", PLANNERS)
@pytest.mark.parametrize("looks", [1, 40, 400])
def test_a_planner_looks_no_further_once_the_deadline_is_over(
    clock: Clock, name: str, looks: int
) -> None:
    instance = generate("islands", size="medium", seed=1)
    planner: Any = registry.entry("planners", name)
    try:
        plan = planner.plan(instance, seed=0, deadline=float(looks))
        assert training_plan.evaluate(instance, plan).valid
    except NoPlan:
        pass
    # What is on the way is finished, at a few looks at the clock.
    assert clock.now <= looks + 20


@pytest.mark.parametrize("name", PLANNERS)
def test_a_planner_out_of_time_says_so(clock: Clock, name: str) -> None:
    instance = generate("islands", size="medium", seed=1)
    with pytest.raises(NoPlan, match="in time"):
        registry.entry("planners", name).plan(instance, seed=0, deadline=0.0)


def test_remedies_take_no_time_that_the_limits_do_not_leave() -> None:
    instance = generate("tight_memory", size="tiny", seed=0)
    found = hetopt.plan(instance, planner="amp", limits=0)
    assert found.plan is None
    assert len(found.reasons) == 1
    assert "in time" in found.reasons[0]


@pytest.mark.slow
def test_more_nodes_than_are_few_have_a_plan_soon() -> None:
    # More than 128 nodes: each would be a kind of its own.
    instance = generate("pairwise", size="1200", seed=1)
    assert len(instance.planned_cluster.nodes) > 128
    planner: Any = registry.entry("planners", "islands")
    plan = planner.plan(instance, seed=0, deadline=time.monotonic() + 20)
    assert training_plan.evaluate(instance, plan).valid
