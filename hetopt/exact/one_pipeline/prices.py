"""Least pipelines when GPUs have prices: a bound on the sum of stage times.

With a price for each GPU by class of nodes, the least priced path over the layers,
from the last stage to the first, less the price of all GPUs, is a lower bound on
sum_j tau_j of every pipeline (Lagrange). Prices are integers, so every bound is
exact. An option whose best path through it is above a limit is in no pipeline below it.
"""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from . import loops
from .cluster_tables import BIG, Array, ClusterTables
from .kinds import Kinds
from .loops import Columns, Moves
from .options import Options


@dataclass(frozen=True)
class Path:
    """A shortest path: its bound, and the numbers of the options that remain.

    `used()` tells the GPUs that it uses, by class of nodes.
    """

    bound_us: int
    used: Callable[[], Array]
    kept: Array


class Prices:
    """Shortest paths over the stage options of one micro-batch size."""

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
        shared, apart = (
            us + np.where(end, last_hop, hops[options.kind])
            for hops, last_hop in zip(least, (BIG, 0), strict=True)
        )
        self.least_us = np.minimum(shared, apart)
        cell = options.last * (self.layers + 1) + options.first
        cell = cell * self.kinds + options.kind
        self.columns = Columns(cell, us, options.pattern, shared, apart)

    def _least(self, hops: Array) -> Array:
        """Least hop of each kind, over its pairs and all states."""
        found = np.full(self.kinds, BIG, np.int64)
        if hops.shape[1]:
            np.minimum.at(found, self.moves.kind, hops.min(axis=1))
        return found

    def within(self, options: Array, slowest: int, sync: int) -> Array:
        """Return the options that a pipeline with these maxima may have."""
        keep = self.least_us[options] <= slowest
        keep &= self.options.sync_us[options] <= sync
        return options[keep]

    def path(
        self, options: Array, slowest: int, prices: Array, limit: int, known: int = -BIG
    ) -> Path:
        """The least priced path over `options`, and those that one below `limit` has.

        `options` are numbers in ascending order; no stage is slower than `slowest`.
        All remain where the bound is no better than a `known` one.
        """
        table = _Table(self, options, slowest, prices)
        paid = int(prices @ self.gpus)
        best = int(table.value[self.layers, 0])
        if best >= BIG:
            return Path(BIG, table.used, np.zeros(0, np.int64))
        kept = table.below(limit + paid) if best - paid > known else options
        return Path(best - paid, table.used, kept)

    def values(self, options: Array, slowest: int, prices: Array) -> Array:
        """Least price of the layers before each cut, by the state behind it."""
        return _Table(self, options, slowest, prices).value


class _Table:
    """Shortest paths to every cut, for one choice of options and prices."""

    def __init__(
        self, owner: Prices, options: Array, slowest: int, prices: Array
    ) -> None:
        self.owner, self.options, self.slowest = owner, options, slowest
        self.paid = owner.use @ prices
        given = owner.columns, self.paid, slowest, owner.moves, owner.layers
        self.paths = loops.paths(options, *given)
        self.value = self.paths.value

    # --- the least path ------------------------------------------------------------

    def used(self) -> Array:
        """GPUs by class of nodes of one least path."""
        owner, rows = self.owner, self.owner.options
        used = np.zeros_like(owner.gpus)
        last, state = owner.layers, 0
        while last:
            pair, joined = self._pair_onto(last, state)
            kind, own = owner.moves.kind[pair], owner.moves.state[pair]
            cells = self.paths.shared if joined else self.paths.apart
            costs = cells[last, :last, kind]
            first = int((costs + self.value[:last, own]).argmin())
            option = self._option(last, first, int(kind), joined=joined)
            used += owner.use[rows.pattern[option]]
            last, state = first, int(own)
        return used

    def _pair_onto(self, last: int, state: int) -> tuple[int, bool]:
        moves = self.owner.moves
        one, two = loops.onto(self.paths, moves, last)
        one, two = one + moves.shared[:, state], two + moves.apart[:, state]
        joined = bool(one.min() <= two.min())
        return int((one if joined else two).argmin()), joined

    def _option(self, last: int, first: int, kind: int, *, joined: bool) -> int:
        columns, layers = self.owner.columns, self.owner.layers
        cell = (last * (layers + 1) + first) * self.owner.kinds + kind
        numbers = np.searchsorted(columns.cell, (cell, cell + 1))
        some = self.options[slice(*np.searchsorted(self.options, numbers))]
        fits = (columns.shared if joined else columns.apart)[some] <= self.slowest
        priced = columns.us[some] + self.paid[columns.pattern[some]]
        return int(some[int(np.where(fits, priced, BIG).argmin())])

    # --- options below a limit -------------------------------------------------------

    def below(self, limit: int) -> Array:
        """Numbers of the options that some path of at most `limit` goes through."""
        through = self.paths.through.reshape(-1)
        return loops.below(self.options, self.owner.columns, self.paid, through, limit)
