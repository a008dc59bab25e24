"""Pricing where layers are equal and their order does not matter.

Then a pipeline is a set of *segments*: what it does in one node, as a number of layers
on some of the node's GPUs. Their times do not depend on prices and are kept for the
box; nodes are visited class by class, each once, which ordered labels cannot ask for.

A segment's least time and its least demand count, whichever divisions they are of.
"""

import numpy as np

from ...errors import InternalError
from ...stages import NEVER, StageTable
from ...stages.classes import Whole
from ...stages.sync import UNIT
from . import compiled
from .arcs import Arcs
from .columns import Column
from .coupling import Coupling
from .kernels import HALF, MOST
from .pricing import Limits, Prices, Pricing, Rows


class Segments:
    """Segments of one size of micro-batches, under some limits on what stages hold.

    Boxes that allow the same stages share them: the times are kept here.
    """

    def __init__(self, table: StageTable, arcs: Arcs, light: Whole) -> None:
        """Read stages of equal layers by [arc, layers]; `light` as `Coupling` has it."""
        layers, number = table.layers, table.runs.number
        inner, outer, ended = (
            np.full((len(arcs.gpus), layers + 1), NEVER, np.int64) for _ in range(3)
        )
        #: The lightest run of so many layers: in the middle, where there is one.
        self.run = np.zeros(layers + 1, np.int64)
        low = np.zeros(layers + 1, np.int64)
        for y in range(1, layers + 1):
            first = 1 if y < layers - 1 else 0
            self.run[y] = number[first, first + y]
            low[y] = table.sync.low[self.run[y]]
            ended[:, y] = arcs.inner[:, 0, layers - y, layers]
            if y < layers:
                inner[:, y] = arcs.inner[:, 0, first, first + y]
                outer[:, y] = arcs.outer[:, 0, first, first + y]
        #: The class of the node and the GPUs of each segment.
        self.kind = np.repeat(np.arange(len(table.node_gpus)), table.node_gpus)
        self.gpus = np.concatenate([np.arange(1, g + 1) for g in table.node_gpus])
        self.light = np.searchsorted(low[1:], light, "right")
        self.begin, self._used = arcs.begin(len(table.node_gpus)), arcs.gpus
        self._stages = inner, outer, ended
        self._kept: dict[int, Whole] = {}

    def us(self, highs: Whole) -> Whole:
        """Return least times by [interval, segment, ended, layers].

        No stage takes more than `highs[g]`.
        """
        missing = np.unique([x for x in highs.tolist() if x not in self._kept])
        if len(missing):
            found = compiled.segment_us(
                *(missing.astype(np.int64), self.kind, self.gpus, self.begin),
                *(self._used, *self._stages, self.light),
            )
            self._kept.update(zip(missing.tolist(), found, strict=True))
        return np.stack([self._kept[high] for high in highs.tolist()])

    def demand(self, of_runs: Whole) -> Whole:
        """Return the least demands by [segment, layers], from those by [arc, run]."""
        return compiled.segment_demand(
            *(self.kind, self.gpus, self.begin, self._used),
            *(np.ascontiguousarray(of_runs[:, self.run]), self.light),
        )

    @property
    def nbytes(self) -> int:
        """Return the memory of the times."""
        return sum(each.nbytes for each in self._kept.values())


class Unordered(Pricing):
    """Paths through equal layers, with micro-batches of one sequence."""

    def __init__(
        self,
        table: StageTable,
        coupling: Coupling,
        limits: Limits,
        rows: Rows,
        segments: Segments,
    ) -> None:
        """Bind the segments that the coupling of a box allows."""
        super().__init__(table, coupling, limits, rows)
        self._segments, layers = segments, table.layers
        self._kind, self._gpus = segments.kind, segments.gpus
        self._visits = np.minimum(table.nodes, layers)
        self._demand = segments.demand(coupling.demand)
        held = np.zeros(layers + 1, np.int64)
        for y in range(1, layers + 1):
            first = np.arange(layers - y + 1)
            held[y] = table.sync.high[table.runs.number[first, first + y]].max()
        self._held_units = held

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

    def least(
        self,
        prices: Prices,
        time: int,
        lows: Whole,
        highs: Whole,
        spans: list[tuple[int, int]],
    ) -> Whole:
        """Return the least cost of a path, by interval."""
        return self._swept(prices, time, lows, self._segments.us(highs), 1)[0]

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
        times = self.arcs.times
        lows, highs = times[[span[0]]], times[[span[1] - 1]]
        us = self._segments.us(highs)
        found, kept, price = self._swept(prices, time, lows, us, 1)
        if found[0] >= HALF:
            return None
        cost = time * us[0] + self.runs * int(lows[0]) * price[:, None]
        cost = np.where(us[0] < HALF, np.minimum(cost, MOST), HALF)
        uses = np.zeros(2 * len(self.rows.gpus) + 3)
        uses[-2] = 1.0
        took = 0
        for segment, ended, layers in self._path(kept[0], cost):
            took += int(us[0, segment, ended, layers])
            self._use_segment(uses, segment, layers)
        return Column(number, span, tuple(uses), took, int(highs[0]))

    def _path(self, kept: Whole, cost: Whole) -> list[tuple[int, int, int]]:
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
