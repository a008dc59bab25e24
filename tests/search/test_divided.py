"""Sequences and experts divided among GPUs: judge, searches, bounds, brute force."""

from typing import Any

import pytest
from brute_force_grids import best_grid
from flat import flat
from mixtures import mixture

import hetopt
from hetopt.bounds.training_plan import training_plan_bound
from hetopt.costs import under
from hetopt.errors import InstanceError
from hetopt.problems import training_plan
from hetopt.problems.training_plan import settings
from hetopt.schema import Instance, Split
from hetopt.schema.groups import FIELDS
from hetopt.search import choices


def test_a_plan_says_how_it_divides_and_is_judged_so() -> None:
    instance = mixture([4])
    for way in settings.split_variants(instance):
        found = hetopt.plan(way, "grid", limits=10)
        if found.plan is None:
            continue
        said = choices.said(instance, way, found.plan)
        assert training_plan.evaluate(instance, said).objective == found.objective
        split = way.workload.costs.split
        assert tuple(getattr(said, field) or 1 for field in FIELDS) == split


def test_experts_are_divided_among_equal_gpus() -> None:
    way = under(mixture([4]), split=Split(experts=4))
    plan = hetopt.plan(way, "grid", limits=10).plan
    assert training_plan.evaluate(way, plan).valid
    first = plan.pipelines[0]
    alone = plan.model_copy(
        update={"pipelines": (first.model_copy(update={"micro_batches": 4}),)}
    )
    rules = {broken.rule for broken in training_plan.evaluate(way, alone).violations}
    assert ("expert_parallel" in rules) == bool(len(list(alone.replicas())) % 4)


@pytest.mark.parametrize(
    ("costs", "alternatives", "message"),
    [
        ({"activations": "standard"}, {"context_parallel": [2]}, "activations"),
        ({"expert_parallel": 3}, {}, "does not divide"),
        ({"context_parallel": 3}, {}, "sequence_length"),
    ],
)
def test_what_cannot_be_divided_is_refused(
    costs: dict[str, Any], alternatives: dict[str, Any], message: str
) -> None:
    tree = flat(mixture([4]))
    tree["workload"]["costs"] |= costs
    tree["workload"]["alternatives"] = alternatives
    with pytest.raises((ValueError, InstanceError), match=message):
        Instance.model_validate(tree, strict=False)


@pytest.mark.parametrize("counts", [[1, 1, 1], [3]])
def test_layers_without_experts_ask_nothing_of_those_that_divide_them(
    counts: list[int],
) -> None:
    tree = flat(mixture(counts, global_batch=3))
    tree["model"]["dense_layers"] = tree["model"]["layers"]
    tree["workload"]["costs"]["expert_parallel"] = 2
    tree["workload"]["alternatives"] = {}
    instance = Instance.model_validate(tree, strict=False)
    best = best_grid(instance)
    found = hetopt.solve(instance, limits=20)
    assert found.objective == best
    assert training_plan_bound(instance).value <= best
