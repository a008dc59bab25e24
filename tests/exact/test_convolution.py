"""Sums of tables of a proof: by numpy, by a compiler, and pair by pair."""

from collections.abc import Callable

import numpy as np
import pytest

from hetopt.exact.training_plan.patterns import convolution
from hetopt.exact.training_plan.patterns.convolution import Table

WAYS = [convolution.plainly, convolution.number_by_number, convolution.extend]


def table(rng: np.random.Generator, rows: int, width: int) -> Table:
    drawn = rng.integers(0, 1000, (rows, width)).astype(np.float32) / 7
    drawn[rng.random(rows) < 0.3] = np.inf
    return drawn


def one_by_one(after: Table, before: Table, visit: Table) -> None:
    for w in range(len(after)):
        for y in range(1, min(w, len(visit) - 1) + 1):
            for g in range(after.shape[1]):
                after[w, g] = min(after[w, g], before[w - y, g] + visit[y, g])


@pytest.mark.parametrize("extend", WAYS)
@pytest.mark.parametrize("rows", [1, 2, 9])
def test_all_ways_add_the_same_pairs(
    extend: Callable[[Table, Table, Table], None], rows: int
) -> None:
    for seed in range(20):
        rng = np.random.default_rng(seed)
        before, visit = table(rng, 9, 5), table(rng, rows, 5)
        expected = table(rng, 9, 5)
        after = expected.copy()
        one_by_one(expected, before, visit)
        extend(after, before, visit)
        assert np.array_equal(after, expected)


@pytest.mark.parametrize("extend", WAYS)
def test_a_table_behind_itself_takes_any_number_of_visits(
    extend: Callable[[Table, Table, Table], None],
) -> None:
    visit = np.full((4, 2), np.inf, np.float32)
    visit[2], visit[3] = (5.0, 1.0), (6.0, 9.0)
    states = np.full((10, 2), np.inf, np.float32)
    states[0] = 0
    extend(states, states, visit)
    for w in range(10):
        for g in range(2):
            ways = [
                a * visit[2, g] + c * visit[3, g]
                for a in range(5)
                for c in range(4)
                if 2 * a + 3 * c == w
            ]
            assert states[w, g] == min(ways, default=np.inf)


@pytest.mark.parametrize(
    "cheapest",
    [
        convolution.cheapest_plainly,
        convolution.cheapest_one_by_one,
        convolution.cheapest,
    ],
)
def test_all_ways_find_the_same_least_prices(
    cheapest: Callable[[Table, np.float32, Table], Table],
) -> None:
    rng = np.random.default_rng(3)
    us = rng.random((3, 4, 5)).astype(np.float32)
    us[rng.random(us.shape) < 0.2] = np.inf
    price = rng.random((3, 4)).astype(np.float32)
    expected = np.full((4, 5), np.inf, np.float32)
    for w in range(4):
        for g in range(5):
            sums = [np.float32(7) * us[k, w, g] + price[k, w] for k in range(3)]
            expected[w, g] = min(sums)
    assert np.array_equal(cheapest(us, np.float32(7), price), expected)
