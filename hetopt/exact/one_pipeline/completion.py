"""Completion bounds: what stages before a cut take at least, by the GPUs left.

`LeastByCount` is exact for stages by counts (whole GPUs by class of nodes),
`LeastByPrice` the weaker bound of `prices`, where those tables are too large.
"""

from math import prod
from typing import NamedTuple

import numpy as np

from ..pipelines.kernels import compiled
from .cluster_tables import BIG, Array, Flags
from .prices import Moves, Prices

_ENTRIES = 40_000_000  # of a table, 8 bytes each
_STEPS = 60_000  # options whose tables are merged


class Steps(NamedTuple):
    """Options by number, those of the first cuts first, and what their stages use.

    `use` [option, class] are GPUs; `shared` and `apart` say whether a stage may be so
    slow, with the least hop of either way.
    """

    last: Array
    first: Array
    kind: Array
    us: Array
    use: Array
    shared: Flags
    apart: Flags


def completed_by_count(steps: Steps, moves: Moves, wanted: Flags, gpus: Array) -> Array:
    """Return the least time before each cut, by state and by GPUs left.

    Of the shape [cut, state, GPUs of the first class, of the second...]. Behind cuts
    `wanted` [cut, state] says which states may follow.
    """
    sides = [int(n) + 1 for n in gpus]
    left = np.full((*wanted.shape, *sides), BIG, np.int64)
    left[0] = 0
    rows = np.indices((*sides[:-1], 1)).reshape(len(sides), -1).T
    strides = np.cumprod([1, *sides[:0:-1]])[::-1]
    given = steps, moves.starts, moves[1:4], wanted, rows, strides
    compiled("completed_by_count", *given, left.reshape(*wanted.shape, -1))
    return left


class LeastByCount:
    """Least sum of stage times before each cut, by state and by GPUs left."""

    def __init__(self, prices: Prices, options: Array, slowest: int) -> None:
        """Tables over `options`, of stages that take at most `slowest`."""
        rows = prices.options
        steps = Steps(
            *(rows.last[options], rows.first[options], rows.kind[options]),
            *(rows.compute_us[options], prices.use[rows.pattern[options]]),
            prices.shared[options] <= slowest,
            prices.apart[options] <= slowest,
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

    @staticmethod
    def fits(prices: Prices, options: Array) -> bool:
        """Tell whether the tables are small enough, and the work on them."""
        sides = prices.layers + 1, prices.states, *(prices.gpus + 1).tolist()
        return prod(sides) <= _ENTRIES and len(options) <= _STEPS

    @property
    def bound_us(self) -> int:
        """Least sum of stage times of a whole pipeline; BIG where there is none."""
        return int(self._left[-1, 0].flat[-1])

    def least(self, first: Array | int, state: Array | int, left: Array) -> Array:
        """Return the least for cuts, states and GPUs left by class, none negative."""
        found: Array = self._left[first, state, *left.T]
        return found


class LeastByPrice:
    """The bound by prices on what is before each cut."""

    def __init__(self, value: Array, prices: Array) -> None:
        self._value, self._prices = value, prices

    def least(self, first: Array | int, state: Array | int, left: Array) -> Array:
        """Return a bound from below, as `LeastByCount.least` does."""
        found: Array = np.maximum(self._value[first, state] - left @ self._prices, 0)
        return found


Least = LeastByCount | LeastByPrice
