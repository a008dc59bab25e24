"""Every planner of every subproblem: valid, never better than the best, repeatable."""

from functools import cache
from typing import Any

import pytest
from brute_force import best
from random_data import tiny

import hetopt
from hetopt import problems, registry
from hetopt.errors import NoPlan
from hetopt.problems import Objective, device_grouping, job_round, layer_partition

SEEDS = range(60)
PROBLEMS = ("device_grouping", "layer_partition", "provisioning", "job_round")
PAIRS = [
    (problem, planner)
    for problem in (*PROBLEMS, "post_training")
    for planner in registry.entries_for("planners", problem)
]


@cache
def case(problem: str, seed: int) -> tuple[Any, Objective | None]:
    """A tiny problem and the best objective of all of its plans."""
    data = tiny(problem, seed)
    return data, best(problem, data)


def planned(planner: str, data: Any, **options: Any) -> Any:
    """The plan of a planner; None where it gives a reason for none."""
    module: Any = registry.entry("planners", planner)
    try:
        return module.plan(data, seed=1, deadline=None, **options)
    except NoPlan as reason:
        told = str(reason)
    return pytest.fail(told) if not told.startswith(f"{planner}: ") else None


@pytest.mark.parametrize(("problem", "planner"), PAIRS)
def test_a_planner_is_valid_bounded_and_repeatable(problem: str, planner: str) -> None:
    found = 0
    for seed in SEEDS:
        data, most = case(problem, seed)
        plan = planned(planner, data)
        assert plan == planned(planner, data)
        if plan is None:
            continue
        found += 1
        judged = problems.get(problem).evaluate(data, plan)
        assert judged.violations == (), seed
        assert most is not None, seed
        assert judged.objective is not None
        if problems.get(problem).sense == "minimise":
            assert judged.objective >= most, seed
        else:
            assert judged.objective <= most, seed
    # A placer takes all that is offered, which few budgets and deadlines permit.
    assert found > len(SEEDS) // (8 if problem == "provisioning" else 3)


# --- each by its rule ------------------------------------------------------------


def test_autohets_rule_gives_every_group_as_many_of_a_type_but_for_the_rest() -> None:
    data = device_grouping.data(
        hetopt.load("autohet/a100-h20-8x8-gpt3-6.7b"), micro_batches=64, groups=4
    )
    plan = planned("autohet_groups", data)
    assert [(group.gpus, group.copies) for group in plan.groups] == [
        ({"A100": 2, "H20": 2}, 4)
    ]


def test_groups_that_lack_memory_are_served_before_it_is_too_late() -> None:
    """By compute alone the two strong devices would leave one group too small."""
    data = device_grouping.Data(
        gpus=(
            device_grouping.DeviceType(type="A", count=2, gflops=100, memory_mib=10),
            device_grouping.DeviceType(type="B", count=2, gflops=1, memory_mib=90),
        ),
        minimum_memory_mib=100,
        micro_batches=4,
        groups=2,
    )
    plan = planned("strongest_first", data)
    assert [(group.gpus, group.copies) for group in plan.groups] == [
        ({"A": 1, "B": 1}, 2)
    ]


def test_metis_moves_layers_away_from_where_memory_lacks() -> None:
    stages = [
        layer_partition.Stage(name=name, memory_mib=room, layer_us=(us,) * 8)
        for name, room, us in (("fast", 3, 10), ("slow", 9, 30))
    ]
    data = layer_partition.Data(
        layer_mib=(1,) * 8,
        in_flight_mib=(0,) * 8,
        stages=tuple(stages),
        micro_batches=4,
    )
    assert planned("metis_layers", data).layers == (3, 5)
    assert planned("whale_layers", data).layers == (3, 5)
    assert planned("proportional_layers", data) is None
    assert planned("equal_layers", data) is None


def test_espresso_puts_the_least_compute_per_memory_first() -> None:
    instance = hetopt.load("autohet/a100-h20-4x4-gpt3-6.7b")
    data = layer_partition.data(instance, tensor_parallel=4, order="free")
    assert planned("espresso_layers", data).order[0] == "1:node1"  # the H20s


def test_has_takes_the_first_configuration_that_fits_by_goodput_a_gpu() -> None:
    data = job_round.Data(
        classes=(
            job_round.JobClass(
                name="c",
                jobs=3,
                unserved=11_000,
                configurations=(
                    job_round.Configuration(gpu="A", gpus=4, cost=3_000),
                    job_round.Configuration(gpu="A", gpus=1, cost=7_000),
                ),
            ),
        ),
        slots=tuple(
            job_round.Slots(gpu="A", size=size, gpus=room)
            for size, room in ((1, 6), (2, 6), (4, 4))
        ),
    )
    rows = {
        planner: sorted((x.gpus, x.jobs) for x in planned(planner, data).served)
        for planner in ("has", "first_come", "greedy_round")
    }
    # 4 GPUs: 3,000^2 x 4; 1 GPU: 7,000^2 x 1, so the larger one is ranked first.
    assert rows["has"] == rows["first_come"] == [(1, 2), (4, 1)]
    assert rows["greedy_round"] == [(1, 3)]
