"""A pipeline is found that fits, and none is said to fit only where none does."""

from random import Random

from brute_force_training import random_tiny_instance
from flat import flat
from hypothesis import given
from inputs import drawn, examples

import hetopt
from hetopt.bounds import covering
from hetopt.exact.training_plan import fitting
from hetopt.modelling import Limits
from hetopt.problems import training_plan as judge
from hetopt.result import Status
from hetopt.schema import Instance


def tight(random: Random) -> Instance:
    """A tiny instance in which every layer keeps much for each micro-batch."""
    tree = flat(random_tiny_instance(random, 4))
    for gpu in tree["cluster"]["gpus"].values():
        gpu["memory_gib"] = round(random.choice([0.3, 0.4, 0.5, 0.7, 1.0]), 3)
    tree["model"]["layer_parameters"] = [10_000_000] * tree["model"]["layers"]
    costs = tree["workload"]["costs"]
    if costs["pipeline"] == "critical" and costs["in_flight"] != "gpipe":
        costs["interleave"] = random.choice([1, 1, 2, 3])
    return Instance.model_validate(tree, strict=False)


@examples(60)
@given(drawn(tight))
def test_a_pipeline_that_fits_is_a_plan(instance: Instance) -> None:
    plan = fitting.pipeline(instance, Limits(time_s=10))
    if plan is not None:
        assert judge.evaluate(instance, plan).valid
        assert covering.reason(instance) is None


def test_a_pipeline_is_found_where_no_planner_finds_a_plan() -> None:
    instance = hetopt.load("generated:tight_memory/64/0")
    plan = fitting.pipeline(instance, Limits(time_s=60))
    assert judge.evaluate(instance, plan).valid


def test_no_room_is_seen_where_positions_decide() -> None:
    instance = hetopt.load("generated:tight_memory/24/0")
    result = hetopt.solve(instance, limits=20)
    assert result.status is Status.INFEASIBLE
    assert "no pipeline fits" in result.reasons[0]
