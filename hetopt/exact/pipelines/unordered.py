"""Pricing where layers are equal and their order does not matter.

Then a pipeline is a set of *segments*: what it does in one node, as a number of layers
on some of the node's GPUs. Their times do not depend on prices and are kept for the
box; nodes are visited class by class, each once, which ordered labels cannot ask for.

A segment's least time and its least price count, whichever divisions they are of.
"""

from typing import NamedTuple

import numpy as np

from ...errors import InternalError
from ...stages import NEVER, StageTable
from ...stages.classes import Whole
from . import kernels
from .arcs import Arcs
from .coupling import Coupling
from .kernels import BIG, HALF, MOST
from .pricing import Array, Column, Limits, Placed, Prices, Pricing, Rows


class Segments:
    """Segments of one size of micro-batches, under some limits on what stages hold.

    Boxes that allow the same stages share them: the times are kept here.
    """

    def __init__(self, table: StageTable, arcs: Arcs, light: Whole) -> None:
        """Read stages of equal layers by [arc, layers], `light` as in `Coupling`."""
        layers, number = table.layers, table.runs.number
        inner = np.full((len(arcs.gpus), layers + 1), NEVER, np.int64)
        #: How a segment ends: handed on, or the end.
        exits = np.full((2, *inner.shape), NEVER, np.int64)
        #: The lightest run of so many layers: in the middle, where there is one.
        self.run = np.zeros(layers + 1, np.int64)
        #: And the one that ends the pipeline.
        self.ended = np.full(layers + 1, -1, np.int64)
        low = np.zeros(layers + 1, np.int64)
        for y in range(1, layers + 1):
            first = 1 if y < layers - 1 else 0
            self.run[y] = number[first, first + y]
            low[y] = table.sync.low[self.run[y]]
            self.ended[y] = number[layers - y, layers]
            exits[1, :, y] = arcs.inner[:, layers - y, layers]
            if y < layers:
                inner[:, y] = arcs.inner[:, first, first + y]
                exits[0, :, y] = arcs.outer[:, first, first + y]
        #: The class of the node and the GPUs of each segment.
        self.kind = np.repeat(np.arange(len(table.node_gpus)), table.node_gpus)
        self.gpus = np.concatenate([np.arange(1, g + 1) for g in table.node_gpus])
        self.light = np.searchsorted(low[1:], light, "right")
        self.begin, self.used = arcs.begin(len(table.node_gpus)), arcs.gpus
        self._stages = inner, (exits, np.concatenate([inner[None], exits[1:]]))
        none = np.zeros((0, len(self.gpus), 2, layers + 1), np.int64)
        self._us = [none, none]
        self._rows: tuple[dict[int, int], dict[int, int]] = {}, {}

    def us(self, highs: Whole, *, near: bool = False) -> tuple[Whole, Whole]:
        """Return least times by [row, segment, way, layers], and rows by interval.

        No stage takes more than `highs[g]`. The last stage of a segment hands on to
        another node; or `near`, to a stage in several nodes, of which this is one.
        """
        rows = self._rows[near]
        missing = np.unique([x for x in highs.tolist() if x not in rows])
        if len(missing):
            inner, exits = self._stages[0], self._stages[1][near]
            shape = len(missing), len(self.gpus), *exits.shape[::2]
            own = self.kind, self.gpus, self.begin, self.used, inner, exits, self.light
            found = kernels.filled("segment_us", shape, missing.astype(np.int64), *own)
            self._keep(missing.tolist(), found, near=near)
        each = np.array([rows[high] for high in highs.tolist()], np.int64)
        return self._us[near], each

    def _keep(self, highs: list[int], found: Whole, *, near: bool) -> None:
        """Keep times of further intervals; the table doubles where it is full."""
        rows, table = self._rows[near], self._us[near]
        count = len(rows) + len(highs)
        if not rows:
            self._us[near] = found
        elif count <= len(table):
            table[len(rows) : count] = found
        else:
            longer = np.empty((2 * count, *table.shape[1:]), np.int64)
            longer[: len(rows)], longer[len(rows) : count] = table[: len(rows)], found
            self._us[near] = longer
        rows.update(zip(highs, range(len(rows), count), strict=True))

    @property
    def nbytes(self) -> int:
        """Return the memory of the times."""
        return sum(table.nbytes for table in self._us)


