"""Exact provisioning: against all plans, against itself, and under limits."""

import json
from fractions import Fraction

import pytest
from brute_force import best, valid
from hypothesis import given
from inputs import drawn, examples
from random_data import MAKERS

import hetopt
from hetopt.errors import Unsupported
from hetopt.exact import provisioning as exact
from hetopt.exact.provisioning import search
from hetopt.files import load_problem
from hetopt.modelling import Limits
from hetopt.problems import provisioning as judge
from hetopt.result import Status, Stop
from hetopt.schema import Instance
from hetopt.solving import statements

UNLIMITED = Limits()


def solve(data, **limits):
    return exact.solve(data, limits=Limits(**limits))


def asking(data, deadline_s=None, budget_usd=None):
    """The same offers, asked something else."""
    return data.model_copy(update={"deadline_s": deadline_s, "budget_usd": budget_usd})


def of_espresso():
    """A job of the paper, whose plans are too many to try; the cheapest is wanted."""
    return asking(load_problem("espresso/llama-1.3b")[1])


def pareto(values):
    """Pairs (us, USD) that no other pair reaches in both."""
    kept = []
    for pair in sorted(set(values)):
        if not kept or pair[1] < kept[-1][1]:
            kept.append(pair)
    return kept


def points(data):
    front = exact.frontier(data, limits=UNLIMITED)
    assert front.stop is Stop.PROVED
    assert all(point.status is Status.OPTIMAL for point in front.points)
    free = asking(data)
    return [
        (expected_us(data, point.plan), judge.evaluate(free, point.plan).objective)
        for point in front.points
    ]


@examples(25)
@given(drawn(lambda random: with_losses(random)))
def test_bounds_on_the_way_never_cross_the_optimum(data):
    seen = []
    result = exact.solve(
        data,
        limits=UNLIMITED,
        report=lambda incumbent, bound: seen.append((incumbent, bound)),
    )
    for incumbent, bound in seen:
        if result.objective is not None:
            assert bound is None or bound <= result.objective
            assert incumbent is None or incumbent >= result.objective
    assert result.objective is None or seen[-1] == (result.objective,) * 2


def test_without_time_the_warm_start_is_returned_unproved():
    data = of_espresso()
    best_plan = solve(data).plan
    result = exact.solve(data, limits=Limits(time_s=0.0), warm_start=best_plan)
    assert (result.status, result.stop) == (Status.FEASIBLE, Stop.TIME)
    assert result.plan == best_plan
    assert solve(data, time_s=0.0).status is Status.UNDECIDED


def test_allocations_beyond_number_leave_plans_unproved(monkeypatch):
    data = of_espresso()
    best_plan = solve(data).plan
    monkeypatch.setattr(search, "MOST_LISTED", 0)
    result = exact.solve(data, limits=UNLIMITED, warm_start=best_plan)
    assert (result.status, result.stop) == (Status.FEASIBLE, Stop.MEMORY)
    assert (result.plan, result.bound) == (best_plan, None)
    assert solve(data).status is Status.FEASIBLE
    front = exact.frontier(data, limits=UNLIMITED)
    assert (front.stop, front.points) == (Stop.MEMORY, ())


def test_an_interrupted_frontier_claims_only_what_is_proved():
    data, calls = of_espresso(), []

    def interrupt(incumbent, bound):
        calls.append(incumbent)
        if len(calls) == 3:
            raise KeyboardInterrupt

    front = exact.frontier(data, limits=UNLIMITED, report=interrupt)
    assert front.stop is Stop.INTERRUPTED
    whole = points(data)
    for point in front.points:
        if point.status is Status.OPTIMAL:
            us = data.iterations * point.evaluation.parts["iteration_us"]
            assert (us, judge.evaluate(data, point.plan).objective) in whole


def offer(gpu, quota=1, price=1.0, memory=100, **times):
    us = {"forward_us": 1_000_000, "backward_us": 2_000_000, "sync_us": 0, **times}
    return judge.Offer(
        gpu=gpu,
        quota=quota,
        usd_per_hour=price,
        memory_mib=memory,
        layer_mib=10,
        in_flight_mib=0,
        by_data_parallel={"1": judge.Times(**us)},
    )


def one_layer_a_second(offers, **asked):
    return judge.Data(
        layers=4,
        micro_batches=1,
        data_parallel=(1,),
        max_stages=4,
        iterations=1,
        offers=offers,
        **asked,
    )


