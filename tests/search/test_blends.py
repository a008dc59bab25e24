"""Blends of nodes: the best mix of a small linear program, and plans that are valid."""

import pytest

import hetopt
from hetopt.problems import training_plan
from hetopt.search.balancing import Balancer
from hetopt.search.fast_cost import FastCost
from hetopt.search.islands import blends
from hetopt.search.islands.options import Options


@pytest.mark.parametrize("name", ["generated:islands/96/0", "generated:equal/96/0"])
def test_plans_of_blends_are_valid(name: str) -> None:
    instance = hetopt.load(name)
    cost = FastCost(instance)
    balancer = Balancer(cost)
    found = list(blends.plans(cost, balancer, Options(cost, balancer).power))
    assert found
    for pipes in found:
        judged = training_plan.evaluate(instance, cost.plan(pipes))
        assert judged.valid, judged.violations
        assert judged.objective == cost.iteration_us(pipes)