class Unordered(Pricing):
    """Paths through equal layers, whose order does not matter.

    A path either has no stage in several nodes, or one or more: then the last stage of
    any segment may be next to one, and hands on inside its node.
    """

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
        self._segments = segments
        self._visits = np.minimum(table.nodes, table.layers)
        # Any run may hold the first layer and the last: what holding it earns is that
        # of the largest run of its length.
        first, last = table.runs.spans.T
        largest = np.zeros(table.layers + 1, np.int64)
        np.maximum.at(largest, last - first, table.sync.high)
        self.high = largest[last - first]

    def _segment_price(self, prices: Prices) -> "_Paid":
        known = self._segments
        paid = np.ascontiguousarray(self._paid(prices)[:, :, known.run])
        shape = len(known.gpus), int(known.gpus.max()) + 1, self.layers + 1
        own = known.kind, known.gpus, known.begin, known.used, paid, known.light
        found = kernels.filled("segment_price", shape, *own)
        whole = found[np.arange(len(known.gpus)), known.gpus]
        gpu = np.array(prices.gpu)[known.kind] * known.gpus
        price = np.minimum(
            np.where(whole < HALF, whole, 0) + gpu[:, None], self._limit()
        )
        return _Paid(price, paid, found)

    def least(self, prices: Prices, time: int, lows: Whole, highs: Whole) -> Whole:
        """Return the least cost of a path, by interval."""
        each = (self._sweep(prices, time, lows, highs, several=x) for x in self._cases)
        found: Whole = np.minimum.reduce([sweep.found for sweep in each])
        return found

    @property
    def _cases(self) -> tuple[bool, ...]:
        """Return whether paths have stages in several nodes: the cases to look at."""
        return (False, True) if len(self.arcs.shared) else (False,)

    def _sweep(
        self, prices: Prices, time: int, lows: Whole, highs: Whole, *, several: bool
    ) -> "_Sweep":
        known, scales = self._segments, self.runs * lows
        if several:
            fronts = self._at(prices, self._fronts_by_layers)
            # One or more of such stages alone, of which one may end the pipeline.
            shape = len(lows), 2, self.layers + 1
            start = kernels.filled("repeated", shape, time, scales, highs, *fronts)
        else:
            start = np.full((len(lows), 2, self.layers + 1), BIG, np.int64)
            start[:, 0, 0] = 0
        us, rows = known.us(highs, near=several)
        price = self._at(prices, self._segment_price).segment
        steps = int(self._visits.sum()) + 1
        kept = np.zeros((1, steps, 2, self.layers + 1), np.int64)
        given = time, scales, us, rows, price, known.kind, self._visits, start, kept
        found = kernels.filled("least_unordered", lows.shape, *given)
        return _Sweep(found, us[rows[-1]], kept[0], start[-1])

    def _fronts_by_layers(self, prices: Prices) -> tuple[Whole, Whole]:
        """Return fronts of stages in several nodes by [way, layers, i]."""
        each = self._fronts(prices)
        shape = 2, 2, self.layers + 1, each[0].shape[1]
        us, cost = found = np.full(shape, BIG, np.int64)
        for table, side in zip(found, each, strict=True):
            for way in (0, 1):
                table[way, 1:] = side[self._runs(way)[1:]]
        return us, cost

    def _runs(self, way: int) -> Whole:
        return self._segments.ended if way == 1 else self._segments.run

    def column(
        self, number: int, prices: Prices, time: int, span: tuple[int, int]
    ) -> Column | None:
        """Return the cheapest path of an interval as a column of part `number`."""
        times, known = self.arcs.times, self._segments
        lows, highs = times[[span[0]]], times[[span[1] - 1]]
        each = [self._sweep(prices, time, lows, highs, several=x) for x in self._cases]
        best = min(each, key=lambda sweep: int(sweep.found[0]))
        if best.found[0] >= HALF:
            return None
        paid = self._at(prices, self._segment_price)
        scale = self.runs * int(lows[0])
        cost = (
            time * np.minimum(best.us, BIG // max(1, time))
            + scale * paid.segment[:, None]
        )
        cost = np.where(best.us < HALF, np.minimum(cost, MOST), BIG)
        uses = np.zeros(2 * len(self.rows.gpus) + 3)
        uses[-2] = 1.0
        segments, ended, left = self._path(best.kept, cost)
        took = 0
        for segment, way, layers in segments:
            took += int(best.us[segment, way, layers])
            for arc, y in self._at(prices, self._division, segment, layers):
                first, last = self.table.runs.spans[known.run[y]].tolist()
                self._use(uses, Placed(first, last, arc, int(known.gpus[segment])))
        if left:
            given = prices, time, scale, int(highs[0]), best.start
            took += self._use_repeated(uses, *given, (ended, left))
        return Column(number, span, tuple(uses), took, int(highs[0]))

    def _use_repeated(
        self,
        uses: Array,
        prices: Prices,
        time: int,
        scale: int,
        high: int,
        start: Whole,
        at: tuple[int, int],
    ) -> int:
        """Add what stages in several nodes use, and return how long they take.

        Their least costs are `start` by [way, layers]; those `at` one are used.
        """
        us, cost = self._at(prices, self._fronts_by_layers)
        able = us <= high
        paid = time * np.where(able, us, 0) + scale * cost
        paid = np.where(able, np.minimum(paid, MOST), BIG)
        fronts, least = paid.argmin(2), paid.min(2)
        took, (end, left) = 0, at
        while left:
            for way in {0, end}:
                rest = np.full(left, BIG)  # after 1, 2, ... layers less
                rest[:-1] = start[end - way, left - 1 : 0 : -1]
                if way == end:  # the first of them
                    rest[-1] = 0
                more = least[way, 1 : left + 1]
                same = (rest < HALF) & (more < HALF) & (rest + more == start[end, left])
                if same.any():
                    y = int(same.argmax()) + 1
                    slowest = int(us[way, y, fronts[way, y]])
                    run = int(self._runs(way)[y])
                    uses += self._at(prices, self._shared_use, run, slowest)
                    took, left, end = took + slowest, left - y, end - way
                    break
            else:
                raise InternalError("a path has no stage in several nodes")
        return took

    def _shared_use(self, prices: Prices, run: int, slowest: int) -> Array:
        first, last = self.table.runs.spans[run].tolist()
        items = tuple(self.shared_items(prices, run, slowest))
        found = np.zeros(2 * len(self.rows.gpus) + 3)
        self._use(found, Placed(first, last, -1, 0, items))
        return found

    def _division(
        self, prices: Prices, segment: int, layers: int
    ) -> list[tuple[int, int]]:
        """Return the cheapest stages of a segment: their arcs and numbers of layers."""
        known, paid = self._segments, self._at(prices, self._segment_price)
        k, kind = int(known.gpus[segment]), known.kind[segment]
        arcs = range(int(known.begin[kind]), int(known.begin[kind + 1]))
        least, found, left, x = paid.least[segment], [], k, layers
        while left or x:
            for arc in arcs:
                own = int(known.used[arc])
                if own > left:
                    continue
                y = np.arange(1, min(x, int(known.light[arc, k])) + 1)
                rest = least[left - own, x - y]
                same = (rest < HALF) & (rest + paid.stage[arc, k, y] == least[left, x])
                if same.any():
                    found.append((arc, int(y[same.argmax()])))
                    left, x = left - own, x - found[-1][1]
                    break
            else:
                raise InternalError("a segment has no stage")
        return found

    def _path(
        self, kept: Whole, cost: Whole
    ) -> tuple[list[tuple[int, int, int]], int, int]:
        """Return the segments of the cheapest path, and what they go on from.

        Each segment by number, the way in which it ends, and layers.
        """
        found, end, x = list[tuple[int, int, int]](), 1, self.layers
        kinds = np.repeat(np.arange(len(self._visits)), self._visits)
        for n in range(len(kept) - 2, -1, -1):
            now = kept[n + 1, end, x]
            if kept[n, end, x] == now:
                continue
            mine = np.flatnonzero(self._segments.kind == kinds[n])
            for way in {0, end}:
                rest = kept[n, end - way, x - 1 :: -1]  # after 1, 2, ... layers less
                some = cost[mine, way, 1 : x + 1]
                same = (some < HALF) & (rest < HALF) & (some + rest == now)
                if same.any():
                    i, y = np.unravel_index(int(same.argmax()), same.shape)
                    found.append((int(mine[i]), way, int(y) + 1))
                    x, end = x - int(y) - 1, end - way
                    break
            else:
                raise InternalError("a path has no segment")
        return found, end, x


class _Paid(NamedTuple):
    """Prices of each us of the slowest stage.

    By [segment, layers]; of stages by [arc, GPUs of the segment, layers]; and the
    least of stages on some of a segment's GPUs by [segment, GPUs, layers].
    """

    segment: Whole
    stage: Whole
    least: Whole


class _Sweep(NamedTuple):
    """Least costs by interval; of the last one, times of segments and potentials.

    Potentials are `kept` by [visited nodes, ended, layers], from `start` on.
    """

    found: Whole
    us: Whole
    kept: Whole
    start: Whole
