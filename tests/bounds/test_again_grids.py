"""Grids refuted by other code: as far as the search says, and never past a plan."""

import json
import time
from pathlib import Path

import pytest

import hetopt
from hetopt import api
from hetopt.bounds.again import grids
from hetopt.search import grid


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
    proof = api.bound_checked(file, limits=limits)
    assert proof.missing
    assert "came to" in proof.missing[0]
