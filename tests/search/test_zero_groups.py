"""States divided in groups of replicas (HSDP): judge, searches, bounds, brute force."""

from typing import Any

import pytest
from brute_force_grids import best_grid
from flat import flat
from mixtures import CALIBRATION, GPU
from small_instances import small

import hetopt
from hetopt.bounds.training_plan import training_plan_bound
from hetopt.costs import CostTable, Position, under
from hetopt.schema import Instance


def four(
    counts: list[int], gib: float, target: str, rate: float = 1, **more: Any
) -> Instance:
    """A small dense model on four GPUs of nodes that a slow link joins."""
    costs = {"layer_times": "calibrated", "activations": "calibrated", **more}
    return small(
        " ".join(f"a*{count}" for count in counts),
        {"a": GPU | {"memory_gib": gib}},
        model={"layers": 2, "intermediate": 4096, "gated": True, "vocabulary": 8000},
        inter={"gbytes_per_s": rate, "latency_us": 5},
        rate=300,
        sequence_length=2048,
        global_batch=4,
        runs_on=target,
        costs={"calibration": CALIBRATION, "precision": "bf16_mixed", **costs},
        alternatives={"zero_groups": [2]},
    )


@pytest.mark.parametrize(
    ("counts", "gib", "rate", "target", "zero", "groups"),
    [
        ([4], 0.55, 20, "megatron", 1, 1),
        ([2, 2], 4, 20, "megatron", 1, 2),
        ([2, 2], 0.8, 40, "torchtitan", 3, 2),
        ([2, 2], 0.6, 20, "torchtitan", 3, 1),
        ([3, 1], 4, 20, "torchtitan", 2, 1),
    ],
)
def test_plans_are_the_best_of_all_grids(
    counts: list[int], gib: float, rate: int, target: str, zero: int, groups: int
) -> None:
    instance = four(counts, gib, target, rate, zero=zero)
    ways = {s: under(instance, split=s) for s in instance.workload.splits}
    each = {way: best_grid(data) for way, data in ways.items()}
    known = {way: us for way, us in each.items() if us is not None}
    found = hetopt.plan(instance, limits=10)
    assert found.objective == min(known.values(), default=None)
    if known:
        assert found.bound.value <= min(known.values())
    if found.plan is not None:
        assert (found.plan.zero_groups or 1) == groups
    for way in known:
        assert training_plan_bound(ways[way]).value <= known[way]


def test_groups_are_within_nodes_and_sum_across() -> None:
    """By hand: a ring of two at 300 GB/s, then an all-reduce of halves at 1 GB/s."""
    data = four([2, 2], 4, "any", zero=2)
    tables = [CostTable(under(data, split=x)) for x in data.workload.splits]
    holders = [("n0", 1), ("n0", 1), ("n1", 1), ("n1", 1)]
    p = 10**9
    plain, grouped = (table.sync_us(p, holders) for table in tables)
    # 2 bytes a gradient; the link within a node has no latency, the other 5 us.
    chunk = 2 * p / 4
    assert plain == pytest.approx(2 * (chunk / 300e3 + 2 * (5 + chunk / 1e3)), abs=2)
    inside, across = p * 2 / 2 / 300e3, p * 2 / 2 / 2 / 1e3
    # Both rings across share the link as they do in one ring: no adapters are told.
    assert grouped == pytest.approx(2 * inside + 2 * (5 + across), abs=2)
    assert grouped < plain


def test_memory_is_that_of_a_group() -> None:
    data = four([2, 2], 4, "any", zero=1)
    tables = [CostTable(under(data, split=x)) for x in data.workload.splits]
    held = [
        table.stage_mib("n0", range(2), (1, 1), Position(1, 1, 0), [4, 4])["states"]
        for table in tables
    ]
    every = sum(data.model.parameters) / 2**20
    assert held[0] == pytest.approx((4 + 12 / 4) * every, abs=1)
    assert held[1] == pytest.approx((4 + 12 / 2) * every, abs=1)


def test_pipelines_of_any_shape_come_in_groups() -> None:
    """Searched for where no target asks for grids, under a bound that holds."""
    both = four([2, 2], 4, "any", zero=2)
    found = hetopt.plan(under(both, split=both.workload.splits[1]), limits=2)
    assert len(list(found.plan.replicas())) % 2 == 0
    assert found.bound.value <= found.objective


@pytest.mark.parametrize(
    ("costs", "other", "message"),
    [
        ({"zero_groups": 2}, {}, "zero 0, which divides no states"),
        ({"zero_groups": 2, "zero": 1}, {"zero_groups": [1]}, "the least in costs"),
        (
            {"zero_groups": 2, "zero": 1, "context_parallel": 2},
            {},
            "not supported together",
        ),
    ],
)
def test_what_cannot_be_divided_is_refused(
    costs: dict[str, Any], other: dict[str, Any], message: str
) -> None:
    tree = flat(four([4], 4, "any", zero=1))
    tree["workload"]["costs"] |= {"zero": 0} | costs
    tree["workload"]["alternatives"] = other
    with pytest.raises(ValueError, match=message):
        Instance.model_validate(tree, strict=False)
