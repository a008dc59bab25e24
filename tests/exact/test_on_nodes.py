"""One pipeline of micro-batches of one sequence: what method and check say of it.

The method searches with prices of GPUs, the check lays stages on named nodes: both are
held to all pipelines of tiny instances.
"""

from math import floor
from unittest.mock import patch

import pytest
from brute_force_training import (
    best_one_pipeline,
    best_training_plan,
    random_tiny_instance,
)
from hypothesis import given
from inputs import drawn, examples, tiny_instances
from refuters import WAYS, by, least_alone_us, refutation

import hetopt
from hetopt.costs import without_update
from hetopt.errors import Unsupported
from hetopt.exact import one_pipeline, training_plan
from hetopt.exact.checking import on_nodes
from hetopt.exact.one_pipeline import of_sizes
from hetopt.exact.one_pipeline.cluster_tables import BIG
from hetopt.modelling import Limits
from hetopt.plans import TrainingPlan
from hetopt.problems import training_plan as judge
from hetopt.problems.training_plan.settings import variants
from hetopt.schema import Instance, exact


def left_us(instance: Instance, time_us: int) -> int:
    costs = instance.workload.costs
    left = time_us - exact(costs.iteration_overhead_us)
    return floor(left / exact(costs.pipeline_factor))


@examples(12)
@given(drawn(random_tiny_instance, most_gpus=4))
def test_method_and_check_find_the_best_of_all_pipelines(tiny: Instance) -> None:
    if (alone := of_sizes(tiny, (1,))) is None:
        return
    plans: list[TrainingPlan] = []
    least = one_pipeline.faster(alone, None, Limits(), plans.append)
    best = best_one_pipeline(alone)
    check = on_nodes.OnNodes(alone)
    if best is None:
        assert least >= BIG
        assert not plans
        assert check.refute(10**12)
        return
    assert least == best
    assert check.refute(left_us(alone, best - 1))
    assert not check.refute(left_us(alone, best))
    # Nothing synchronises: other costs of that say the same of the plan.
    light = without_update(tiny)
    assert judge.evaluate(light, plans[-1]).objective == best


@examples(8)
@given(tiny_instances())
def test_plans_are_refuted_up_to_the_best_with_a_certificate(tiny: Instance) -> None:
    best = best_training_plan(tiny)
    if best is None or len(variants(tiny)) > 1:
        return
    least = least_alone_us(tiny, best[0])
    assert least <= best[0]
    bounds = {way: by(way, tiny, 0.2 * best[0], 1.5 * best[0], least) for way in WAYS}
    asked = ("whole", 1.0), ("prices", 1.0), ("whole", 0.9), ("prices", 0.6)
    for bound, share in ((bounds[way], share) for way, share in asked):
        found = refutation(bound, share * best[0], 20)
        assert not found.proved or share < 1
        record = found.certificate() if found.proved else None
        if record is not None:  # a file may hold it
            assert not training_plan.recheck(tiny, record, int(share * best[0]) + 1)


def test_too_many_pipelines_are_said_to_be_too_many() -> None:
    instance = hetopt.load("metis/t4-v100-16-moe-10b")
    with (
        patch.object(on_nodes, "_MOST_LAID", 100),
        pytest.raises(Unsupported, match="more than a check can look at"),
    ):
        on_nodes.OnNodes(instance).refute(10**7)