def test_a_missed_deadline_names_the_least_deadline_and_budget():
    slow = offer("slow", quota=4, price=1.0)
    fast = offer("fast", price=36.0, memory=20, forward_us=0, backward_us=1_000_000)
    reasons = solve(one_layer_a_second((slow, fast), deadline_s=5.0)).reasons
    # Two layers fit on the one fast GPU: 2 x 1 s + 2 x 3 s.
    assert "deadline: the least that any plan meets is 8.000000 s" in reasons
    assert "budget: the cheapest plan costs 0.003333 USD" in reasons


def test_a_model_that_no_memory_holds_says_so():
    data = one_layer_a_second((offer("small", quota=2, memory=10),))
    (reason,) = solve(data).reasons
    assert reason == "memory: no plan within the quotas (small 2) holds 4 layers"


def in_machines(random):
    """A tiny problem, offers in machines."""
    data = MAKERS["provisioning"](random)
    offers = tuple(
        offer.model_copy(update={"gpus_per_instance": random.choice([1, 1, 2, 3])})
        for offer in data.offers
    )
    return data.model_copy(update={"offers": offers})


def with_losses(random):
    """A tiny problem in machines, of which some are lost: often, seldom, never."""
    data = in_machines(random)
    lost = [
        offer.model_copy(
            update={"losses_per_hour": random.choice([0.0, 0.0, 0.001, 0.37, 2.0])}
        )
        for offer in data.offers
    ]
    every = random.choice([0.0, 600.0, 1800.5])
    asked = {"restart_s": random.choice([0.0, 90.0]), "checkpoint_every_s": every}
    return data.model_copy(update={**asked, "offers": tuple(lost)})


@examples(50)
@given(drawn(with_losses))
def test_the_optimum_reckons_with_losses(data):
    found, wanted = solve(data), best("provisioning", data)
    assert found.objective == wanted
    assert found.stop is Stop.PROVED
    assert (found.status is Status.INFEASIBLE) == (wanted is None)
    assert bool(found.reasons) == (wanted is None)


@examples(50)
@given(drawn(with_losses))
def test_frontiers_reckon_with_losses(data):
    every = [
        (expected_us(data, plan), judge.evaluate(asking(data), plan).objective)
        for _, plan in valid("provisioning", data)
    ]
    assert points(data) == pareto(every)


@examples(25)
@given(drawn(with_losses))
def test_each_machine_lengthens_the_expected_time(data):
    for _, plan in valid("provisioning", data):
        found = judge.evaluate(data, plan)
        hours = (Fraction(repr(data.restart_s)) * 2) / 7200
        hours += Fraction(repr(data.checkpoint_every_s)) / 7200
        rates = {o.gpu: Fraction(repr(o.losses_per_hour)) for o in data.offers}
        machines = found.parts["machines"]
        lost = sum(rates[m["offer"]] * m["machines"] for m in machines)
        expected = data.iterations * found.parts["iteration_us"] * (1 + lost * hours)
        assert expected_us(data, plan) == expected
        if data.minimises_time:
            assert found.objective == expected
        assert found.parts["total_s"] == pytest.approx(float(expected / 10**6))


def expected_us(data, plan):
    """The time that the judge minimises under a budget."""
    return judge.evaluate(asking(data, budget_usd=1e9), plan).objective


@pytest.mark.parametrize("planner", ["espresso", "hph_plus", "sia_plus", "whale_plus"])
@examples(15)
@given(data=drawn(with_losses))
def test_planners_reckon_with_losses(planner, data):
    result = hetopt.solve(data, planner)
    assert not result.failed
    if result.objective is not None:
        assert judge.evaluate(data, result.plan).valid
        assert result.objective >= solve(data).objective


def test_the_statement_refuses_losses_by_name():
    data = one_layer_a_second(
        (offer("spot").model_copy(update={"losses_per_hour": 0.1}),),
        restart_s=60.0,
        checkpoint_every_s=600.0,
    )
    with pytest.raises(Unsupported, match="'spot' has losses_per_hour"):
        statements.solve("provisioning", data, "provisioning", "cpsat", limits=Limits())


def test_losses_without_what_they_cost_are_refused():
    told = json.loads(hetopt.load("tiny/offers").model_dump_json(exclude_unset=True))
    told["offers"][0]["losses_per_hour"] = 0.1
    with pytest.raises(ValueError, match=r"give workload\.restart_s and workl"):
        Instance.model_validate_json(json.dumps(told))
    told["workload"] |= {"restart_s": "5min", "checkpoint_every_s": "30min"}
    data = judge.data(Instance.model_validate_json(json.dumps(told)))
    assert (data.restart_s, data.checkpoint_every_s) == (300, 1800)
    with pytest.raises(ValueError, match="give restart_s and checkpoint_every_s"):
        one_layer_a_second((offer("spot").model_copy(update={"losses_per_hour": 0.1}),))
