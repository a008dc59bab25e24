"""Every planner of training plans: one contract; Megatron and islands in detail."""

from functools import partial
from itertools import pairwise
from random import Random

import drawing
import pytest
from brute_force_training import best_training_plan
from hypothesis import given
from hypothesis import strategies as st
from inputs import drawn, examples, seeds, tiny_instances
from made_plans import pipeline, stage
from places import TESTS

import hetopt
from hetopt import registry
from hetopt.bounds.training_plan import training_plan_bound
from hetopt.errors import NoPlan, Unsupported
from hetopt.files.clusters import generate
from hetopt.modelling import Limits
from hetopt.planners import megatron
from hetopt.plans import TrainingPlan
from hetopt.problems import training_plan
from hetopt.schema import Instance

PLANNERS = registry.entries_for("planners", "training_plan")
FAMILIES = ["equal", "unequal", "islands", "tight_memory", "steep"]
#: Instances on which a planner once failed.
DEFECTS = [
    "all-zero",
    "interleave-whale-crash",
    "unmeasured-degree-crash",
    "unmeasured-size",
    "unmeasured-size-lockstep",
    "unmeasured-size-overlap",
]


def any_instance(rng: Random) -> Instance:
    """A generated cluster, or one under any settings, of which all is not measured."""
    if rng.random() < 0.4:
        return generate(rng.choice(FAMILIES), size="tiny", seed=rng.randrange(10**6))
    tree = drawing.instance(
        rng,
        rng.choice([(1, 1), (2, 2), (3, 1), (2, 1, 1), (4, 2), (1, 2, 5)]),
        layers=rng.choice([2, 3, 5, 8]),
        batch=rng.choice([4, 6, 8, 12]),
        sizes=rng.choice([(1,), (2,), (1, 2), (2, 4), (3,), (1, 2, 3)]),
        divides=rng.random() < 0.2,
    )
    return drawing.read(tree)


# --- all planners ----------------------------------------------------------------


def keeps_the_contract(planner: str, instance: Instance) -> int | None:
    """The objective of a valid plan that no bound contradicts, and the seed repeats.

    None where the planner refuses by name, or says why it has none.
    """
    limits = Limits(work=2_000, seed=3)
    asked = partial(hetopt.plan, instance, planner, known=False, limits=limits)
    try:
        found = asked()
    except Unsupported:  # `soaking/capability.py` holds what it says
        return None
    assert found.failed == ()
    assert asked().plan == found.plan
    if found.plan is None:
        assert found.reasons or found.stop is not None
        return None
    judged = training_plan.evaluate(instance, found.plan)
    assert judged.violations == ()
    assert judged.objective >= training_plan_bound(instance).value
    return judged.objective


@pytest.mark.parametrize("planner", PLANNERS)
@examples(8)
@given(instance=drawn(any_instance))
def test_a_planner_is_valid_bounded_and_repeatable_or_says_why(
    planner: str, instance: Instance
) -> None:
    keeps_the_contract(planner, instance)


@pytest.mark.parametrize("name", DEFECTS)
def test_every_planner_and_command_answers_where_it_once_failed(name: str) -> None:
    instance = hetopt.load(TESTS / "defects" / f"{name}.json")
    values = [keeps_the_contract(planner, instance) for planner in PLANNERS]
    assert any(values)
    found = hetopt.plan(instance, limits=Limits(work=2_000))
    assert found.plan is not None
    assert found.failed == ()
    assert hetopt.solve(instance, limits=0.5).failed == ()


@examples(5)
@given(tiny_instances())
def test_no_planner_beats_the_best_of_all_plans(instance: Instance) -> None:
    best = best_training_plan(instance, several_replicas=True)
    for planner in PLANNERS:
        value = keeps_the_contract(planner, instance)
        if value is not None:
            assert best is not None, planner
            assert value >= best[0], planner


# --- megatron --------------------------------------------------------------------


def best_symmetric(instance: Instance) -> int | None:
    """The least objective of symmetric plans on all GPUs in Megatron's rank order."""
    nodes = instance.planned_cluster.nodes
    gpus = [f"{node.name}:{i}" for node in nodes for i in range(node.count)]
    found = []
    for tp in range(1, len(gpus) + 1):
        if any(node.count % tp for node in nodes):
            continue
        groups = [tuple(gpus[i : i + tp]) for i in range(0, len(gpus), tp)]
        for pp in range(1, instance.model.layers + 1):
            for b in instance.workload.micro_batch_sizes:
                dp, left = divmod(len(groups), pp)
                if left or instance.workload.global_batch % (dp * b):
                    continue
                n = instance.workload.global_batch // (dp * b)
                for by_rank in (True, False):
                    rows = [
                        [
                            groups[j * dp + d if by_rank else d * pp + j]
                            for j in range(pp)
                        ]
                        for d in range(dp)
                    ]
                    plan = symmetric(instance.model.layers, rows, n, b)
                    judged = training_plan.evaluate(instance, plan)
                    if judged.valid:
                        found.append(judged.objective)
    return min(found, default=None)


def symmetric(layers: int, rows: list, n: int, b: int) -> TrainingPlan:
    share, more = divmod(layers, len(rows[0]))
    cuts = [0]
    for j in range(len(rows[0])):
        cuts.append(cuts[-1] + share + (1 if j < more else 0))
    spans = [*pairwise(cuts)]
    pipelines = [
        pipeline(
            *(n, b),
            *(stage(*x, (b, " ".join(y))) for x, y in zip(spans, row, strict=True)),
        )
        for row in rows
    ]
    return TrainingPlan.model_validate({"pipelines": pipelines}, strict=False)


@examples(25)
@given(st.sampled_from(["equal", "unequal", "steep"]), seeds())
def test_megatron_is_the_best_of_all_symmetric_plans(family: str, seed: int) -> None:
    instance = generate(family, size="tiny", seed=seed)
    expected = best_symmetric(instance)
    if expected is not None:
        assert keeps_the_contract("megatron", instance) == expected


def test_megatron_says_how_much_memory_is_short_and_where() -> None:
    with pytest.raises(NoPlan, match=r"lacks \d+ MiB a GPU on node 'node1', stage 1"):
        megatron.plan(hetopt.load("tiny/infeasible"))
