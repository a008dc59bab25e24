"""Pricing where layers are equal and their order does not matter.

Then a pipeline is a set of *segments*: what it does in one node, as a number of layers
on some of the node's GPUs. Their times do not depend on prices and are kept for the
box; nodes are visited class by class, each once, which ordered labels cannot ask for.

A segment's least time and its least price count, whichever divisions they are of.
"""

from enum import Enum
from fractions import Fraction
from itertools import product
from math import floor
from typing import NamedTuple

import numpy as np

from ...errors import InternalError
from ...stages import NEVER, StageTable
from ...stages.classes import Whole
from ...stages.memory import Flags
from . import kernels
from .arcs import Arcs
from .columns import Column, Placed
from .coupling import NO_LIMIT, Coupling
from .kernels import BIG, HALF, MOST
from .pricing import Array, Limits, Prices, Pricing, Rows


class Segments:
    """Segments of one size of micro-batches, under some limits on what stages hold.

    Boxes that allow the same stages share them: the times are kept here.
    """

    def __init__(self, table: StageTable, arcs: Arcs, light: Whole) -> None:
        """Read stages of equal layers by [arc, layers], `light` as in `Coupling`."""
        layers, number = table.layers, table.runs.number
        inner = np.full((len(arcs.gpus), layers + 1), NEVER, np.int64)
        #: How a segment ends: handed on, the end, and handed on to another site.
        self.ways = 3 if table.several_sites else 2
        exits = np.full((self.ways, *inner.shape), NEVER, np.int64)
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
            exits[1, :, y] = arcs.inner[:, 0, layers - y, layers]
            if y < layers:
                inner[:, y] = arcs.inner[:, 0, first, first + y]
                exits[0, :, y] = arcs.outer[:, 0, first, first + y]
                if len(arcs.far):
                    exits[2, :, y] = arcs.far[:, 0, first, first + y]
        #: The class of the node and the GPUs of each segment.
        self.kind = np.repeat(np.arange(len(table.node_gpus)), table.node_gpus)
        self.gpus = np.concatenate([np.arange(1, g + 1) for g in table.node_gpus])
        self.light = np.searchsorted(low[1:], light, "right")
        self.begin, self.used = arcs.begin(len(table.node_gpus)), arcs.gpus
        near = np.concatenate([inner[None], exits[1:]])
        self._stages = inner, (exits, near)
        none = np.zeros((0, len(self.gpus), self.ways, layers + 1), np.int64)
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
            inner, exits = self._stages
            found = kernels.segment_us(
                *(missing.astype(np.int64), self.kind, self.gpus, self.begin),
                *(self.used, inner, exits[near], self.light),
            )
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


_Kinds = tuple[int, ...] | None  # classes of nodes; None for all, in any sites


class SiteRange(NamedTuple):
    """Classes of nodes of a site, and the most layers that a pipeline holds there."""

    kinds: tuple[int, ...]
    most: int


class Crossing(NamedTuple):
    """Sites, and units that one GPU exchanges with others in time; None for any.

    A stage in two sites or more, whose replicas have d GPUs or more, holds no more than
    twice what d of them exchange: of each layer one of two sites has a half of all
    replicas or less, and waits for the others.
    """

    sites: tuple[SiteRange, ...] = ()
    units: Fraction | None = None


class _Side(Enum):
    """Which stages in several nodes a path has: none, in a site each, or in several."""

    NONE = 0
    INSIDE = 1
    ACROSS = 2


