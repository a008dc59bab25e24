"""Shortest paths over stages: in the compiled core, or by numpy, all intervals at once.

A path goes through the layers from the last to the first. A *suffix* of it begins at a
layer `l` with `p` stages in all (capped). It is in one of these states:

    site                 its first stage lies in one node of that site
    several              its first stage lies in several nodes
    state[c, k] + u      its first stages use u GPUs of a node of class c, of which the
                         pipeline uses k in all

The least costs of suffixes by state are the *potentials*, by [state, p, l]: of sites
first, then of `several`, then of chains of stages in a node. All costs are clamped to
`MOST`, which may only lower them; a sum at or above `HALF` stands for "there is none".
No path is worth as much, whatever goes before: `Pricing.most_prices` sees to it. Times
of runs that begin at one layer must not fall as runs grow, but at the last layer.
"""

from collections.abc import Iterator
from functools import partial
from typing import NamedTuple

import numpy as np

from ...stages.classes import NEVER, Whole
from ...stages.memory import Flags
from .compiling import compiled, is_compiled

BIG, HALF, MOST = 1 << 60, 1 << 58, 1 << 55


class Graph(NamedTuple):
    """Arcs of one size of micro-batches in one box, as kernels read them.

    Arcs of class c are `begin[c]` to `begin[c + 1] - 1`, in ascending order of `gpus`.
    Times in us are by [arc, p, first, last]: `inner` where the next stage lies in the
    same node, `outer` where it lies in another one, `far` in another site (empty where
    there is one site). `fits[arc, p, first]` is where the longest run ends that fits,
    `light[arc, k, first]` the longest that is light enough where the pipeline uses k
    GPUs of the node. `site` is by class; `state[c, k] + u` numbers the states with u of
    k GPUs left: where k makes no difference, those of all k are the same.
    """

    begin: Whole
    gpus: Whole
    inner: Whole
    outer: Whole
    far: Whole
    fits: Whole
    light: Whole
    sites: int
    site: Whole
    node_gpus: Whole
    state: Whole
    run: Whole  # [first, last]


class Costs(NamedTuple):
    """A graph at prices.

    A path costs `time` for each us, and for each us of the slowest stage what its GPUs
    and arcs cost: `gpu[c]`, `arc[arc, k, first, last]`. Stages in several nodes have
    fronts of times in us and least costs, by [p, run, i], ascending times.
    """

    time: int
    gpu: Whole
    arc: Whole
    front_us: Whole
    front_cost: Whole


def least(
    graph: Graph, costs: Costs, lows: Whole, highs: Whole, scale: int, kept: Whole
) -> Whole:
    """Return the least cost of a path, by interval of the slowest stage.

    No stage takes more than `highs[g]`; prices count `scale * lows[g]` times.
    Potentials are `kept`, by [interval, state, p, l], where it has so many entries.
    """
    found = np.empty(len(lows), np.int64)
    if is_compiled():
        compiled("least", graph, costs, lows, highs, scale, kept, found)
        return found
    tables = np.full((len(lows), *kept.shape[1:]), BIG, np.int64)
    found[:] = _Suffixes(graph, costs, scale * lows, highs, tables).least()
    if len(kept) == len(lows):
        kept[:] = tables
    return found


