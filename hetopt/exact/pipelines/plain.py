"""The numpy twin of the kernels: the same numbers, all intervals at once.

It stands where nothing is compiled, and for tests.
"""

from functools import partial

import numpy as np

from ...stages.classes import Whole
from .kernels import BIG, HALF, MOST, Costs, Graph


def least(
    graph: Graph, costs: Costs, lows: Whole, highs: Whole, scale: int, kept: Whole
) -> Whole:
    """Return the least cost of a path, by interval; potentials are `kept`."""
    found = np.full((len(lows), *kept.shape[1:]), BIG, np.int64)
    cost = _Suffixes(graph, costs, scale * lows, highs, found).least()
    if len(kept) == len(lows):
        kept[:] = found
    return cost


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
                    paid = np.minimum(
                        self.prices * (costs_gpu(self.costs, c) * k), MOST
                    )
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


def costs_gpu(costs: Costs, c: int) -> int:
    """Return the price of a GPU of a class."""
    return int(costs.gpu[c])