class Unordered(Pricing):
    """Paths through equal layers, whose order does not matter.

    A path either has no stage in several nodes, or one or more: then the last stage of
    any segment may be next to one, and hands on inside its node.

    A path leaves each site that it visits, but the one that it ends in: the last stage
    there hands on to another site, or to a stage in several sites, which only one site
    is left by. It may hand on to that inside its node.
    """

    def __init__(
        self,
        table: StageTable,
        coupling: Coupling,
        limits: Limits,
        rows: Rows,
        segments: Segments,
        crossing: Crossing,
    ) -> None:
        """Bind the segments that the coupling of a box allows.

        Where there are several sites, they are visited one after another.
        """
        super().__init__(table, coupling, limits, rows)
        self._sites = crossing.sites
        degrees = coupling.arcs.shared[:, 1]
        #: The most units of replicas of stages in several sites; and whether that is
        #: less than it is of others.
        self._across = np.full(len(degrees), NO_LIMIT, np.int64)
        if crossing.units is not None:
            each = [floor(2 * t * crossing.units) for t in range(coupling.widest + 1)]
            self._across = np.minimum(np.array(each)[degrees], NO_LIMIT)
        self._limited = bool((self._across < coupling.shared_light).any())
        self._segments = segments
        self._visits = np.minimum(table.nodes, table.layers)
        # Any run may hold the first layer and the last: what holding it earns is that
        # of the largest run of its length.
        first, last = table.runs.spans.T
        largest = np.zeros(table.layers + 1, np.int64)
        np.maximum.at(largest, last - first, table.sync.high)
        self.high = largest[last - first]

    def _segment_price(self, prices: Prices) -> "_Paid":
        """Return what segments and their stages cost at some prices."""
        known = self._segments
        paid = np.ascontiguousarray(self._paid(prices)[:, :, known.run])
        found = kernels.segment_price(
            *(known.kind, known.gpus, known.begin, known.used, paid, known.light)
        )
        whole = found[np.arange(len(known.gpus)), known.gpus]
        gpu = np.array(prices.gpu)[known.kind] * known.gpus
        price = np.minimum(
            np.where(whole < HALF, whole, 0) + gpu[:, None], self._limit()
        )
        return _Paid(price, paid, found)

    def least(self, prices: Prices, time: int, lows: Whole, highs: Whole) -> Whole:
        """Return the least cost of a path, by interval."""
        each = (self._sweep(prices, time, lows, highs, side) for side in self._sides)
        found: Whole = np.minimum.reduce([sweep.found for sweep in each])
        return found

    @property
    def _sides(self) -> tuple[_Side, ...]:
        """Return the cases that paths are in."""
        found = [_Side.NONE]
        if len(self.arcs.shared):
            lightest = int(self.table.sync.low[self._segments.run[1]])
            if self._limited:
                found.append(_Side.INSIDE)
            if int(self._across.max()) >= lightest:
                found.append(_Side.ACROSS)
        return tuple(found)

    def _sweep(
        self, prices: Prices, time: int, lows: Whole, highs: Whole, side: _Side
    ) -> "_Sweep":
        layers, known = self.layers, self._segments
        scales, ways = self.runs * lows, known.ways
        nowhere = np.full((len(lows), ways, layers + 1), BIG, np.int64)
        nowhere[:, 0, 0] = 0

        def begun(kinds: _Kinds, numbers: int) -> Whole:
            fronts = self._kept_fronts(prices, kinds)
            return kernels.repeated(time, scales, highs, *fronts, numbers)

        across = side is _Side.ACROSS
        inside = side is not _Side.NONE and self._limited
        numbers = max(1, len(self._sites) - 1)
        start = begun(None, numbers) if across else nowhere[:, None]
        us, rows = known.us(highs, near=side is not _Side.NONE)
        price = self._kept_price(prices).segment

        def visited(visits: Whole, begin: Whole, entries: int) -> tuple[Whole, Whole]:
            steps = int(visits.sum()) + 1
            kept = np.zeros((entries, steps, ways, layers + 1), np.int64)
            found = kernels.least_unordered(
                time, scales, us, rows, price, known.kind, visits, begin, kept
            )
            return found, kept

        last = us[rows[-1]]
        if not self._sites:
            found, kept = visited(self._visits, start[:, 0], 1)
            walk = _Walk(self._visits, kept[0], start[-1], layers, None)
            return _Sweep(found, last, [walk], kept[:, -1])
        # By sites that may still be left by a stage in several sites.
        tables = [*np.ascontiguousarray(start[:, :, :2].swapaxes(0, 1))]
        if across:
            tables = [np.full_like(tables[0], BIG), *tables]
        walks = list[_Walk]()
        for site in self._sites:
            visits = np.zeros_like(self._visits)
            visits[[*site.kinds]] = self._visits[[*site.kinds]]
            first = nowhere
            if inside:
                first = np.minimum(nowhere, begun(site.kinds, 1)[:, 0])
            _, kept = visited(visits, first, len(lows))
            before = np.stack([table[-1] for table in tables])
            walks.append(_Walk(visits, kept[-1], before, site.most, site.kinds))
            far = np.ascontiguousarray(kept[:, -1, [2, 1]])
            near = kept[:, -1, :2].copy()
            near[:, 1] = BIG
            left = [kernels.joined(table, near, site.most) for table in tables[1:]]
            tables = [kernels.joined(table, far, site.most) for table in tables]
            for table, other in zip(tables, left, strict=False):
                np.minimum(table, other, out=table)
        best = np.min([table[:, 1, layers] for table in tables], axis=0)
        return _Sweep(best, last, walks, np.stack([table[-1] for table in tables]))

    def _able(self, kinds: _Kinds) -> Flags:
        able = super()._able(kinds)
        if kinds is None:
            able &= self.table.sync.low[:, None] <= self._across
        return able

    def _kept_price(self, prices: Prices) -> "_Paid":
        if self._price is None or self._price[0] != prices:
            self._price = prices, self._segment_price(prices)
        return self._price[1]

    def _kept_fronts(self, prices: Prices, kinds: _Kinds) -> tuple[Whole, Whole]:
        """Return fronts of stages in several nodes by [way, layers, i]."""
        if self._front is None or self._front[0] != prices:
            self._front = prices, {}
        kept = self._front[1]
        if kinds not in kept:
            us, cost = self._fronts(prices, kinds)
            given = [(us, cost), (us, cost)]
            if self._segments.ways > 2:
                given.append(self._fronts(prices, kinds, far=True))
            shape = self._segments.ways, self.layers + 1
            most = max(us.shape[2] for us, _ in given)
            found = np.full((2, *shape, most), BIG, np.int64)
            for way, each in enumerate(given):
                for table, side in zip(found, each, strict=True):
                    runs = self._runs(way)
                    table[way, 1:, : side.shape[2]] = side[0, runs[1:]]
            kept[kinds] = found[0], found[1]
        return kept[kinds]

    def _runs(self, way: int) -> Whole:
        """Return the runs of stages that end so, by layers."""
        return self._segments.ended if way == 1 else self._segments.run

    _price: tuple[Prices, "_Paid"] | None = None
    _front: tuple[Prices, dict[_Kinds, tuple[Whole, Whole]]] | None = None

    def column(
        self, number: int, prices: Prices, time: int, span: tuple[int, int]
    ) -> Column | None:
        """Return the cheapest path of an interval as a column of part `number`."""
        times, known = self.arcs.times, self._segments
        lows, highs = times[[span[0]]], times[[span[1] - 1]]
        each = [self._sweep(prices, time, lows, highs, side) for side in self._sides]
        best = min(each, key=lambda sweep: int(sweep.found[0]))
        if best.found[0] >= HALF:
            return None
        paid = self._kept_price(prices)
        scale = self.runs * int(lows[0])
        cost = (
            time * np.minimum(best.us, BIG // max(1, time))
            + scale * paid.segment[:, None]
        )
        cost = np.where(best.us < HALF, np.minimum(cost, MOST), BIG)
        uses = np.zeros(2 * len(self.rows.gpus) + 3)
        uses[-2] = 1.0
        segments, begun = self._way(best, cost)
        took = 0
        for segment, ended, layers in segments:
            took += int(best.us[segment, ended, layers])
            for arc, y in self._kept_division(segment, layers, paid):
                k = int(known.gpus[segment])
                self._use_run(uses, int(known.run[y]), arc, k)
        for one in begun:
            took += self._use_repeated(uses, prices, time, scale, int(highs[0]), one)
        return Column(number, span, tuple(uses), took, int(highs[0]))

    def _use_run(self, uses: Array, run: int, arc: int, k: int) -> None:
        first, last = self.table.runs.spans[run].tolist()
        self._use(uses, Placed(first, last, arc, k))

    def _use_repeated(
        self,
        uses: Array,
        prices: Prices,
        time: int,
        scale: int,
        high: int,
        begun: "_Begun",
    ) -> int:
        """Add what stages in several nodes use, and return how long they take."""
        us, cost = self._kept_fronts(prices, begun.kinds)
        able = us <= high
        paid = time * np.where(able, us, 0) + scale * cost
        paid = np.where(able, np.minimum(paid, MOST), BIG)
        fronts, least = paid.argmin(2), paid.min(2)
        took, (n, end, left), start = 0, begun.at, begun.start
        numbers = len(start)
        while left:
            now = int(start[n, end, left])
            before = {m for m in range(numbers) if min(m + 1, numbers - 1) == n}
            for m, way in product([*before, -1], {0, end}):
                rest = np.full(left, BIG)  # after 1, 2, ... layers less
                if m >= 0:
                    rest[:-1] = start[m, end - way, left - 1 : 0 : -1]
                elif n == 0 and way == end:  # the first of them
                    rest[-1] = 0
                more = least[way, 1 : left + 1]
                same = (rest < HALF) & (more < HALF) & (rest + more == now)
                if same.any():
                    y = int(same.argmax()) + 1
                    slowest = int(us[way, y, fronts[way, y]])
                    each = self._kept_shared_use(prices, (way, y), slowest, begun.kinds)
                    uses += each
                    took, n, left, end = took + slowest, m, left - y, end - way
                    break
            else:
                raise InternalError("a path has no stage in several nodes")
        return took

    def _kept_shared_use(
        self, prices: Prices, stage: tuple[int, int], slowest: int, kinds: _Kinds
    ) -> Array:
        """Return what a stage in several nodes uses, kept while prices are the same.

        A `stage` is known by its way and layers.
        """
        if self._shared_uses is None or self._shared_uses[0] != prices:
            self._shared_uses = prices, {}
        kept = self._shared_uses[1]
        if (stage, slowest, kinds) not in kept:
            run = int(self._runs(stage[0])[stage[1]])
            far = stage[0] == 2
            items = self.shared_items(prices, 0, run, slowest, kinds, far=far)
            replicas = tuple(tuple(self.arcs.shared[x].tolist()) for x in items)
            first, last = self.table.runs.spans[run].tolist()
            found = np.zeros(2 * len(self.rows.gpus) + 3)
            self._use(found, Placed(first, last, -1, 0, replicas, tuple(items)))
            kept[stage, slowest, kinds] = found
        return kept[stage, slowest, kinds]

    _shared_uses: (
        tuple[Prices, dict[tuple[tuple[int, int], int, _Kinds], Array]] | None
    ) = None

    def _kept_division(
        self, segment: int, layers: int, paid: "_Paid"
    ) -> list[tuple[int, int]]:
        """Return the cheapest stages of a segment, kept while prices are the same."""
        if self._divided is None or self._divided[0] is not paid:
            self._divided = paid, {}
        kept = self._divided[1]
        if (segment, layers) not in kept:
            kept[segment, layers] = self._division(segment, layers, paid)
        return kept[segment, layers]

    _divided: tuple["_Paid", dict[tuple[int, int], list[tuple[int, int]]]] | None = None

    def _division(
        self, segment: int, layers: int, paid: "_Paid"
    ) -> list[tuple[int, int]]:
        """Return the cheapest stages of a segment: their arcs and numbers of layers."""
        known = self._segments
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

    def _way(
        self, sweep: "_Sweep", cost: Whole
    ) -> tuple[list[tuple[int, int, int]], list["_Begun"]]:
        """Return the segments of the cheapest path, and what walks begin with.

        Each segment by number, the way in which it ends, and layers.
        """
        found: list[tuple[int, int, int]] = []
        begun: list[_Begun] = []
        x, end = self.layers, 1
        after, budgets = sweep.after, len(sweep.after)
        budget = int(after[:, end, x].argmin())
        for walk in reversed(sweep.walks):
            if not self._sites:
                found, end, x = self._path(walk, cost, end, x)
                return found, [_Begun(walk.before, (0, end, x), None)] if x else []
            now, after, inside = after[budget, end, x], walk.before, walk.kept[-1]
            stays = [k for k in (budget, budget + 1) if k < budgets]
            same = [k for k in stays if after[k, end, x] == now]
            if same:
                budget = same[0]
                continue
            sides = [(budget, 2, 0), (budget, 1, 1), (budget + 1, 0, 0)]
            sides = [side for side in sides if side[0] < budgets and side[2] <= end]
            for y, (k, way, ended) in product(range(1, min(walk.most, x) + 1), sides):
                rest, own = after[k, end - ended, x - y], inside[way, y]
                if max(rest, own) < HALF and rest + own == now:
                    some, way, left = self._path(walk, cost, way, y)
                    found += some
                    if left:
                        start = walk.kept[:1]
                        begun.append(_Begun(start, (0, way, left), walk.kinds))
                    budget, x, end = k, x - y, end - ended
                    break
            else:
                raise InternalError("a path has no site")
        if x:  # stages in several sites
            begun.append(_Begun(after[1:], (budget - 1, end, x), None))
        return found, begun

    def _path(
        self, walk: "_Walk", cost: Whole, end: int, x: int
    ) -> tuple[list[tuple[int, int, int]], int, int]:
        """Return the segments of so many layers, and what they go on from."""
        kept, found = walk.kept, []
        kinds = np.repeat(np.arange(len(walk.visits)), walk.visits)
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


class _Walk(NamedTuple):
    """Visits of the nodes of one site, or of all: for the last interval.

    How many nodes of each class are visited, least costs after each visit, those of
    paths before, and the most layers here. Stages in several nodes that it begins with
    are on nodes of these `kinds`.
    """

    visits: Whole
    kept: Whole
    before: Whole
    most: int
    kinds: _Kinds


class _Begun(NamedTuple):
    """Stages in several nodes on nodes of these `kinds`, that a path begins with.

    Their least costs by [number, way, layers], and which of these.
    """

    start: Whole
    at: tuple[int, int, int]
    kinds: _Kinds


class _Sweep(NamedTuple):
    """Least costs by interval; of the last one, times of segments and potentials.

    Potentials are by [sites that may be left by stages in several, ended, layers].
    """

    found: Whole
    us: Whole
    walks: list[_Walk]
    after: Whole
