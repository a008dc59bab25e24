"""Grids refuted by other code: as far as the search says, and never past a plan."""

import json
import time
from math import inf
from pathlib import Path

import pytest
from brute_force_grids import best_grid, tiny_on_a_trainer
from hypothesis import given
from inputs import drawn, examples, plans_of

import hetopt
from hetopt import api
from hetopt.bounds.again import grids
from hetopt.plans import TrainingPlan
from hetopt.problems import training_plan as judge
from hetopt.schema import Instance
from hetopt.search import grid


@given(drawn(tiny_on_a_trainer))
@examples(12)
def test_the_best_grid_is_not_refuted_and_the_searchs_bound_is(
    instance: Instance,
) -> None:
    best, found = best_grid(instance), grid.search(instance)
    if best is not None:
        assert not grids.refuted(instance, best + 1)
    if found.bound_us < inf:
        assert grids.refuted(instance, int(found.bound_us))


@given(
    drawn(tiny_on_a_trainer).flatmap(
        lambda one: plans_of(one).map(lambda plan: (one, plan))
    )
)
@examples(40)
def test_no_plan_that_the_target_runs_is_refuted(
    drawn_: tuple[Instance, TrainingPlan],
) -> None:
    instance, plan = drawn_
    judged = judge.evaluate(instance, plan)
    if judged.valid:
        assert not grids.refuted(instance, judged.objective + 1)


@pytest.mark.parametrize("target", ["megatron", "torchtitan"])
@pytest.mark.parametrize(
    "name",
    ["hexiscale/setting-1-llama2-7b", "generated:islands/64/2", "tiny/three-nodes"],
)
def test_bounds_of_larger_clusters_are_refuted_and_their_plans_are_not(
    name: str, target: str
) -> None:
    instance = hetopt.load(name).on(target)
    found = grid.search(instance, deadline=time.monotonic() + 60, most=3)
    assert grids.refuted(instance, int(found.bound_us))
    if found.objective is not None:
        assert not grids.refuted(instance, found.objective + 1)


def test_a_target_that_runs_more_than_grids_has_no_bound_of_them() -> None:
    instance = hetopt.load("tiny/three-nodes").on("flagscale")
    assert not grids.refuted(instance, 1)


def test_the_bound_of_a_trainer_is_derived_and_one_past_its_plan_refused(
    tmp_path: Path,
) -> None:
    limits = hetopt.Limits(time_s=20, seed=0)
    instance = hetopt.load("tiny/three-nodes").on("megatron")
    found = grid.search(instance)
    result = hetopt.plan(instance, "grid", limits=limits)
    assert result.objective is not None
    file = tmp_path / "plan.json"
    document = result.to_file()
    file.write_text(json.dumps(document | {"bound": int(found.bound_us)}))
    assert api.bound_checked(file).by == grids.SOURCE
    file.write_text(json.dumps(document | {"bound": result.objective}))
    proof = api.bound_checked(file, again=limits)
    assert proof.missing
    assert "came to" in proof.missing[0]
