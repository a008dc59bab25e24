"""Bounds derived again without a certificate: never beyond a plan, never weaker."""

from fractions import Fraction

import pytest
from brute_force_training import best_training_plan, tiny_instance
from hypothesis import given
from inputs import drawn, examples
from tiny_choices import random_tiny

import hetopt
from hetopt import files
from hetopt.bounds import again
from hetopt.bounds.training_plan import training_plan_bound
from hetopt.files import best
from hetopt.scheduling import bounds as queues
from hetopt.schema import Instance


def derived(instance: Instance) -> int:
    return int(max(each.value for each in again.derived("training_plan", instance)))


@examples(12)
@given(drawn(random_tiny, 4))
def test_it_holds_where_plans_choose_settings(instance: Instance) -> None:
    found = best_training_plan(instance)
    assert found is None or derived(instance) <= found[0]


@pytest.mark.parametrize(
    "name",
    [
        *("hexiscale/setting-1-llama2-7b", "hexiscale/large-240-llama-30b"),
        *("autohet/three-types-24-gpt3-6.7b", "metis/t4-v100-32-wide-resnet-6.8b"),
        *("metis/p100-t4-16-moe-10b", "hexiscale/case-study-calibrated"),
        *("generated:steep/16/1", "generated:tight_memory/16/2"),
        *("generated:unequal/64/3", "generated:islands/32/4"),
    ],
)
def test_the_bound_by_formula_is_reached_and_the_best_plan_is_not_passed(
    name: str,
) -> None:
    instance = hetopt.load(name)
    bound = training_plan_bound(instance)
    assert again.reaching("training_plan", instance, bound.value) is not None
    beyond = derived(instance) + 1
    assert again.reaching("training_plan", instance, beyond) is None
    if (known := best.known(name)) is not None:
        assert derived(instance) <= known.objective


@pytest.mark.parametrize("seed", range(40))
def test_the_bound_by_formula_of_tiny_instances_is_reached(seed: int) -> None:
    """Layers that one kind alone can hold, links that cost all, kinks of both."""
    instance = tiny_instance(seed)
    assert derived(instance) >= training_plan_bound(instance).value


@pytest.mark.parametrize("name", ["frenzy/testbed-30", "frenzy/simulator-60"])
def test_the_bound_of_a_queue_is_the_same_by_other_code(name: str) -> None:
    _, data = files.load_problem(name)
    values = [each.value for each in again.derived("job_scheduling", data)]
    assert sorted(values) == sorted(
        each(data).value for each in (queues.alone, queues.one_machine)
    )
    bound = max(values)
    assert again.reaching("job_scheduling", data, bound) is not None
    assert again.reaching("job_scheduling", data, bound + Fraction(1, 10**9)) is None


def test_problems_whose_bounds_need_a_search_have_none() -> None:
    assert again.derived("provisioning", hetopt.load("tiny/offers")) == []
