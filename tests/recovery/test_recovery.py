"""Recovery: judge, published ways and exact method, against all choices."""

from functools import cache
from typing import Any

import pytest
import tiny_recoveries

from hetopt import problems, registry
from hetopt.errors import InstanceError, NoPlan
from hetopt.exact import recovery as exact
from hetopt.exact.recovery import bound_of
from hetopt.plans import Recovery, Transfer
from hetopt.problems.recovery import Data, evaluate
from hetopt.problems.recovery.network import Network
from hetopt.problems.recovery.records import Machine, Need, Saved, Unit
from hetopt.result import Status

SEEDS = range(40)
PLANNERS = registry.entries_for("planners", "recovery")


@cache
def case(seed: int) -> tuple[Data, int | None]:
    data = tiny_recoveries.tiny(seed)
    return data, tiny_recoveries.best(data)


def need(gpu: str, *units: str, rank: int = 0, degree: int = 1) -> Need:
    """A GPU's need of a part of units, of unit 0 where none is named."""
    return Need(gpu=gpu, units=units or ("0",), rank=rank, degree=degree)


def halves(**changes: Any) -> Data:
    """One layer of 8 bytes: its halves lie on the disks of a and b, all in the cloud.

    Both GPUs of `a` need all of it; a byte takes 1 s from a disk.
    """
    fields: dict[str, Any] = {
        "units": (Unit(name="0", parameters=4),),
        "bytes_per_parameter": 2,
        "nodes": tuple(
            Machine(
                name=name,
                memory_bytes_per_s=100,
                disk_bytes_per_s=1,
                network_bytes_per_s=10,
            )
            for name in "ab"
        ),
        "cloud_bytes_per_s": 2,
        "saved": (
            Saved(place="a", medium="disk", units=("0",), rank=0, degree=2),
            Saved(place="b", medium="disk", units=("0",), rank=1, degree=2),
            Saved(place="cloud", medium="cloud", units=("0",), rank=0, degree=1),
        ),
        "needs": (need("a:0"), need("a:1")),
    }
    return Data(**{**fields, **changes})


def from_disks(gpu: str) -> tuple[Transfer, ...]:
    return tuple(
        Transfer(
            gpu=gpu,
            unit="0",
            shard=(rank, 2),
            part=(rank, rank + 1, 2),
            source=place,
            medium="disk",
        )
        for rank, place in enumerate("ab")
    )


# --- the judge -------------------------------------------------------------------


def test_a_transfer_loads_the_disk_and_both_ends_of_the_network() -> None:
    plan = Recovery(transfers=(*from_disks("a:0"), *from_disks("a:1")))
    found = evaluate(halves(), plan)
    carried = {name: row["us"] for name, row in found.parts["carried"].items()}
    second = 10**6
    assert carried == {
        "disk of a": 8 * second,
        "disk of b": 8 * second,
        "out of b": 8 * second // 10,
        "into a": 8 * second // 10,
    }
    assert found.objective == 8 * second
    assert found.parts["bytes"] == {"local": 8, "peer": 8, "cloud": 0}


def test_gpus_of_a_node_share_what_is_read_once_a_node() -> None:
    plan = Recovery(transfers=(*from_disks("a:0"), *from_disks("a:1")))
    assert evaluate(halves(loads="once_a_node"), plan).objective == 4 * 10**6


BOTH = {"needs": (need("a:0"), need("b:0"))}


@pytest.mark.parametrize(
    ("changes", "us"),
    [
        (BOTH | {"cloud_limit": "shared"}, 8 * 10**6),
        (BOTH | {"cloud_limit": "each_node"}, 4 * 10**6),
        ({"cloud_bytes_per_s": 3}, -(-16 * 10**6 // 3)),  # rounded up
    ],
)
def test_a_cloud_is_shared_or_each_nodes_own(changes: dict[str, Any], us: int) -> None:
    data = halves(**changes)
    plan = registry.entry("planners", "varuna").plan(data)
    assert evaluate(data, plan).objective == us


@pytest.mark.parametrize(
    ("change", "rule"),
    [
        ({"source": "c"}, "source_lost"),
        ({"medium": "memory"}, "not_there"),
        ({"shard": (0, 1)}, "not_there"),
        ({"source": "b"}, "not_there"),
        ({"part": (0, 1, 3)}, "off_grid"),
        ({"part": (1, 1, 2)}, "off_grid"),
        ({"part": (0, 2, 2)}, "outside_shard"),
        ({"gpu": "b:0"}, "not_needed"),
        ({"unit": "1"}, "not_needed"),
    ],
)
def test_a_transfer_that_breaks_a_rule_is_named(
    change: dict[str, Any], rule: str
) -> None:
    first, *others = (*from_disks("a:0"), *from_disks("a:1"))
    wrong = first.model_copy(update=change)
    found = evaluate(halves(), Recovery(transfers=(wrong, *others)))
    assert rule in {violation.rule for violation in found.violations}
    assert found.objective is None


def test_every_piece_comes_exactly_once() -> None:
    one, two = from_disks("a:0"), from_disks("a:1")
    lacking = evaluate(halves(), Recovery(transfers=(*one, two[0])))
    assert [str(v) for v in lacking.violations] == [
        "missing: a:1, unit 0: 1 of 2 pieces"
    ]
    again = evaluate(halves(), Recovery(transfers=(*one, *two, two[0])))
    assert [str(v) for v in again.violations] == ["twice: a:1, unit 0: 1 of 2 pieces"]


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"cloud_bytes_per_s": None}, "give cloud_bytes_per_s"),
        ({"needs": (need("c:0"),)}, "nodes lists no 'c'"),
        ({"needs": (need("a:0", "1"),)}, "unknown unit '1'"),
        ({"needs": (need("a:0", rank=2, degree=2),)}, "rank 2 of degree 2"),
        ({"needs": (need("a:0", "0", "0", degree=2),)}, "needed twice: .'a:0', '0'"),
        ({"needs": (need("a:0", degree=4093),)}, "has 8186 pieces"),
    ],
)
def test_data_that_make_no_sense_are_refused(
    changes: dict[str, Any], message: str
) -> None:
    with pytest.raises(ValueError, match=message):
        halves(**changes)


