"""The fast evaluator and the judge agree to the microsecond."""

from itertools import count

import pytest
import soaking
from hypothesis import given
from hypothesis import strategies as st
from inputs import drawn, examples, seeds
from random_pipelines import random_instance, random_pipes

from hetopt.problems import training_plan
from hetopt.schema import Instance
from hetopt.search.fast_cost import FastCost, lockstep_us

WAYS = ("context_parallel", "expert_parallel", "zero_groups")


@examples(25)
@given(st.data(), drawn(random_instance, later=True))
def test_the_fast_evaluator_finds_what_the_judge_finds(
    data: st.DataObject, instance: Instance
) -> None:
    cost, plans = FastCost(instance), drawn(random_pipes, instance)
    for pipes in data.draw(st.lists(plans, min_size=1, max_size=4)):
        plan = cost.plan(pipes)
        judged = training_plan.evaluate(instance, plan)
        assert {v.rule for v in judged.violations} <= {"memory", "interleave"}
        assert cost.iteration_us(pipes) == judged.objective
        fits = all(cost.fits(pipe, len(pipes)) for pipe in pipes)
        assert fits == judged.valid
        # Fewer replicas than there are never ask for less memory.
        assert fits or not all(map(cost.fits, pipes))
        assert cost.compact(plan) == tuple(pipes)


@pytest.mark.parametrize("field", [None, *WAYS])
@examples(12)
@given(seed=seeds())
def test_judge_fast_evaluator_floats_and_bounds_agree(
    field: str | None, seed: int
) -> None:
    """Under any settings, and where plans may be divided in a way that is rare."""
    for k in count(seed):
        data = soaking.drawn("judge", k)
        work = data["instance"]["workload"]
        offered = work["alternatives"].get(field, [])
        if field is None or max(offered, default=work["costs"].get(field, 1)) > 1:
            break
    soaking.kind("judge").check(data)


def test_lockstep_counts_each_slot_at_its_slowest_active_stage() -> None:
    taus, n = (3, 1, 4, 1, 5), 3
    slots = [
        max(taus[j] for j in range(len(taus)) if 0 <= slot - j < n)
        for slot in range(len(taus) + n - 1)
    ]
    assert lockstep_us(n, taus) == sum(slots)
