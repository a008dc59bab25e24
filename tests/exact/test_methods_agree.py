"""Method, statement and brute force agree, on every problem that can be listed."""

from random import Random
from typing import Any

import brute_force
import pytest
import test_exact_device_grouping as of_groupings
import test_exact_layer_partition as of_partitions
import tiny_recoveries
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.strategies import SearchStrategy
from inputs import drawn, examples, seeds, tiny_problems
from soaking import _subproblems as soaked
from soaking import job_round as rounds
from test_anytime import ascending

from hetopt import registry
from hetopt.modelling import Limits
from hetopt.result import Status, Stop
from hetopt.solving import statements


def listed(problem: str, drawn: SearchStrategy[Any]) -> SearchStrategy[Any]:
    """Draw a problem whose plans `brute_force` lists, with the best of them."""
    return drawn.map(lambda data: (data, brute_force.best(problem, data)))


def of_round(random: Random) -> tuple[Any, int]:
    document = rounds.draw(random)["data"]
    return soaked.posed("job_round", document), min(rounds._costs(document))


#: Small data of each problem, with the best of all plans.
PROBLEMS: dict[str, SearchStrategy[Any]] = {
    "device_grouping": listed("device_grouping", tiny_problems("device_grouping")),
    "job_round": drawn(of_round),
    "layer_partition": listed("layer_partition", tiny_problems("layer_partition")),
    "provisioning": listed("provisioning", tiny_problems("provisioning")),
    "recovery": seeds()
    .map(tiny_recoveries.tiny)
    .map(lambda data: (data, tiny_recoveries.best(data))),
}
SLOW = {"device_grouping"}  # a statement that takes seconds beyond three devices


def stated(problem: str) -> list[list[str]]:
    """Return every statement of a problem, on every back end that carries it."""
    return [
        [name, backend]
        for name in registry.entries_for("formulations", problem)
        for backend in sorted(soaked._backends(name))
        if name not in SLOW
    ]


@pytest.mark.parametrize("problem", PROBLEMS)
@examples(40)
@given(data=st.data())
def test_method_statement_and_brute_force_agree(
    problem: str, data: st.DataObject
) -> None:
    method: Any = registry.entry("exact", problem)
    posed, best = data.draw(PROBLEMS[problem])
    result = method.solve(posed, limits=Limits())
    soaked.agree(result, best, posed)
    assert result.stop is Stop.PROVED
    assert bool(result.reasons) == (result.status is Status.INFEASIBLE)
    soaked.stated(problem, posed, data.draw(st.sampled_from(stated(problem))), best)


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
        for name in registry.entries_for("formulations", problem)
        for backend in sorted(soaked._backends(name))
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
        assert result.bound is not None
        assert ascending(problem, result.bound.value, proved.objective)
        if result.status is Status.OPTIMAL:
            assert result.objective == proved.objective
