"""What the stages before a cut take at least, by the GPUs that are left for them.

`LeastByCount` is exact for stages by counts (whole GPUs by class of nodes),
`LeastByPrice` the weaker bound of `prices`, where those tables are too large.
"""

from math import prod

import numpy as np

from .cluster_tables import BIG, Array
from .prices import Prices

_ENTRIES = 40_000_000  # of a table, 8 bytes each
_STEPS = 60_000  # items whose tables are merged


class LeastByCount:
    """Least sum of stage times before each cut, by tag and by GPUs left."""

    def __init__(self, prices: Prices, items: Array, slowest: int) -> None:
        """Tables over `items`, of stages that take at most `slowest`."""
        self._owner = prices
        self._slowest = slowest
        sides = [int(n) + 1 for n in prices.gpus]
        self._strides = np.array(
            [prod(sides[c + 1 :]) for c in range(len(sides))], np.int64
        )
        self._left = np.full((prices.layers + 1, prices.tags, *sides), BIG, np.int64)
        self._left[0] = 0
        self._pairs: dict[int, list[int]] = {}
        for pair, kind in enumerate(prices.pair_kind):
            self._pairs.setdefault(int(kind), []).append(pair)
        self._fill(items)
        self._flat = self._left.reshape(prices.layers + 1, prices.tags, -1)

    @staticmethod
    def fits(prices: Prices, items: Array) -> bool:
        """Whether the tables are small enough, and the work on them."""
        entries = (
            (prices.layers + 1) * prices.tags * prod(int(n) + 1 for n in prices.gpus)
        )
        return entries <= _ENTRIES and len(items) <= _STEPS

    @property
    def bound_us(self) -> int:
        """Least sum of stage times of a whole pipeline; BIG where there is none."""
        return int(self._flat[-1, 0, -1])

    def least(self, first: Array, tag: Array, left: Array) -> Array:
        """For cuts, tags and GPUs left by class (a row each, none negative)."""
        found: Array = self._flat[first, tag, left @ self._strides]
        return found

    def one(self, first: int, tag: int, left: tuple[int, ...]) -> int:
        """`least` of one cut."""
        return int(self._left[(first, tag, *left)])

    def _fill(self, items: Array) -> None:
        rows, owner = self._owner.items, self._owner
        firsts = rows.first[items]
        tags = {
            int(cut): self._tags_at(rows.kind[items[firsts == cut]])
            for cut in np.unique(firsts)
        }
        tags[owner.layers] = [0]
        lasts = rows.last[items]
        for last in np.unique(lasts):
            if int(last) in tags:
                self._fill_cut(int(last), items[lasts == last], tags[int(last)])

    def _tags_at(self, kinds: Array) -> list[int]:
        """Tags of the stages that begin at a cut."""
        pairs = [p for kind in np.unique(kinds) for p in self._pairs[int(kind)]]
        return sorted({int(self._owner.pair_tag[p]) for p in pairs})

    def _fill_cut(self, last: int, items: Array, tags: list[int]) -> None:
        owner = self._owner
        ends: dict[tuple[int, bool], Array] = {}
        for item in items:
            self._lay(int(item), ends)
        if not ends:
            return
        keys = list(ends)
        sums = np.stack([ends[key] for key in keys])
        for tag in tags:
            hops = np.array(
                [
                    (owner.shared if joined else owner.apart)[p, tag]
                    for p, joined in keys
                ]
            )
            possible = np.flatnonzero(hops < BIG)
            if len(possible):
                shape = (-1, *([1] * len(owner.gpus)))
                found = sums[possible] + hops[possible].reshape(shape)
                self._left[last, tag] = np.minimum(found.min(axis=0), BIG)

    def _lay(self, item: int, ends: dict[tuple[int, bool], Array]) -> None:
        """Lay one item before all that it can follow, merged by pair."""
        owner, rows = self._owner, self._owner.items
        use = owner.use[rows.pattern[item]]
        here = tuple(slice(int(u), None) for u in use)
        there = tuple(
            slice(0, int(n + 1 - u)) for n, u in zip(owner.gpus, use, strict=True)
        )
        first, us = int(rows.first[item]), int(rows.compute_us[item])
        for pair in self._pairs[int(rows.kind[item])]:
            before = self._left[first, owner.pair_tag[pair]][there] + us
            for joined, tau in (
                (True, owner.item_shared[item]),
                (False, owner.item_apart[item]),
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

    def least(self, first: Array, tag: Array, left: Array) -> Array:
        """As `LeastByCount.least`, a bound from below."""
        found: Array = np.maximum(self._value[first, tag] - left @ self._prices, 0)
        return found

    def one(self, first: int, tag: int, left: tuple[int, ...]) -> int:
        """`least` of one cut."""
        paid = sum(int(p) * n for p, n in zip(self._prices, left, strict=True))
        return max(int(self._value[first, tag]) - paid, 0)
