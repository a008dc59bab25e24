"""Building a statement is within the limits: of time, of size, and of Ctrl-C."""

from collections import Counter

import pytest

import hetopt
from hetopt import registry
from hetopt.api.judging import posed
from hetopt.backends import _running
from hetopt.modelling import Limits, Size
from hetopt.result import Status, Stop
from hetopt.solving import statements

BACKENDS = registry.names("backends")
CASES = [
    ("hexiscale/setting-1-llama2-7b", "hexiscale_literal", "scip"),
    ("tiny/two-nodes", "hexiscale_milp", "cpsat"),
    ("tiny/offers", "provisioning", "scip"),
    ("tiny/offers", "provisioning_allocations", "pulp"),
]


@pytest.fixture
def unsolved(monkeypatch):
    """No back end may begin to solve."""

    def solve(model, limits, report):
        raise AssertionError(f"{model.name} was handed to the solver")

    for name in BACKENDS:
        monkeypatch.setattr(
            type(registry.entry("backends", name).backend()), "solve", solve
        )


def often(monkeypatch, most=10**9):
    """The clock is looked at after every part."""
    size = Size(most=most, between=1)
    monkeypatch.setattr(_running, "SIZE", size)
    monkeypatch.setattr(statements, "SIZE", size)


def solve(name, statement, backend, **limits):
    problem, data = posed(name)
    return statements.solve(problem, data, statement, backend, limits=Limits(**limits))


@pytest.mark.usefixtures("unsolved")
@pytest.mark.parametrize("case", CASES, ids=lambda case: case[1])
def test_a_statement_that_is_late_or_too_large_is_not_built(case, monkeypatch):
    often(monkeypatch)
    late = solve(*case, time_s=0)
    assert (late.status, late.stop) == (Status.UNDECIDED, Stop.TIME)
    assert (late.plan, late.bound) == (None, None)
    often(monkeypatch, most=20)
    found = solve(*case)
    assert (found.status, found.stop) == (Status.UNDECIDED, Stop.MEMORY)
    assert "more than 20 variables, terms and rows" in found.reasons[0]


@pytest.mark.usefixtures("unsolved")
def test_ctrl_c_ends_the_building_and_keeps_the_warm_start(monkeypatch):
    often(monkeypatch)
    told = Counter()

    def interrupt(run, parts):
        told["parts"] = parts
        if parts == 7:
            raise KeyboardInterrupt

    monkeypatch.setattr(statements._Run, "_watch", interrupt)
    problem, data = posed("tiny/two-nodes")
    plan = hetopt.plan(data, "megatron").plan
    found = statements.solve(problem, data, "hexiscale_milp", "cpsat", warm_start=plan)
    assert found.stop is Stop.INTERRUPTED
    assert found.plan == plan
    assert told["parts"] == 7


@pytest.mark.parametrize("name", BACKENDS)
def test_variables_terms_and_rows_are_counted_alike(name, monkeypatch):
    monkeypatch.setattr(_running, "SIZE", Size(between=2))
    model, seen = registry.entry("backends", name).backend("counted"), []
    model.watch = seen.append
    x = model.binaries("x", range(3))
    model.add("some", 0, model.total(x.values()) >= 1)
    model.each("pair", {i: x[i] + x[i + 1] <= 1 for i in range(2)})
    model.minimise(model.total([x[0]]))
    assert model.parts == 3 + 3 + 1 + 2 + 1
    assert seen == [2, 4, 6, 8, 10]
    answer = model.solve(Limits(time_s=30), lambda incumbent, bound: None)
    assert answer.status is Status.OPTIMAL


LISTED = {
    "device_grouping_patterns": "generated:grouping/6/1",
    "layer_partition_lattice": "generated:partition/9/1",
    "provisioning_allocations": "tiny/offers",
}


@pytest.mark.parametrize("statement", LISTED)
def test_tables_that_come_before_a_statement_end_at_the_limits(statement, monkeypatch):
    """What is listed before anything is built is within the limits, too."""

    def build(case, model):
        raise AssertionError("it was built")

    problem, data = posed(LISTED[statement])
    module = registry.entry("formulations", statement)
    assert statements.cases_of(module, data)
    for kept in vars(module).values():
        getattr(kept, "cache_clear", lambda: None)()
    monkeypatch.setattr(module, "build", build)
    found = statements.solve(problem, data, statement, "cpsat", limits=Limits(time_s=0))
    assert (found.status, found.stop) == (Status.UNDECIDED, Stop.TIME)
