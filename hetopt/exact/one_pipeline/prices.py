"""Least pipelines when GPUs have prices: a bound on the sum of stage times.

With a price for each GPU by class of nodes, the least priced path over the layers,
from the last stage to the first, less the price of all GPUs, is a lower bound on
sum_j tau_j of every pipeline (Lagrange). Prices are integers, so every bound is
exact. An option whose best path through it is above a limit is in no pipeline below it.
"""

from typing import NamedTuple

import numpy as np

from ..pipelines.kernels import compiled
from .cluster_tables import BIG, Array, ClusterTables
from .kinds import Kinds
from .options import Options


class Moves(NamedTuple):
    """Pairs of a kind with a state, sorted by kind, and what each takes to hand on.

    `starts` [kind + 1] says where the pairs of each kind begin, one or more; `shared`
    and `apart` [pair, state] are the hops to a stage in that state: with a node in
    common, and without.
    """

    kind: Array
    state: Array
    shared: Array
    apart: Array
    starts: Array


class Prices:
    """Shortest paths over the stage options of one micro-batch size.

    The `cell` of an option is its last layer, first layer and kind, as one number;
    `shared` and `apart` are its least times with a hop: with a node in common, and
    without.
    """

    def __init__(self, cluster: ClusterTables, kinds: Kinds, options: Options) -> None:
        self.options, self.layers = options, cluster.layers
        self.use = np.array(
            [[p.t * m for m in p.replicas] for p in kinds.patterns], np.int64
        )
        self.gpus = np.array(cluster.gpus, np.int64)
        pair_kind = np.array([kind for kind, _ in kinds.pairs], np.int64)
        pair_state = np.array([state for _, state in kinds.pairs], np.int64)
        self.kinds, self.states = len(kinds.kinds), len(kinds.states)
        starts = np.searchsorted(pair_kind, np.arange(self.kinds + 1))
        self.moves = Moves(pair_kind, pair_state, *kinds.hops, starts)
        # Least hops of a kind: a stage that is slower with them is too slow anyway.
        least = [self._least(self.moves.shared), self._least(self.moves.apart[:, 1:])]
        end, us = options.last == self.layers, options.compute_us
        self.shared, self.apart = (
            us + np.where(end, last_hop, hops[options.kind])
            for hops, last_hop in zip(least, (BIG, 0), strict=True)
        )
        self.least_us = np.minimum(self.shared, self.apart)
        cell = options.last * (self.layers + 1) + options.first
        self.cell = cell * self.kinds + options.kind

    def _least(self, hops: Array) -> Array:
        found = np.full(self.kinds, BIG, np.int64)
        if hops.shape[1]:
            np.minimum.at(found, self.moves.kind, hops.min(axis=1))
        return found

    def within(self, options: Array, slowest: int, sync: int) -> Array:
        """Return the options that a pipeline with these maxima may have."""
        keep = self.least_us[options] <= slowest
        keep &= self.options.sync_us[options] <= sync
        return options[keep]


class Path:
    """Shortest paths to every cut, for one choice of options and prices.

    `bound_us` is that of the shortest path over all layers. `value` [cut, state] is the
    least price of the layers before each cut, by the state behind it; BIG for none.
    """

    def __init__(
        self, owner: Prices, options: Array, slowest: int, prices: Array
    ) -> None:
        """Find paths over `options`, numbers in ascending order, with GPUs at `prices`.

        No stage is slower than `slowest` with its least hop.
        """
        self.owner, self.options, self.slowest = owner, options, slowest
        self.paid, self._all_paid = owner.use @ prices, int(prices @ owner.gpus)
        side, moves, rows = owner.layers + 1, owner.moves, owner.options
        # [last, first, kind]: a cell's least priced option, and the rest of a path.
        shape = side, side, owner.kinds
        self.shared, self.apart, self.through = np.full((3, *shape), BIG, np.int64)
        self.value = np.full((side, owner.states), BIG, np.int64)
        given = options, owner.cell, rows.compute_us, rows.pattern, self.paid
        found = self.shared, self.apart, self.value, self.through
        compiled("paths", given, owner.shared, owner.apart, slowest, moves[:4], found)
        best = int(self.value[owner.layers, 0])
        self.bound_us = best - self._all_paid if best < BIG else BIG

    def used(self) -> Array:
        """GPUs by class of nodes of one least path."""
        owner, rows = self.owner, self.owner.options
        used = np.zeros_like(owner.gpus)
        last, state = owner.layers, 0
        while last:
            pair, joined = self._pair_onto(last, state)
            kind, own = owner.moves.kind[pair], owner.moves.state[pair]
            cells = self.shared if joined else self.apart
            costs = cells[last, :last, kind]
            first = int((costs + self.value[:last, own]).argmin())
            option = self._option(last, first, int(kind), joined=joined)
            used += owner.use[rows.pattern[option]]
            last, state = first, int(own)
        return used

    def _pair_onto(self, last: int, state: int) -> tuple[int, bool]:
        """Return the pair of the stage before a cut, and whether it shares a node."""
        moves = self.owner.moves
        before = self.value[:last, moves.state]
        one, two = (
            (cells[last, :last][:, moves.kind] + before).min(axis=0) + hops[:, state]
            for cells, hops in ((self.shared, moves.shared), (self.apart, moves.apart))
        )
        joined = bool(one.min() <= two.min())
        return int((one if joined else two).argmin()), joined

    def _option(self, last: int, first: int, kind: int, *, joined: bool) -> int:
        owner, rows = self.owner, self.owner.options
        cell = (last * (owner.layers + 1) + first) * owner.kinds + kind
        numbers = np.searchsorted(owner.cell, (cell, cell + 1))
        some = self.options[slice(*np.searchsorted(self.options, numbers))]
        fits = (owner.shared if joined else owner.apart)[some] <= self.slowest
        priced = rows.compute_us[some] + self.paid[rows.pattern[some]]
        return int(some[int(np.where(fits, priced, BIG).argmin())])

    def below(self, limit: int) -> Array:
        """Return the options that a pipeline of at most `limit` may have."""
        if self.bound_us >= BIG:
            return self.options[:0]
        some, rows = self.options, self.owner.options
        least = rows.compute_us[some] + self.paid[rows.pattern[some]]
        least += self.through.reshape(-1)[self.owner.cell[some]]
        return self.options[least <= limit + self._all_paid]
