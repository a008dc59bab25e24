"""Pricing where layers are equal and their order does not matter.

Then a pipeline is a set of *segments*: what it does in one node, as a number of layers
on some of the node's GPUs. Their times do not depend on prices and are kept for the
box; nodes are visited class by class, each once, which ordered labels cannot ask for.

A segment's least time and its least demand count, whichever divisions they are of.
"""

import numpy as np

from ...errors import InternalError
from ...stages import NEVER
from ...stages.classes import Whole
from ...stages.sync import UNIT
from . import compiled
from .columns import Column
from .kernels import HALF, MOST
from .pricing import Prices, Pricing


class Unordered(Pricing):
    """Paths through equal layers, with micro-batches of one sequence."""

    _tables_of: tuple[Whole, ...] | None = None

    def _prepare(self) -> None:
        """Make segments, and the stages of equal layers by [arc, layers]."""
        table, arcs, layers = self.table, self.arcs, self.layers
        sides = range(1, layers + 1)
        number, sync = table.runs.number, table.sync
        inner, outer, ended = (
            np.full((len(arcs.gpus), layers + 1), NEVER, np.int64) for _ in range(3)
        )
        low, demand = np.zeros(layers + 1, np.int64), np.zeros_like(inner)
        for y in sides:
            # The lightest run of so many layers: in the middle, where there is one.
            first = 1 if y < layers - 1 else 0
            low[y] = sync.low[number[first, first + y]]
            demand[:, y] = self.coupling.demand[:, number[first, first + y]]
            ended[:, y] = arcs.inner[:, 0, layers - y, layers]
            if y < layers:
                inner[:, y] = arcs.inner[:, 0, first, first + y]
                outer[:, y] = arcs.outer[:, 0, first, first + y]
        held = np.zeros(layers + 1, np.int64)
        for y in sides:
            spans = [(first, first + y) for first in range(layers - y + 1)]
            held[y] = max(int(sync.high[number[span]]) for span in spans)
        kind = np.repeat(np.arange(len(table.node_gpus)), table.node_gpus)
        gpus = np.concatenate([np.arange(1, g + 1) for g in table.node_gpus])
        light = np.searchsorted(low[1:], self.coupling.light, "right")
        begin = arcs.begin(len(table.node_gpus))
        self._demand = compiled.segment_demand(
            kind, gpus, begin, arcs.gpus, demand, light
        )
        self._held_units, self._kind, self._gpus = held, kind, gpus
        self._stages = begin, arcs.gpus, inner, outer, ended, light
        self._visits = np.minimum(table.nodes, layers)
        self._kept: dict[tuple[int, int], Whole] = {}
        self._tables_of = (kind,)

    def _price(self, prices: Prices) -> Whole:
        """Return what segments cost for each us of the slowest stage."""
        prices = self._clipped(prices)
        gpu, share = np.array(prices.gpu), np.array(prices.share)
        kind, gpus = self._kind, self._gpus
        held = self._held(
            (share[kind] + prices.held)[:, None], self._held_units[None, :]
        )
        demand = (share[kind] + prices.shares)[:, None] * np.minimum(
            self._demand, UNIT * (self.layers + 2)
        )
        paid = demand * gpus[:, None] // (self.table.node_gpus[kind][:, None] * UNIT)
        found: Whole = (gpu[kind] * gpus)[:, None] + paid - held
        return np.minimum(found, self._limit())

    def _times(self, spans: list[tuple[int, int]], highs: Whole) -> Whole:
        """Return times of segments by [interval, segment, ended, layers]."""
        new = [i for i, span in enumerate(spans) if span not in self._kept]
        if new:
            found = compiled.segment_us(
                highs[new], self._kind, self._gpus, *self._stages
            )
            for i, each in zip(new, found, strict=True):
                self._kept[spans[i]] = each
        return np.stack([self._kept[span] for span in spans])

    def least(
        self,
        prices: Prices,
        time: int,
        lows: Whole,
        highs: Whole,
        spans: list[tuple[int, int]],
    ) -> Whole:
        """Return the least cost of a path, by interval."""
        if self._tables_of is None:
            self._prepare()
        return self._swept(prices, time, lows, self._times(spans, highs), 1)[0]

    def _swept(
        self, prices: Prices, time: int, lows: Whole, us: Whole, entries: int
    ) -> tuple[Whole, Whole, Whole]:
        steps = int(self._visits.sum()) + 1
        kept = np.zeros((entries, steps, 2, self.layers + 1), np.int64)
        price = self._price(prices)
        found = compiled.least_unordered(
            time, self.runs * lows, us, price, self._kind, self._visits, kept
        )
        return found, kept, price

    def column(
        self, number: int, prices: Prices, time: int, span: tuple[int, int]
    ) -> Column | None:
        """Return the cheapest path of an interval as a column of part `number`."""
        if self._tables_of is None:
            self._prepare()
        times = self.arcs.times
        lows, highs = times[[span[0]]], times[[span[1] - 1]]
        us = self._times([span], highs)
        found, kept, price = self._swept(prices, time, lows, us, 1)
        if found[0] >= HALF:
            return None
        cost = time * us[0] + self.runs * int(lows[0]) * price[:, None]
        cost = np.where(us[0] < HALF, np.minimum(cost, MOST), HALF)
        uses = np.zeros(2 * len(self.rows.gpus) + 3)
        uses[-2] = 1.0
        took = 0
        for segment, ended, layers in self._segments(kept[0], cost):
            took += int(us[0, segment, ended, layers])
            self._use_segment(uses, segment, layers)
        return Column(number, span, tuple(uses), took, int(highs[0]))

    def _segments(self, kept: Whole, cost: Whole) -> list[tuple[int, int, int]]:
        """Return the segments of the cheapest path: number, whether it ends, layers."""
        found, x, end, n = [], self.layers, 1, len(kept) - 1
        kinds = np.repeat(np.arange(len(self._visits)), self._visits)
        while x:
            now = kept[n, end, x]
            n -= 1
            if kept[n, end, x] == now:
                continue
            mine = np.flatnonzero(self._kind == kinds[n])
            for ended in range(end + 1):
                rest = kept[n, end - ended, x - 1 :: -1]  # after 1, 2, ... layers less
                some = cost[mine, ended, 1 : x + 1]
                same = (some < HALF) & (rest < HALF) & (some + rest == now)
                if same.any():
                    i, y = np.unravel_index(int(same.argmax()), same.shape)
                    found.append((int(mine[i]), ended, int(y) + 1))
                    x, end = x - int(y) - 1, end - ended
                    break
            else:
                raise InternalError("a path has no segment")
        return found

    def _use_segment(self, uses: np.ndarray, segment: int, layers: int) -> None:
        kind, gpus = int(self._kind[segment]), int(self._gpus[segment])
        classes = len(self.rows.gpus)
        demand = gpus * float(self._demand[segment, layers])
        demand /= int(self.table.node_gpus[kind]) * UNIT
        holds = float(self._held_units[layers]) / (self.rows.replicas * UNIT)
        uses[kind] += gpus
        uses[classes + kind] += demand - holds
        uses[-3] += demand
        uses[-1] -= holds