class _Suffixes:
    """Potentials of all intervals, from the last layer to the first."""

    def __init__(
        self, graph: Graph, costs: Costs, prices: Whole, highs: Whole, kept: Whole
    ) -> None:
        self.graph, self.costs = graph, costs
        self.prices, self.highs = prices, highs
        sites = graph.sites
        self.node, self.across = kept[:, :sites], kept[:, sites]
        self.chain = kept[:, sites + 1 :]
        self.layers, self.places = graph.run.shape[0] - 1, kept.shape[2]
        self.several = costs.front_us.shape[2] > 0

    def least(self) -> Whole:
        """Fill in the tables and return the least cost of a path by interval."""
        graph, node = self.graph, self.node
        node[:, :, 0, self.layers] = 0
        whole = range(len(graph.node_gpus))
        for first in range(self.layers - 1, -1, -1):
            for p in range(self.places):
                for c in whole:
                    most = int(graph.node_gpus[c])
                    for k in range(1, most + 1):
                        if k == most or graph.state[c, k] != graph.state[c, most]:
                            self._chain(c, k, p, first)
                if self.several:
                    self._across(p, first)
            for c in whole:
                site = graph.site[c]
                for k in range(1, int(graph.node_gpus[c]) + 1):
                    found = self.chain[:, graph.state[c, k] + k, :, first]
                    paid = np.minimum(self.prices * (int(self.costs.gpu[c]) * k), MOST)
                    found = np.where(found < HALF, found + paid[:, None], BIG)
                    into = node[:, site, :, first]
                    np.minimum(into, found, out=into)
        begin = np.minimum(node[..., 0].min((1, 2)), self.across[..., 0].min(1))
        found = np.asarray(begin, np.int64)
        return found

    def _added(self, us: Whole, price: Whole, rest: Whole) -> Whole:
        """Return costs of arcs and of what follows: [interval, arc], `BIG` if none."""
        cost = self.costs.time * us + self.prices[:, None] * price
        able = (us <= self.highs[:, None]) & (rest < HALF)
        return np.where(able, np.minimum(cost, MOST) + rest, BIG)

    def _lower(
        self, into: Whole, price: Whole, us: Whole, rest: Whole, some: slice
    ) -> None:
        """Lower potentials by arcs to `some` layers, on which `rest` follows."""
        if some.start < some.stop:
            found = self._added(us[some], price[some], rest[:, some])
            np.minimum(into, found.min(1), out=into)

    def _across(self, p: int, first: int) -> None:
        after = min(p + 1, self.places - 1)
        last = np.arange(first + 1, self.layers + 1)
        if self.places > 1:
            last = last[(last == self.layers) == (p == 0)]
        if not len(last):
            return
        rest = np.minimum(self.node[:, :, p].min(1), self.across[:, p])[:, last]
        run = self.graph.run[first, last]
        us, price = self.costs.front_us[p, run], self.costs.front_cost[p, run]
        count = us.shape[1]
        some = self._added(us.ravel(), price.ravel(), np.repeat(rest, count, axis=1))
        into = self.across[:, after, first]
        np.minimum(into, some.min(1), out=into)

    def _chain(self, c: int, k: int, p: int, first: int) -> None:
        graph, layers = self.graph, self.layers
        after, site, state = (
            min(p + 1, self.places - 1),
            graph.site[c],
            graph.state[c, k],
        )
        for left in range(1, k + 1):
            into = self.chain[:, state + left, after, first]
            for arc in range(graph.begin[c], graph.begin[c + 1]):
                used = graph.gpus[arc]
                if used > left:
                    break
                end = min(graph.fits[arc, p, first], graph.light[arc, k, first])
                price = self.costs.arc[arc, k, first]
                inner = graph.inner[arc, p, first]

                lower = partial(self._lower, into, price)

                if end == layers:
                    if used == left:
                        rest = self.node[:, site, p]
                        lower(inner, rest, slice(layers, layers + 1))
                    end -= 1
                on = slice(first + 1, end + 1)
                if used < left:
                    lower(inner, self.chain[:, state + left - used, p], on)
                    continue
                lower(graph.outer[arc, p, first], self.node[:, site, p], on)
                if self.several:
                    lower(inner, self.across[:, p], on)
                for other in range(self.node.shape[1]):
                    if other != site:
                        lower(graph.far[arc, p, first], self.node[:, other, p], on)


def fronts(
    order: Whole, us: Whole, samples: Whole, cost: Whole, able: Flags, size: int
) -> tuple[Whole, Whole]:
    """Return the least costs of replicas that share a micro-batch, by their slowest.

    Both are by [p, run, i], ascending times and falling costs; `BIG` where there are no
    more. Replicas are by [p, run, i] in `order` of their times `us`; `cost` and `able`
    are by [run, replica]. A knapsack over samples grows by one replica at a time.
    """
    front_us, front_cost = np.empty((2, *order.shape), np.int64)
    if is_compiled():
        compiled("fronts", order, us, samples, cost, able, size, front_us, front_cost)
        return front_us, front_cost
    places, runs, count = order.shape
    front_us[:], front_cost[:] = BIG, BIG
    least_cost = np.full((size + 1, places, runs), BIG, np.int64)
    least_cost[0] = 0
    number = np.zeros((places, runs), np.int64)
    p, run = np.indices((places, runs))
    for i in range(count):
        item = order[..., i]
        took, paid, own = us[p, run, item], cost[run, item], samples[item]
        usable = (took < NEVER) & able[run, item]
        before = least_cost[size].copy()
        for s in range(1, size + 1):
            rest = least_cost[np.maximum(s - own, 0), p, run]
            possible = usable & (own <= s) & (rest < HALF)
            found = np.where(possible, rest + paid, BIG)
            least_cost[s] = np.minimum(least_cost[s], found)
        at = np.nonzero(least_cost[size] < before)
        front_us[(*at, number[at])] = took[at]
        front_cost[(*at, number[at])] = least_cost[size][at]
        number[at] += 1
    return front_us, front_cost


