"""The cheap bound on training plans against all plans of tiny instances."""

import json
from fractions import Fraction
from typing import Any

import pytest
from brute_force_training import best_training_plan
from hypothesis import given
from inputs import examples, tiny_instances
from random_plans import random_plan
from small_instances import small

import hetopt
from hetopt.bounds.training_plan import training_plan_bound
from hetopt.costs import CostTable
from hetopt.files.clusters import generate
from hetopt.problems import training_plan
from hetopt.schema import Instance


@examples(30)
@given(tiny_instances())
def test_no_bound_is_above_the_best_of_all_plans(instance: Instance) -> None:
    """With several replicas a stage."""
    bound = training_plan_bound(instance)
    assert bound.value > 0
    best = best_training_plan(instance, several_replicas=True)
    assert best is None or bound.value <= best[0]


@pytest.mark.parametrize("family", ["equal", "unequal", "islands", "steep"])
@pytest.mark.parametrize("size", ["small", "medium"])
def test_no_random_plan_of_a_larger_instance_is_below_the_bound(
    family: str, size: str
) -> None:
    instance = generate(family, size=size, seed=5)
    bound = training_plan_bound(instance)
    for number in range(3):
        judged = training_plan.evaluate(instance, random_plan(instance, number))
        assert judged.objective is None or judged.objective >= bound.value


def test_bound_of_one_gpu_is_met_but_for_rounding() -> None:
    instance = _one_node(1)
    best = best_training_plan(instance)
    # Each of the 2 layers, and the whole, may have been rounded up by 1 us a sample.
    samples = instance.workload.global_batch
    assert 0 <= best[0] - training_plan_bound(instance).value <= 2 * samples + 1


def test_faster_links_never_raise_the_bound_and_no_links_matter_in_the_limit() -> None:
    source = hetopt.load("hexiscale/setting-2-llama2-7b")
    values = []
    for bandwidth in (0.1, 0.7, 5.0, 100.0, 1e9):
        document = source.model_dump(mode="json")
        document["cluster"]["inter"]["gbytes_per_s"] = bandwidth
        instance = Instance.model_validate_json(json.dumps(document))
        values.append(training_plan_bound(instance).value)
    assert values == sorted(values, reverse=True)
    assert values[0] > values[1] > values[2] > values[-1]
    table = CostTable(source)
    flops = 4 * table.needed_flops_per_sample // 3 * source.workload.global_batch
    least = Fraction(flops * 10**6) / table.peak_flops_per_s
    assert values[-1] <= least * Fraction(1001, 1000)


def test_layers_that_need_two_gpus_are_charged_for_tensor_parallelism() -> None:
    loose, tight = _one_node(4), _one_node(4, memory_gib=0.25)
    free, held = training_plan_bound(loose).value, training_plan_bound(tight).value
    best = best_training_plan(tight)
    assert best is not None
    assert free < held <= best[0]
    # Each of the 2 layers keeps 2 GPUs busy with all-reduces for each of the 4 samples,
    # A (t - 1) 2 S H / (t beta) long; there are 4 GPUs.
    reduced_us = 12 * 2 * 512 * 1024 / (2 * 5e3)
    assert held >= free + 2 * 2 * 4 * reduced_us / 4 - 1


def _one_node(count: int, memory_gib: float = 8.0) -> Instance:
    """Two layers of 20 M parameters: 0.3 GiB of states each."""
    shape = {"layers": 2, "vocabulary": 0, "parameters_per_layer": 20_000_000}
    costs = {"activations": "checkpoint", "head": "omit"}
    words: dict[str, Any] = {"model": shape, "global_batch": 4, "costs": costs}
    return small(f"A*{count}", {"A": (50, memory_gib)}, rate=5, **words)
