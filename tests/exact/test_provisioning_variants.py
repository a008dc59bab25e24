"""Recomputation, ZeRO and micro-batches on offers: the best of all combinations."""

from fractions import Fraction
from itertools import product
from random import Random

import pytest
from brute_force import provisionings, valid
from hypothesis import given
from inputs import drawn, examples

import hetopt
from hetopt import api
from hetopt.costs import memory
from hetopt.errors import InstanceError
from hetopt.exact import provisioning as exact
from hetopt.files import load_instance
from hetopt.modelling import Limits
from hetopt.problems import provisioning as judge
from hetopt.result import Status
from hetopt.schema import Alternatives, Instance
from hetopt.solving import statements

LIMITS = Limits(time_s=60)
PLANNERS = ("espresso", "whale_plus", "hph_plus", "sia_plus")


def market(random: Random) -> Instance:
    """Two offers on which memory, links and prices decide now this way, now that."""
    rules = ["full", "selective", "none"]
    random.shuffle(rules)
    zeros = random.sample([0, 1, 2, 3], random.randint(1, 2))
    own, *others = rules[: random.randint(1, 3)]
    offers = [
        {
            "gpu": name,
            "quota": random.randint(1, 4),
            "usd_per_hour": random.choice([1.0, 2.0, 3.5]),
            "peak_tflops": random.choice([1, 2, 3]),
            "memory_gib": random.choice([0.02, 0.04, 0.06, 0.1]),
            "gbytes_per_s": random.choice([0.1, 1, 10]),
            "gpus_per_instance": random.choice([1, 1, 2]),
        }
        for name in ("A", "B")
    ]
    search = {"data_parallel": random.choice([[1], [1, 2], [2, 1]]), "max_stages": 2}
    if random.random() < 0.4:
        search["micro_batches"] = random.choice([2, 4])
    return hetopt.load(
        {
            "name": "market",
            "model": {
                **{"name": "m", "layers": 3, "hidden": 256, "heads": 4},
                "vocabulary": 1000,
            },
            "workload": {
                **{"sequence_length": 256, "global_batch": 8, "iterations": 1000},
                "micro_batch_sizes": random.choice([[1], [1, 2], [4, 1, 2]]),
                "costs": {"head": "omit", "recompute": own, "zero": zeros[0]},
                "alternatives": {"recompute": others, "zero": zeros[1:]},
            },
            "offers": offers,
            "search": search,
        }
    )


def combinations(instance: Instance) -> list[judge.Data]:
    """The problem of each combination, posed by an instance that has no other."""
    workload, found = instance.workload, []
    sizes = workload.micro_batch_sizes
    if instance.search.micro_batches is not None:
        sizes = sizes[:1]
    for zero, rule, b in product(workload.zeros, workload.recomputes, sizes):
        fixed = instance.with_costs(zero=zero, recompute=rule).with_workload(
            alternatives=Alternatives(), micro_batch_sizes=(b,)
        )
        found += judge.data(fixed).each
    return found


def every(instance: Instance) -> list[tuple[float, float]]:
    """Time and cost of every plan of every combination, tried one by one."""
    pairs = []
    for data in combinations(instance):
        for plan in provisionings(data):
            said = plan.model_copy(update=data.choice)
            found = judge.evaluate(data, said)
            if found.valid:
                pairs.append((found.parts["total_s"], found.parts["usd"]))
    return pairs


def best(cases: list[judge.Data]) -> Fraction | None:
    told = [
        value
        for data in cases
        for value, _ in valid("provisioning", data.model_copy(update=NOT_SAID))
    ]
    return min(told, default=None)


NOT_SAID = {"recompute": None, "zero": None}


def limited(random: Random, instance: Instance) -> Instance:
    """With a deadline or a budget that some plan meets, or none."""
    pairs = every(instance)
    if not pairs or random.random() < 0.3:
        return instance
    total_s, usd = random.choice(pairs)
    asked = random.choice([{"deadline_s": total_s + 0.001}, {"budget_usd": usd + 0.01}])
    requirements = instance.requirements.model_copy(update=asked)
    return instance.model_copy(update={"requirements": requirements})