def _sums(rest: Whole, more: Whole) -> Whole:
    """Return costs of what is added to others; `BIG` where one is missing."""
    found: Whole = np.where((rest < HALF) & (more < HALF), rest + more, BIG)
    return found


def _stages(
    left: int, kind: Whole, gpus: Whole, begin: Whole, used: Whole, light: Whole
) -> Iterator[tuple[int, int, int, Whole]]:
    """Yield stages that use up to `left` GPUs: the arc, its GPUs and layers.

    The last value numbers the segments that the stage may be the first one of.
    """
    for c in range(len(begin) - 1):
        mine = np.flatnonzero((kind == c) & (gpus >= left))
        for arc in range(begin[c], begin[c + 1]) if len(mine) else ():
            most = light[arc, gpus[mine]]
            for y in range(1, int(most.max()) + 1) if used[arc] <= left else ():
                yield arc, int(used[arc]), y, mine[most >= y]


def segment_us(
    highs: Whole,
    kind: Whole,
    gpus: Whole,
    begin: Whole,
    used: Whole,
    inner: Whole,
    exits: Whole,
    light: Whole,
) -> Whole:
    """Return least times of equal layers on GPUs of a node: [interval, segment, e, x].

    A *segment* is all that a pipeline does in one node of class `kind` on `gpus` GPUs.
    Its last stage hands on to another node (0), or ends the pipeline (1), or hands on
    to another site (2), if there are any. Times of stages are by [arc, layers], those
    of last ones, `exits`, by [e, arc, layers]; stages hold up to `light[arc, GPUs]`
    layers.
    """
    found = np.empty((len(highs), len(gpus), *exits.shape[::2]), np.int64)
    if is_compiled():
        given = highs, kind, gpus, begin, used, inner, exits, light
        compiled("segment_us", *given, found)
        return found
    layers, most = inner.shape[1] - 1, int(gpus.max(initial=0))
    light = np.minimum(light, layers)
    shape = most + 1, len(gpus), len(highs), len(exits), layers + 1
    best = np.full(shape, BIG, np.int64)
    for left in range(1, most + 1):
        for arc, own, y, some in _stages(left, kind, gpus, begin, used, light):
            if own == left:
                us = exits[:, arc, y]
                last = np.where(us <= highs[:, None], us, BIG)
                best[left, some, :, :, y] = np.minimum(best[left, some, :, :, y], last)
                continue
            first = np.where(inner[arc, y] <= highs, inner[arc, y], BIG)
            rest = best[left - own, some, :, :, : layers + 1 - y]
            more = _sums(rest, first[:, None, None])
            best[left, some, :, :, y:] = np.minimum(best[left, some, :, :, y:], more)
    found[:] = best[gpus, np.arange(len(gpus))].swapaxes(0, 1)
    return found


def segment_price(
    kind: Whole, gpus: Whole, begin: Whole, used: Whole, price: Whole, light: Whole
) -> Whole:
    """Return the least prices of stages in a node: [segment, GPUs, layers].

    `price` is by [arc, GPUs of the segment, layers], and may be negative.
    """
    most = int(gpus.max(initial=0))
    found = np.empty((len(gpus), most + 1, price.shape[2]), np.int64)
    if is_compiled():
        compiled("segment_price", kind, gpus, begin, used, price, light, found)
        return found
    layers = price.shape[2] - 1
    light = np.minimum(light, layers)
    best = np.full((most + 1, len(gpus), layers + 1), BIG, np.int64)
    best[0, :, 0] = 0
    for left in range(1, most + 1):
        for arc, own, y, some in _stages(left, kind, gpus, begin, used, light):
            rest = best[left - own, some, : layers + 1 - y]
            more = _sums(rest, price[arc, gpus[some], y][:, None])
            best[left, some, y:] = np.minimum(best[left, some, y:], more)
    found[:] = best.swapaxes(0, 1)
    return found


