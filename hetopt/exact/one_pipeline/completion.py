"""Completion bounds: what stages before a cut take at least, by the GPUs left.

`LeastByCount` is exact for stages by counts (whole GPUs by class of nodes),
`LeastByPrice` the weaker bound of `prices`, where those tables are too large.
"""

from math import prod

import numpy as np

from .cluster_tables import Array
from .loops import Steps, completed_by_count
from .prices import Prices

_ENTRIES = 40_000_000  # of a table, 8 bytes each
_STEPS = 60_000  # options whose tables are merged


class LeastByCount:
    """Least sum of stage times before each cut, by state and by GPUs left."""

    def __init__(self, prices: Prices, options: Array, slowest: int) -> None:
        """Tables over `options`, of stages that take at most `slowest`."""
        rows, sides = prices.options, [int(n) + 1 for n in prices.gpus]
        strides = [prod(sides[c + 1 :]) for c in range(len(sides))]
        self._strides = np.array(strides, np.int64)
        steps = Steps(
            *(rows.last[options], rows.first[options], rows.kind[options]),
            *(rows.compute_us[options], prices.use[rows.pattern[options]]),
            prices.columns.shared[options] <= slowest,
            prices.columns.apart[options] <= slowest,
        )
        moves = prices.moves
        begins = np.zeros((prices.layers + 1, prices.kinds), np.bool_)
        begins[steps.first, steps.kind] = True
        # The states of stages that begin at a cut, and of the end.
        wanted = np.zeros((prices.layers + 1, prices.states), np.bool_)
        cuts, pairs = np.nonzero(begins[:, moves.kind])
        wanted[cuts, moves.state[pairs]] = True
        wanted[prices.layers, 0] = True
        self._left = completed_by_count(steps, moves, wanted, prices.gpus)
        self._flat = self._left.reshape(prices.layers + 1, prices.states, -1)

    @staticmethod
    def fits(prices: Prices, options: Array) -> bool:
        """Tell whether the tables are small enough, and the work on them."""
        entries = (
            (prices.layers + 1) * prices.states * prod(int(n) + 1 for n in prices.gpus)
        )
        return entries <= _ENTRIES and len(options) <= _STEPS

    @property
    def bound_us(self) -> int:
        """Least sum of stage times of a whole pipeline; BIG where there is none."""
        return int(self._flat[-1, 0, -1])

    def least(self, first: Array, state: Array, left: Array) -> Array:
        """Return the least for cuts, states and GPUs left by class, none negative."""
        found: Array = self._flat[first, state, left @ self._strides]
        return found

    def one(self, first: int, state: int, left: tuple[int, ...]) -> int:
        """`least` of one cut."""
        return int(self._left[(first, state, *left)])


class LeastByPrice:
    """The bound by prices on what is before each cut."""

    def __init__(self, value: Array, prices: Array) -> None:
        self._value, self._prices = value, prices

    def least(self, first: Array, state: Array, left: Array) -> Array:
        """Return a bound from below, as `LeastByCount.least` does."""
        found: Array = np.maximum(self._value[first, state] - left @ self._prices, 0)
        return found

    def one(self, first: int, state: int, left: tuple[int, ...]) -> int:
        """`least` of one cut."""
        paid = sum(int(p) * n for p, n in zip(self._prices, left, strict=True))
        return max(int(self._value[first, state]) - paid, 0)
