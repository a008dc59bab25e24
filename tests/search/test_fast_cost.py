"""The fast evaluator and the judge agree to the microsecond."""

from itertools import count

import pytest
import soaking
from hypothesis import given
from inputs import examples, seeds

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
