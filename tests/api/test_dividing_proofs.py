"""One certificate and one bound of all ways to divide."""

import json
from itertools import product

import pytest
from flat import flat
from mixtures import mixture
from places import TESTS

from hetopt import portfolio
from hetopt.bounds.training_plan import training_plan_bound
from hetopt.exact import training_plan as exact
from hetopt.modelling import Limits
from hetopt.portfolio import variants
from hetopt.problems import Objective
from hetopt.problems import training_plan as judge
from hetopt.problems.training_plan import settings
from hetopt.result import Bound, Method, Result, Status, Stop
from hetopt.schema import Instance
from hetopt.solving.certificates import BoxCertificate, BoxTree

OPTIONS = {"context_parallel": [2], "interleave": [2]}


def chosen(
    zeros: list[int], counts: tuple[int, ...] = (4,), runs_on: str = "megatron"
) -> Instance:
    """A mixture whose plans choose a stage of ZeRO, and between four ways."""
    tree = flat(mixture([*counts], runs_on=runs_on))
    tree["workload"]["costs"]["zero"] = zeros[0]
    tree["workload"]["alternatives"] = OPTIONS | {"zero": zeros}
    return Instance.model_validate(tree, strict=False)


def in_groups() -> Instance:
    """Ways with other stages of ZeRO each: without any there are no groups."""
    path = TESTS / "defects" / "zero-groups-certificates-crash.json"
    return Instance.model_validate(json.loads(path.read_text()), strict=False)


def test_what_bounds_one_way_to_divide_is_told_of_none() -> None:
    told: list[tuple[Objective | None, Objective | None]] = []
    limits = Limits(5)
    heard = lambda incumbent, bound: told.append((incumbent, bound))  # noqa: E731
    found = portfolio.exactly("training_plan", chosen([1, 2]), limits, None, heard)
    assert found.bound is not None
    assert told == [(point.incumbent, point.bound) for point in found.trace]
    for point in found.course:
        assert point.bound is None or point.bound <= found.bound.value
    plans = [point.incumbent for point in found.trace]
    assert plans == sorted({*plans}, reverse=True)
    assert found.course[-1].bound == found.bound.value


def test_ways_of_larger_clusters_are_refuted_together_below_one_plan() -> None:
    instance = chosen([0, 1], (8, 4), "any")
    ways = settings.split_variants(instance)
    assert len(ways) == 4
    assert exact.goes_together(ways)
    assert not exact.goes_together(settings.split_variants(chosen([0, 1])))
    told: list[tuple[Objective | None, Objective | None]] = []
    heard = lambda incumbent, bound: told.append((incumbent, bound))  # noqa: E731
    found = portfolio.exactly("training_plan", instance, Limits(2), None, heard)
    assert judge.evaluate(instance, found.plan).objective == found.objective
    known = [bound for _, bound in told if bound is not None]
    assert known == sorted(known)
    assert known[-1] == found.bound.value <= found.objective
    least = min(training_plan_bound(way).value for way in ways)
    assert found.bound.value >= least
    if (whole := found.certificate) is not None:
        assert isinstance(whole, BoxCertificate)
        assert len(whole.further) == len(settings.variants(instance)) - 1
        assert not exact.recheck(instance, whole, int(whole.time_us))


def proof(zero: int, way: int) -> BoxCertificate:
    """A certificate that tells by its time what it is of."""
    tree = BoxTree(prices=(0,))
    return BoxCertificate(time_us=10 * zero + way, scale=1, classes=("n0",), tree=tree)


def proofs(instance: Instance) -> list[tuple[Instance, object]]:
    """Each way with its certificate."""
    found: list[tuple[Instance, object]] = []
    for number, way in enumerate(settings.split_variants(instance)):
        first, *further = [
            proof(one.workload.costs.zero, number) for one in settings.variants(way)
        ]
        found.append((way, first.model_copy(update={"further": tuple(further)})))
    return found


@pytest.mark.parametrize("zeros", [[0], [0, 1]])
def test_ways_stand_within_stages_of_zero(zeros: list[int]) -> None:
    whole = variants._join(proofs(chosen(zeros)))
    found = [one.time_us for one in (whole, *whole.further)]
    assert found == [10 * zero + way for zero, way in product(zeros, range(4))]
    assert not any(one.further for one in whole.further)


def test_ways_with_other_stages_of_zero_stand_where_they_are_checked() -> None:
    instance = in_groups()
    whole = variants._join(proofs(instance))
    each = settings.variants(instance)
    assert [one.time_us // 10 for one in (whole, *whole.further)] == [
        one.workload.costs.zero for one in each
    ]
    # Without ZeRO there is one way; in groups nothing synchronises for long.
    assert [one.time_us % 10 for one in (whole, *whole.further)] == [
        one.workload.costs.sync_factor == 0 for one in each
    ]


def test_a_way_without_a_proof_leaves_none() -> None:
    rows = proofs(chosen([0]))
    assert variants._join([*rows[:-1], (rows[-1][0], None)]) is None


def test_a_way_with_a_proof_too_few_leaves_none() -> None:
    (way, whole), *rest = proofs(chosen([0, 1]))
    assert isinstance(whole, BoxCertificate)
    alone = whole.model_copy(update={"further": ()})
    assert variants._join([(way, alone), *rest]) is None


def undecided(instance: Instance, us: int, stop: Stop = Stop.TIME) -> Result:
    method = Method("training_plan", "exact")
    bound = Bound(us, "a test")
    return Result(
        "training_plan", instance, method, Status.UNDECIDED, stop, bound=bound
    )


@pytest.mark.parametrize("each", [(7, 3), (3, 7)])
def test_an_undecided_result_has_the_least_bound_of_all_ways(
    each: tuple[int, int],
) -> None:
    results = [undecided(mixture([4]), us) for us in each]
    found = variants._together(results, [Bound(us, "a test") for us in each])
    assert found.status is Status.UNDECIDED
    assert found.bound.value == 3


def test_an_interruption_of_any_way_is_told() -> None:
    results = [undecided(mixture([4]), 7), undecided(mixture([4]), 9, Stop.INTERRUPTED)]
    found = variants._together(results, [Bound(7, "a test"), Bound(9, "a test")])
    assert found.stop is Stop.INTERRUPTED


def test_ways_that_time_leaves_out_may_have_plans(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """One way is proved to have none; of the others the cheap bounds remain."""
    ways, now = settings.split_variants(chosen([0])), 0.0
    asked: list[Instance] = []

    def solve(way: Instance, limits: Limits) -> Result:
        nonlocal now
        asked.append(way)
        now += 10  # longer than all ways have
        method = Method("given", "exact")
        told = Status.INFEASIBLE, Stop.PROVED
        return Result("training_plan", way, method, *told, reasons=("memory",))

    monkeypatch.setattr(variants, "monotonic", lambda: now)
    found = variants.solve_variants(ways, Limits(time_s=5), solve)
    assert len(asked) == 1
    assert (found.status, found.stop) == (Status.UNDECIDED, Stop.TIME)
    left = [training_plan_bound(way).value for way in ways if way is not asked[0]]
    assert found.bound.value == min(left)
    assert found.reasons == ()
