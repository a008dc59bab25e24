"""Settings that plans choose: judged as if they were the workload's own."""

from functools import cache
from random import Random
from typing import Any

import pytest
from flat import flat
from pydantic import ValidationError
from random_alternatives import with_alternatives, with_choices, with_rules
from random_pipelines import random_instance, random_pipes

from hetopt.costs import fixed, under
from hetopt.explaining import explain
from hetopt.modelling import Limits
from hetopt.plans import TrainingPlan
from hetopt.problems import training_plan as judge
from hetopt.schema import Instance
from hetopt.search.fast_cost import FastCost


@cache
def random_plans() -> list[tuple[Random, Instance, TrainingPlan]]:
    found = []
    for seed in range(60):
        random = Random(f"alternatives/{seed}")
        plain = random_instance(random, later=seed % 2 == 0)
        instance = with_alternatives(random, plain, zeros=(0, 1, 2, 3))
        if pipes := random_pipes(random, instance):
            found.append((random, instance, FastCost(instance).plan(pipes)))
    return found


def test_a_choice_made_everywhere_is_the_setting_of_the_workload() -> None:
    for _, instance, plan in random_plans()[:15]:
        for rule in instance.workload.recomputes:
            for zero in (0, 1, 3):
                chosen = with_rules(plan, lambda said=rule: said).model_copy(
                    update={"zero": zero}
                )
                found = judge.evaluate(instance, chosen)
                assert found == judge.evaluate(under(instance, rule, zero), plan)
        assert judge.evaluate(instance, plan) == judge.evaluate(fixed(instance), plan)


def test_an_explanation_adds_up_whatever_was_chosen() -> None:
    for random, instance, plan in random_plans():
        chosen = with_choices(random, instance, plan)
        judged = judge.evaluate(instance, chosen)
        found = explain(instance, chosen, Limits(time_s=0))
        assert found.iteration_us == judged.objective
        gpus = instance.planned_cluster.gpu_count
        assert sum(found.gpu_time.values()) == gpus * found.iteration_us
        for row in found.stages:
            assert sum(row.parts.values()) == found.iteration_us
            assert min(row.parts.values()) >= 0
        peaks = {gpu: row.need_mib for row in found.memory for gpu in row.gpus}
        assert peaks == judged.parts["peak_memory_mib"]
        assert found.tightest.headroom_mib == judged.parts["least_headroom_mib"]
        assert all(min(row.parts.values()) >= 0 for row in found.memory)


def test_what_is_not_offered_is_a_violation() -> None:
    _, instance, plan = random_plans()[0]
    chosen = with_rules(plan, lambda: "none").model_copy(update={"zero": 2})
    plain = under(instance, "full", 0)
    rules = {v.rule for v in judge.evaluate(plain, chosen).violations}
    assert {"recompute", "zero"} <= rules


def test_files_without_alternatives_keep_their_digest() -> None:
    _, instance, plan = random_plans()[0]
    assert fixed(instance).digest != instance.digest
    tree = fixed(instance).model_dump(mode="json", exclude_unset=True)
    del tree["workload"]["alternatives"]
    assert Instance.model_validate(tree, strict=False).digest == fixed(instance).digest
    tree = plan.model_dump(mode="json", exclude_defaults=True)
    assert TrainingPlan.model_validate(tree, strict=False).digest == plan.digest


@pytest.mark.parametrize(
    ("costs", "alternatives", "message"),
    [
        (
            {"activations": "checkpoint"},
            {"recompute": ["none"]},
            "the same for all rules",
        ),
        ({"layer_times": "profile"}, {"recompute": ["none"]}, "measured with one rule"),
        ({}, {"recompute": ["some"]}, "full"),
        ({}, {"zero": [4]}, "less than or equal to 3"),
        ({}, {"precision": ["bf16"]}, "Extra inputs"),
    ],
)
def test_alternatives_without_costs_of_their_own_are_refused(
    costs: dict[str, Any], alternatives: dict[str, Any], message: str
) -> None:
    tree = flat(random_plans()[1][1], exclude_unset=True)
    tree["workload"]["alternatives"] = alternatives
    tree["workload"]["costs"] |= costs
    if costs.get("layer_times"):
        row = {"gpu": "T0", "tensor_parallel": 1, "micro_batch": 1}
        row["layer_us"] = [1] * tree["model"]["layers"]
        tree["workload"]["costs"]["profile"] = [row]
    with pytest.raises(ValidationError, match=message):
        Instance.model_validate(tree, strict=False)