def least_unordered(
    time: int,
    scales: Whole,
    us: Whole,
    rows: Whole,
    price: Whole,
    kind: Whole,
    visits: Whole,
    start: Whole,
    kept: Whole,
) -> Whole:
    """Return the least cost of a path through equal layers, by interval.

    Paths go on from `start[g, e, layers]`: one that is not over yet (0), is over (1),
    or has left its site (2), if there are several. Segments cost `time` for each us and
    `scales[g]` times their `price`, by [segment, layers]; times of the interval g are
    `us[rows[g]]`, by [segment, e, layers]. Nodes are visited class by class, each once:
    `visits[c]` of class c. `kept[g, n, e, layers]` are the least costs after n visits,
    where it has an entry an interval.
    """
    found = np.empty(len(rows), np.int64)
    if is_compiled():
        given = time, scales, us, rows, price, kind, visits, start, kept
        compiled("least_unordered", *given, found)
        return found
    us, layers = us[rows], us.shape[3] - 1
    paid = scales[:, None, None, None] * price[:, None]
    able = us < HALF
    cost = np.where(able, np.minimum(time * np.where(able, us, 0) + paid, MOST), BIG)
    table = start
    tables = [table]
    for c in np.repeat(np.arange(len(visits)), visits).tolist():
        one = cost[:, kind == c].min(1, initial=BIG)
        after = table.copy()
        for y in range(1, layers + 1):
            into, before = after[..., y:], table[..., : layers + 1 - y]
            np.minimum(into, _sums(before, one[:, :1, y, None]), out=into)
            over = _sums(before[:, :1], one[:, 1:, y, None])
            np.minimum(into[:, 1:], over, out=into[:, 1:])
        table = after
        tables.append(table)
    if len(kept) == len(us):
        kept[:] = np.stack(tables, 1)
    else:  # the last interval overwrites all others
        kept[0] = [table[-1] for table in tables]
    found[:] = table[:, 1, layers]
    return found


def repeated(
    time: int,
    scales: Whole,
    highs: Whole,
    front_us: Whole,
    front_cost: Whole,
    numbers: int,
) -> Whole:
    """Return what stages in several nodes alone cost: [interval, n, e, layers].

    n + 1 of them, or as many and more where n is the last of these `numbers`. They are
    of equal layers, and one of them may end the pipeline (1) or hand on to another site
    (2); fronts are by [e, layers, i].
    """
    found = np.empty((len(highs), numbers, *front_us.shape[:2]), np.int64)
    if is_compiled():
        compiled("repeated", time, scales, highs, front_us, front_cost, found)
        return found
    layers = front_us.shape[1] - 1
    able = front_us <= highs[:, None, None, None]
    paid = time * np.where(able, front_us, 0)
    paid = paid + scales[:, None, None, None] * front_cost
    each = np.where(able, np.minimum(paid, MOST), BIG)
    one = each.min(3, initial=BIG)
    one[..., 0] = BIG
    found[:] = BIG
    found[:, 0] = one
    for x in range(2, layers + 1):
        before, last = found[..., x - 1 : 0 : -1], one[:, None, :, 1:x]
        on = _sums(before, last[:, :, :1]).min(3)
        over = _sums(before[:, :, :1], last[:, :, 1:]).min(3)
        on[:, :, 1:] = np.minimum(on[:, :, 1:], over)
        for n in range(numbers):
            into = found[:, min(n + 1, numbers - 1), :, x]
            np.minimum(into, on[:, n], out=into)
    return found


def joined(before: Whole, inside: Whole, most: int) -> Whole:
    """Return least costs of paths that go on in a site, or do not visit it.

    All are by [interval, ended, layers]; a path holds up to `most` layers in the site,
    `inside`.
    """
    found = np.empty(before.shape, np.int64)
    if is_compiled():
        compiled("joined", before, inside, most, found)
        return found
    found[:] = before
    layers = before.shape[2] - 1
    for y in range(1, min(most, layers) + 1):
        for ended in range(2):
            own = inside[:, ended, y]
            for end in range(2 - ended):
                rest = before[:, end, : layers + 1 - y]
                into = found[:, end + ended, y:]
                np.minimum(into, _sums(rest, own[:, None]), out=into)
    return found
