"""A plan on one GPU takes other times than tables of several say: all proofs know."""

from fractions import Fraction
from math import inf
from random import Random

import pytest
from box_forger import honest, random_tree
from brute_force_training import best_training_plan, random_tiny_instance
from flat import flat
from hypothesis import given
from hypothesis import strategies as st
from inputs import drawn, examples
from random_calibrations import calibrated

from hetopt.bounds.single_gpu import single_gpu_plans
from hetopt.bounds.training_plan import spending_bound, training_plan_bound
from hetopt.exact import checking, training_plan
from hetopt.modelling import Limits
from hetopt.problems.training_plan import evaluate
from hetopt.result import Status
from hetopt.schema import Instance
from hetopt.search import fast_cost, grid


def paced(rng: Random, pace: float) -> Instance:
    """Two or three GPUs with room for the model, on links that are fast or slow."""
    tree = flat(calibrated(rng, random_tiny_instance(rng, 3)))
    workload, cluster = tree["workload"], tree["cluster"]
    constants = workload["costs"]["calibration"]["constants"]
    for name in constants:
        if name.startswith("pace"):
            constants[name] = pace if name == "pace" else 1.0
    for gpu in cluster["gpus"].values():
        gpu["memory_gib"] = 1000.0
    if rng.random() < 0.5 and not cluster["inter"].get("pairs"):
        cluster["inter"]["gbytes_per_s"] = 0.001
    return Instance.model_validate(tree, strict=False)


def test_times_of_one_gpu_end_with_the_search_that_asks_them(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A search that goes on has a later deadline, and so has all that it asks."""
    now, instance = 0.0, paced(Random(3), 3.0)
    monkeypatch.setattr(fast_cost, "monotonic", lambda: now)
    (single, *_) = single_gpu_plans(instance).values()
    cost = fast_cost.FastCost(instance, deadline=1.0)
    pipes = cost.compact(single.plan)
    assert pipes is not None
    assert cost.iteration_us(pipes) == single.us
    now, cost.deadline = 2.0, 3.0
    for one in (cost, cost._on(((cost.names[0], 1),))):
        del vars(one)["timing"]  # what is kept
    assert cost.iteration_us(pipes) == single.us


@pytest.mark.parametrize("pace", [0.4, 3.0])
@examples(8)
@given(data=st.data())
def test_proofs_hold_where_one_gpu_is_best(pace: float, data: st.DataObject) -> None:
    instance = data.draw(drawn(paced, pace))
    several = max(instance.workload.micro_batch_sizes) > 1
    best = best_training_plan(instance, several_replicas=several)
    found = training_plan.solve(instance, limits=Limits(time_s=60))
    assert (found.status, found.objective) == (Status.OPTIMAL, best[0])
    assert training_plan_bound(instance).value <= best[0]
    singles = single_gpu_plans(instance)
    least = min(one.us for one in singles.values())
    assert least >= best[0]
    # Neither the engine nor the check of a certificate goes beyond it.
    assert honest(instance, least, 2 * least, 50) is None
    lie = random_tree(Random(0), instance, least)
    assert lie is not None
    assert any("on one GPU" in x for x in checking.missing(instance, lie, least + 1))
    for gpu, one in singles.items():
        assert evaluate(instance, one.plan).objective == one.us
        dear = dict.fromkeys(instance.planned_cluster.gpus, Fraction(10**6))
        assert spending_bound(instance, dear | {gpu: Fraction(1)}).value <= one.us


@pytest.mark.parametrize("pace", [0.4, 3.0])
@pytest.mark.parametrize("target", ["megatron", "transformers"])
@examples(8)
@given(data=st.data())
def test_grids_hold_where_one_gpu_is_best(
    target: str, pace: float, data: st.DataObject
) -> None:
    tree = data.draw(drawn(paced, pace)).model_dump(mode="json")
    tree["workload"] |= {"runs_on": target}
    instance = Instance.model_validate(tree, strict=False)
    found, singles = grid.search(instance), single_gpu_plans(instance).values()
    least = min([one.us for one in singles], default=inf)
    assert found.bound_us <= least
    if singles:
        assert found.plan is not None
    if found.plan is not None:
        assert evaluate(instance, found.plan).objective == found.objective <= least
