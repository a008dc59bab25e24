"""The exact method over settings that stages choose: held to trying all."""

from random import Random

import pytest
from brute_force_training import best_training_plan
from tiny_choices import tiny

from hetopt.bounds.training_plan import training_plan_bound
from hetopt.costs import fixed
from hetopt.exact import training_plan as exact
from hetopt.modelling import Limits
from hetopt.result import Status
from hetopt.schema import Instance

_LONG = {5, 8, 11, 12, 21, 25}  # trying all takes seconds
EVERY = [
    pytest.param(seed, marks=[pytest.mark.slow] if seed in _LONG or seed > 25 else [])
    for seed in range(60)
]


@pytest.mark.parametrize("seed", EVERY)
def test_the_optimum_over_all_choices_equals_that_of_trying_all(seed: int) -> None:
    instance = tiny(seed)
    several = max(instance.workload.micro_batch_sizes) > 1
    best = best_training_plan(instance, several_replicas=several)
    found = exact.solve(instance, limits=Limits(time_s=None))
    if best is None:
        assert found.status is Status.INFEASIBLE
        return
    assert found.status is Status.OPTIMAL
    assert found.objective == best[0]
    assert training_plan_bound(instance).value <= best[0]


def test_choices_matter_on_those_instances() -> None:
    """Some plans mix rules, and are better than the best with one rule."""
    mixed = better = rescued = 0
    for seed in (0, 2, 3, 6, 9, 10, 32, 56):
        instance = tiny(seed)
        found = exact.solve(instance, limits=Limits(time_s=None))
        plain = exact.solve(fixed(instance), limits=Limits(time_s=None))
        if found.objective is None:
            assert plain.objective is None
            continue
        stages = [s for p in found.plan.pipelines for s in p.stages]
        mixed += len({stage.recompute for stage in stages}) > 1
        if plain.objective is None:
            rescued += 1
        else:
            assert found.objective <= plain.objective
            better += found.objective < plain.objective
    assert mixed > 0
    assert better > 2
    assert rescued > 0


def divided(seed: int) -> Instance:
    """A tiny instance of micro-batches of one sequence, with stages of ZeRO."""
    random = Random(f"divided/{seed}")
    instance = tiny(seed)
    workload = instance.workload.model_copy(update={"micro_batch_sizes": (1,)})
    zeros = random.choice([(1,), (2, 3), (0, 3), (1, 2, 3)])
    rules = workload.alternatives.recompute if seed % 3 == 0 else ()
    other = {"recompute": rules, "zero": zeros}
    alternatives = workload.alternatives.model_copy(update=other)
    costs = workload.costs.model_copy(update={"zero": random.choice([0, 0, 1, 3])})
    fields = {"alternatives": alternatives, "costs": costs}
    return instance.model_copy(update={"workload": workload.model_copy(update=fields)})


_QUICK = (1, 2, 4, 10, 13, 16, 17, 20, 22, 28, 35, 36, 37, 38)
_SLOW = (0, 3, 5, 6, 7, 8, 9, 11, 12, 14, 15, 18, 19)  # trying all takes seconds


@pytest.mark.parametrize(
    "seed", [*_QUICK, *(pytest.param(seed, marks=pytest.mark.slow) for seed in _SLOW)]
)
def test_stages_of_zero_are_proved_like_trying_all(seed: int) -> None:
    instance = divided(seed)
    best = best_training_plan(instance)
    found = exact.solve(instance, limits=Limits(time_s=None))
    if best is None:
        assert found.status is Status.INFEASIBLE
        return
    assert found.status is Status.OPTIMAL
    assert found.objective == best[0]
    assert training_plan_bound(instance).value <= best[0]
