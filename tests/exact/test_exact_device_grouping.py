"""Exact device grouping: large clusters, its parts, and what forbids a plan."""

from fractions import Fraction
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from inputs import examples, tiny_problems

from hetopt.exact import device_grouping as exact
from hetopt.problems.device_grouping import Data, DeviceType
from hetopt.result import Status, Stop

TINY = tiny_problems("device_grouping")
GPUS = (
    ("A100", 312_000, 81_920),
    ("H800", 989_000, 81_920),
    ("H20", 148_000, 98_304),
    ("V100", 125_000, 32_768),
    ("T4", 65_000, 16_384),
    ("L40", 181_000, 49_152),
)


def cluster(counts: tuple[int, ...], floor_mib: int, **changed: Any) -> Data:
    """Devices of the first types of `GPUS`, 16 micro-batches unless changed."""
    given_k = "global_batch_micro_batches" in changed
    gpus = tuple(
        DeviceType(type=name, count=count, gflops=gflops, memory_mib=memory)
        for count, (name, gflops, memory) in zip(counts, GPUS, strict=False)
        if count
    )
    settings_ = {} if given_k else {"micro_batches": 16}
    return Data(gpus=gpus, minimum_memory_mib=floor_mib, **{**settings_, **changed})


# Floors of 2, 12 and 15 GPUs of 80 GiB: many small groups, and few large ones.
SIZES = {
    "3 types, 64 GPUs": cluster((22, 21, 21), 137_216),
    "3 types, 256 GPUs": cluster((86, 85, 85), 137_216),
    "4 types, 64 GPUs": cluster((16, 16, 16, 16), 137_216),
    "6 types, 60 GPUs": cluster((10,) * 6, 137_216),
    "3 types, 64 GPUs, large groups": cluster((22, 21, 21), 15 * 81_920),
    "3 types, 256 GPUs, large groups": cluster((86, 85, 85), 15 * 81_920),
    "4 types, 64 GPUs, large groups": cluster((16, 16, 16, 16), 12 * 81_920),
    "4 types, 1024 GPUs": cluster((256,) * 4, 137_216),
    "K from the batch": cluster((22, 21, 21), 137_216, global_batch_micro_batches=512),
    "13 groups asked for": cluster((22, 21, 21), 137_216, groups=13),
}


LARGE = SIZES["3 types, 256 GPUs"]


@examples(20)
@given(TINY)
def test_patterns_that_are_too_many_at_first_are_looked_at_again(data: Data) -> None:
    """The budget grows until they are few enough, and the optimum is the same."""
    best = exact.solve(data)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(exact, "_CHEAP", 1)
        found = exact.solve(data)
    assert (found.status, found.objective) == (best.status, best.objective)


@examples(20)
@given(TINY, st.sampled_from((1, 10, 100)))
def test_patterns_that_stay_too_many_leave_a_valid_bound(data: Data, rows: int) -> None:
    best = exact.solve(data)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(exact, "_CHEAP", rows)
        patch.setattr(exact, "_ENOUGH", rows)
        found = exact.solve(data)
    if best.status is Status.INFEASIBLE:
        assert found.plan is None
        return
    assert found.status is not Status.INFEASIBLE
    if found.status is Status.OPTIMAL:
        assert found.objective == best.objective
        return
    assert found.stop is Stop.MEMORY
    assert found.bound is None or found.bound.value >= Fraction(best.objective)
    assert found.objective is None or found.objective <= best.objective


# -- named instances that once went wrong ----------------------------------------------


def test_groups_that_cannot_divide_the_memory_are_infeasible_with_the_reason() -> None:
    """The totals suffice; no two groups of these two devices reach the floor."""
    data = Data(
        gpus=(
            DeviceType(type="large", count=1, gflops=142_000, memory_mib=12),
            DeviceType(type="small", count=1, gflops=142_000, memory_mib=8),
        ),
        minimum_memory_mib=10,
        global_batch_micro_batches=7,
        groups=2,
    )
    result = exact.solve(data)
    assert result.status is Status.INFEASIBLE
    assert "no more than 1 groups can each have 10 MiB" in result.reasons[0]


@pytest.mark.parametrize(
    ("fields", "reason"),
    [
        ({"minimum_memory_mib": 500_000}, "5088 MiB too little"),
        ({"groups": 9}, "9 asked for, 6 devices there are"),
        (
            {"micro_batches": None, "global_batch_micro_batches": 2, "groups": 3},
            "2 in the batch, 3 groups need one each",
        ),
    ],
)
def test_totals_that_forbid_any_grouping_are_named_with_their_amount(
    fields: dict[str, Any], reason: str
) -> None:
    data = cluster((2, 2, 0, 1, 0, 1), 0)
    result = exact.solve(Data.model_validate({**dict(data), **fields}))
    found = sum(g.count * g.memory_mib for g in data.gpus)
    assert result.status is Status.INFEASIBLE
    expected = reason.replace("5088", str(500_000 - found))
    assert any(expected in line for line in result.reasons)
