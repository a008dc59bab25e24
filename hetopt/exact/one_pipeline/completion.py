"""Completion bounds: what stages before a cut take at least, by the GPUs left.

`LeastByCount` is exact for stages by counts (whole GPUs by class of nodes),
`LeastByPrice` the weaker bound of `prices`, where those tables are too large.
"""

from math import prod

import numpy as np

from .cluster_tables import BIG, Array
from .prices import Prices

_ENTRIES = 40_000_000  # of a table, 8 bytes each
_STEPS = 60_000  # options whose tables are merged


class LeastByCount:
    """Least sum of stage times before each cut, by state and by GPUs left."""

    def __init__(self, prices: Prices, options: Array, slowest: int) -> None:
        """Tables over `options`, of stages that take at most `slowest`."""
        self._owner = prices
        self._slowest = slowest
        sides = [int(n) + 1 for n in prices.gpus]
        self._strides = np.array(
            [prod(sides[c + 1 :]) for c in range(len(sides))], np.int64
        )
        self._left = np.full((prices.layers + 1, prices.states, *sides), BIG, np.int64)
        self._left[0] = 0
        self._pairs: dict[int, list[int]] = {}
        for pair, kind in enumerate(prices.pair_kind):
            self._pairs.setdefault(int(kind), []).append(pair)
        self._fill(options)
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

    def _fill(self, options: Array) -> None:
        rows, owner = self._owner.options, self._owner
        firsts = rows.first[options]
        states = {
            int(cut): self._states_at(rows.kind[options[firsts == cut]])
            for cut in np.unique(firsts)
        }
        states[owner.layers] = [0]
        lasts = rows.last[options]
        for last in np.unique(lasts):
            if int(last) in states:
                self._fill_cut(int(last), options[lasts == last], states[int(last)])

    def _states_at(self, kinds: Array) -> list[int]:
        """Tags of the stages that begin at a cut."""
        pairs = [p for kind in np.unique(kinds) for p in self._pairs[int(kind)]]
        return sorted({int(self._owner.pair_state[p]) for p in pairs})

    def _fill_cut(self, last: int, options: Array, states: list[int]) -> None:
        owner = self._owner
        ends: dict[tuple[int, bool], Array] = {}
        for option in options:
            self._extend(int(option), ends)
        if not ends:
            return
        keys = list(ends)
        sums = np.stack([ends[key] for key in keys])
        for state in states:
            hops = np.array(
                [
                    (owner.shared if joined else owner.apart)[p, state]
                    for p, joined in keys
                ]
            )
            possible = np.flatnonzero(hops < BIG)
            if len(possible):
                shape = (-1, *([1] * len(owner.gpus)))
                found = sums[possible] + hops[possible].reshape(shape)
                self._left[last, state] = np.minimum(found.min(axis=0), BIG)

    def _extend(self, option: int, ends: dict[tuple[int, bool], Array]) -> None:
        """Lay one option before all that it can follow, merged by pair."""
        owner, rows = self._owner, self._owner.options
        use = owner.use[rows.pattern[option]]
        here = tuple(slice(int(u), None) for u in use)
        there = tuple(
            slice(0, int(n + 1 - u)) for n, u in zip(owner.gpus, use, strict=True)
        )
        first, us = int(rows.first[option]), int(rows.compute_us[option])
        for pair in self._pairs[int(rows.kind[option])]:
            before = self._left[first, owner.pair_state[pair]][there] + us
            for joined, tau in (
                (True, owner.option_shared[option]),
                (False, owner.option_apart[option]),
            ):
                if tau <= self._slowest:
                    key = (pair, joined)
                    if key not in ends:
                        ends[key] = np.full(self._left.shape[2:], BIG, np.int64)
                    np.minimum(ends[key][here], before, out=ends[key][here])


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