def test_an_instance_by_itself_poses_no_recovery() -> None:
    from hetopt import load

    with pytest.raises(InstanceError, match="hetopt recover OLD_PLAN INSTANCE"):
        problems.get("recovery").data(load("tiny/two-nodes"))


# --- planners --------------------------------------------------------------------


@pytest.mark.parametrize("name", PLANNERS)
def test_a_planner_is_valid_and_never_beats_the_best_of_all(name: str) -> None:
    planner: Any = registry.entry("planners", name)
    planned = 0
    for seed in SEEDS:
        data, best = case(seed)
        try:
            plan = planner.plan(data, seed=1, deadline=None)
        except NoPlan:  # AutoHet has a plan wherever there is one
            assert best is None or name != "autohet_recovery"
            continue
        assert planner.plan(data, seed=1, deadline=None) == plan
        found = evaluate(data, plan)
        assert found.violations == ()
        assert found.objective >= best
        planned += 1
    assert planned > len(SEEDS) // 3


def test_autohet_slices_and_joins_and_goes_near_first() -> None:
    data = halves(needs=(need("a:0", rank=1, degree=4), need("b:0")))
    plan = registry.entry("planners", "autohet_recovery").plan(data)
    rows = [(t.gpu, t.shard, t.part, t.source) for t in plan.transfers]
    assert rows == [
        ("a:0", (0, 2), (1, 2, 4), "a"),
        ("b:0", (1, 2), (1, 2, 2), "b"),
        ("b:0", (0, 2), (0, 1, 2), "a"),
    ]


# --- exact -----------------------------------------------------------------------


def test_the_exact_method_finds_the_best_of_all_and_proves_it() -> None:
    proved = 0
    for seed in SEEDS:
        data, best = case(seed)
        result = exact.solve(data)
        wanted = Status.INFEASIBLE if best is None else Status.OPTIMAL
        assert (seed, result.status, result.objective) == (seed, wanted, best)
        if best is not None:
            proved += 1
        else:
            assert "is lost" in result.reasons[0]
    assert proved > len(SEEDS) // 2
    assert proved < len(SEEDS)


def test_no_prices_prove_more_than_the_best_of_all() -> None:
    for seed in SEEDS:
        data, best = case(seed)
        if best is None:
            continue
        links = list(Network(data).bandwidth)
        for prices in (
            {x: n + 1 for n, x in enumerate(links)},
            dict.fromkeys(links, 1),
        ):
            assert bound_of(Network(data), prices) <= best
        assert exact.bound(data).value <= best


def test_a_warm_start_satisfies_every_constraint_of_the_statement() -> None:
    module: Any = registry.entry("formulations", "recovery")
    for seed in SEEDS[:20]:
        data, best = case(seed)
        if best is None:
            continue
        plan = registry.entry("planners", "autohet_recovery").plan(data)
        model: Any = registry.entry("backends", "scip").backend("fixed")
        read = module.build(data, model)
        hint = module.hint(data, plan)
        assert set(hint) == set(model.variables)
        for variable, fixed in hint.items():
            model.add("fixed", variable, model.variables[variable] == fixed)
        answer = model.solve(exact.Limits(), lambda *_: None)
        again = evaluate(data, read(answer.value))
        assert again.objective == evaluate(data, plan).objective


def test_of_equally_fast_plans_the_exact_one_leaves_the_cloud_alone() -> None:
    result = exact.solve(halves(loads="once_a_node", cloud_bytes_per_s=1))
    assert result.objective == 4 * 10**6
    assert result.evaluation.parts["bytes"] == {"local": 4, "peer": 4, "cloud": 0}
