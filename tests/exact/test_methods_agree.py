"""Method, statement and brute force agree, on every problem that can be listed."""

from typing import Any

import brute_force
import pytest
import test_exact_device_grouping as of_groupings
import test_exact_layer_partition as of_partitions
from hypothesis import given
from hypothesis import strategies as st
from inputs import examples, tiny_problems
from random_data import MAKERS
from soaking import subproblems
from test_anytime import ascending

from hetopt import registry
from hetopt.modelling import Limits
from hetopt.result import Status, Stop
from hetopt.solving import statements

SLOW = {"device_grouping"}  # a statement that takes seconds beyond three devices


@pytest.mark.parametrize("problem", MAKERS)
@examples(40)
@given(data=st.data())
def test_method_statement_and_brute_force_agree(
    problem: str, data: st.DataObject
) -> None:
    method: Any = registry.entry("exact", problem)
    posed = data.draw(tiny_problems(problem))
    best = brute_force.best(problem, posed)
    result = method.solve(posed, limits=Limits())
    subproblems.agree(result, best, posed)
    assert result.stop is Stop.PROVED
    assert bool(result.reasons) == (result.status is Status.INFEASIBLE)
    asked = [pair for pair in subproblems.stated(problem) if pair[0] not in SLOW]
    subproblems.agrees(problem, posed, data.draw(st.sampled_from(asked)), best)


REAL = {
    **{name: ("device_grouping", data) for name, data in of_groupings.SIZES.items()},
    **{name: ("layer_partition", data) for name, data in of_partitions.REAL.items()},
}


@pytest.mark.parametrize("name", REAL)
def test_real_sizes_are_proved(name: str) -> None:
    problem, posed = REAL[name]
    result = registry.entry("exact", problem).solve(posed)
    assert (result.status, result.stop) == (Status.OPTIMAL, Stop.PROVED)


LARGER = {
    "device_grouping": (
        of_groupings.cluster((2, 1, 2), 100_000),
        of_groupings.cluster((1, 2, 1, 1), 100_000),
    ),
    "layer_partition": (
        of_partitions.pipeline(8, (2, 1)),
        of_partitions.pipeline(8, (2, 1), order="given", objective="bottleneck"),
    ),
}


@pytest.mark.parametrize(
    ("problem", "name", "backend"),
    [
        (problem, name, backend)
        for problem in LARGER
        for name, backend in subproblems.stated(problem)
    ],
)
def test_every_statement_agrees_with_the_method_on_every_back_end(
    problem: str, name: str, backend: str
) -> None:
    method: Any = registry.entry("exact", problem)
    for posed in LARGER[problem]:
        limits = Limits(time_s=20)
        result = statements.solve(problem, posed, name, backend, limits=limits)
        proved = method.solve(posed)
        assert ascending(problem, result.bound.value, proved.objective)
        if result.status is Status.OPTIMAL:
            assert result.objective == proved.objective