@examples(40)
@given(drawn(lambda random: limited(random, market(random))))
def test_the_optimum_is_the_least_of_all_combinations(instance):
    data = judge.data(instance)
    found = exact.solve(data, limits=LIMITS)
    least = best(combinations(instance))
    assert found.objective == least
    if least is None:
        assert found.status is Status.INFEASIBLE
        return
    assert found.status is Status.OPTIMAL
    assert found.bound.value == least
    chosen = found.evaluation.parts.get("chosen")
    assert (chosen is None) == (not data.variants)
    if chosen is not None:
        assert chosen["recompute"] in instance.workload.recomputes
        assert chosen["zero"] in instance.workload.zeros
        assert {field: getattr(found.plan, field) for field in chosen} == chosen


@pytest.mark.parametrize("statement", ["provisioning", "provisioning_allocations"])
@examples(6)
@given(drawn(lambda random: limited(random, market(random))))
def test_statements_find_the_least_of_all_combinations(statement, instance):
    data = judge.data(instance)
    found = statements.solve("provisioning", data, statement, "cpsat", limits=LIMITS)
    assert found.objective == best(combinations(instance))


@examples(15)
@given(drawn(market))
def test_the_frontier_is_that_of_all_combinations(instance):
    front = exact.frontier(judge.data(instance), limits=LIMITS)
    points = [
        (point.evaluation.parts["total_s"], point.evaluation.parts["usd"])
        for point in front.points
    ]
    pairs = set(every(instance))
    kept = {
        (t, c)
        for t, c in pairs
        if not any(x <= t and y <= c and (x, y) != (t, c) for x, y in pairs)
    }
    assert set(points) == kept


@pytest.mark.parametrize("planner", PLANNERS)
@examples(8)
@given(drawn(market))
def test_a_planner_is_asked_for_every_combination(planner, instance):
    """What it finds for all is the best of what it finds for each."""
    found = api.provision(instance, planner, limits=60)
    alone = [
        result.objective
        for data in combinations(instance)
        for one in [data.model_copy(update=NOT_SAID)]
        if (result := api.solve(one, planner, limits=60)).objective is not None
    ]
    assert found.objective == min(alone, default=None)


def test_a_bound_of_a_case_is_no_more_than_its_optimum():
    random = Random(0)
    for _ in range(60):
        for case in judge.data(limited(random, market(random))).cases:
            value = best([case])
            assert value is None or judge.least(case) <= value


@pytest.mark.parametrize("micro_batches", [None, 4])
@pytest.mark.parametrize("zero", [0, 1, 2, 3])
def test_states_are_divided_among_the_replicas_of_a_stage(zero, micro_batches):
    instance = market(Random(1)).with_costs(zero=zero, recompute="full")
    fixed = {"alternatives": Alternatives(), "micro_batch_sizes": (1,)}
    shapes = {"data_parallel": (1, 2, 4), "micro_batches": micro_batches}
    search = {"search": instance.search.model_copy(update=shapes)}
    posed = judge.data(instance.with_workload(**fixed).model_copy(update=search))
    divided, seen = {0: 0, 1: 12, 2: 14, 3: 16}[zero], set()
    for one in posed.each:
        for d in one.data_parallel:
            each = Fraction(16 - divided) + Fraction(divided, d)
            need = memory.mib(each * instance.model.parameters[0])
            assert {offer.layer_mib_at(d) for offer in one.offers} == {need}
            seen.add(d)
    assert seen == {1, 2, 4}


def test_a_plan_of_settings_that_nobody_offers_is_refused():
    instance = load_instance("tiny/offers")
    found = hetopt.provision(instance)
    plan = found.plan.model_copy(update={"recompute": "none"})
    told = judge.evaluate(judge.data(instance), plan)
    assert [violation.rule for violation in told.violations] == ["settings"]


def test_what_offers_do_not_carry_is_refused():
    document = load_instance("tiny/offers").model_dump(mode="json", exclude_unset=True)
    whole = {**document["workload"], "alternatives": {"interleave": [2]}}
    with pytest.raises(InstanceError, match=r"interleave is not supported with offers"):
        hetopt.load({**document, "workload": whole})
    document["workload"]["micro_batch_sizes"] = [3]
    del document["search"]["micro_batches"]
    with pytest.raises(InstanceError, match="give search"):
        hetopt.provision(document)
