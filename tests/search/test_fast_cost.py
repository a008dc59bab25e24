"""The fast evaluator and the judge agree to the microsecond."""

from itertools import count

import pytest
import soaking
from hypothesis import given
from inputs import examples, seeds

from hetopt.search.fast_cost import lockstep_us

WAYS = ("context_parallel", "expert_parallel", "zero_groups")


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
