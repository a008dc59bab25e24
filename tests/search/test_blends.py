"""Blends of nodes: the best mix of a small linear program, and plans that are valid."""

from itertools import combinations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from inputs import examples
from numpy.typing import NDArray

import hetopt
from hetopt.problems import training_plan
from hetopt.search.balancing import Balancer
from hetopt.search.fast_cost import FastCost
from hetopt.search.islands import blends
from hetopt.search.islands.options import Options


def best_corner(
    values: NDArray[np.float64], uses: NDArray[np.float64], limits: NDArray[np.float64]
) -> float:
    """The most of all corners, each of as many columns or slacks as rows."""
    rows, columns = uses.shape
    every = np.hstack([uses, np.eye(rows)])
    worth = np.concatenate([values, np.zeros(rows)])
    best = 0.0
    for some in combinations(range(columns + rows), rows):
        basis = every[:, some]
        if abs(np.linalg.det(basis)) < 1e-6:
            continue
        many = np.linalg.solve(basis, limits)
        if (many >= -1e-9).all():
            best = max(best, float(worth[list(some)] @ many))
    return best


@examples(100)
@given(st.data(), st.integers(1, 3), st.integers(1, 5))
def test_the_best_mix_is_the_best_of_all_corners(
    data: st.DataObject, rows: int, columns: int
) -> None:
    def drawn(least: int, most: int, count: int) -> NDArray[np.float64]:
        numbers = st.lists(st.integers(least, most), min_size=count, max_size=count)
        return np.array(data.draw(numbers), float)

    values, limits = drawn(0, 20, columns), drawn(1, 30, rows)
    uses = drawn(0, 6, rows * columns).reshape(rows, columns)
    uses[0, uses.sum(axis=0) == 0] = 1  # every blend has nodes
    many = blends._best_mix(values, uses, limits)
    assert (many >= 0).all()
    assert (uses @ many <= limits + 1e-6).all()
    assert values @ many == pytest.approx(best_corner(values, uses, limits))


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
