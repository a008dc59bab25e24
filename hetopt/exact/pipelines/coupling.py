"""Sizes that a box lets a stage hold, and its demands of the rows of the master.

Replicas of a layer l exchange its size e_l. In a ring over links of at most beta units
a us, a replica in node v, with h of the n replicas of l there, takes

    sync_l >= e_l / (d beta) (1 - h / n)

where d is the least degree of any replica of l. Under `sync: bottleneck` it takes
e_l / (d beta) (n - 1) / n or more once two replicas lie in two nodes.

In a box every layer has D replicas or more, and no stage synchronises for more than s.
So a stage of the run R on GPUs of node v, the least of whose replicas has d, obeys

    sum over l in R of e_l (1 - h_l / n_l)  <=  d beta s.                           (1)

Each limit below is one sentence from there. All are whole numbers: a limit on a size is
rounded down after exact fractions, a demand is rounded down, a supply is rounded up.
"""

from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property, lru_cache
from math import ceil, floor

import numpy as np

from ...stages import StageTable
from ...stages.classes import Whole
from .arcs import Arcs

NO_LIMIT = 1 << 50  # units


@dataclass(frozen=True)
class Sharing:
    """The replicas that a box allows, and their synchronisation.

    Layers have `replicas` or more of them, there are `fewest` to `most` pipelines, and
    no stage synchronises for more than `sync_us` (None: as long as it likes). No node
    of the classes `bare` is a host: one that holds all replicas of some layer.
    """

    replicas: int
    fewest: int
    most: int
    sync_us: int | None
    bare: frozenset[int] = frozenset()


class Coupling:
    """Limits and demands of one size of micro-batches in one box."""

    def __init__(self, table: StageTable, arcs: Arcs, box: Sharing) -> None:
        """Bind the stages of a table to what a box says."""
        self.table, self.arcs, self.box = table, arcs, box
        self._sync = table.sync
        self._ring = table.instance.workload.costs.updates.sync == "ring"
        #: GPUs of the largest node.
        self.widest = int(table.node_gpus.max())
        self._limit = lru_cache(None)(self._limit_of)

    @cached_property
    def sent(self) -> Fraction | None:
        """Units that one GPU exchanges with other nodes in the time of the box."""
        if self.box.sync_us is None or self._sync.inter is None:
            return None
        return self._sync.inter * self.box.sync_us

    def _fewest(self, own: int) -> int:
        """Return the least replicas of a layer of a stage that has `own` or more.

        Every other pipeline has one or more of each layer.
        """
        return max(self.box.replicas, self.box.fewest - 1 + own)

    def _crossing(self, replicas: int, here: int | None, nodes: int = 2) -> Fraction:
        """Return the least share of a layer's size that its replicas wait for.

        The layer has so many `replicas` or more, in so many `nodes` or more, of which
        no more than `here` lie in the node at hand. In a ring some replica has the
        least share of others beside it, which is no more than its node's part of all
        nodes; the ring waits for that one. A link that is slow for one is slow for all
        else.
        """
        if not self._ring:
            return Fraction(replicas - 1, replicas)
        nodes = max(nodes, -(-replicas // self.widest))
        beside = Fraction(1, nodes)
        if here is not None:
            beside = min(beside, Fraction(here, replicas))
        return 1 - beside

    @cached_property
    def light(self) -> Whole:
        """Return the most that stages in one node hold, by [arc, GPUs of the pipeline].

        The pipeline uses so many GPUs of the node in all: others have the rest, and no
        more replicas of the stage's layers than these.
        """
        arcs, table = self.arcs, self.table
        found = np.full((len(arcs.gpus), self.widest + 1), NO_LIMIT, np.int64)
        columns = arcs.kind, arcs.gpus, arcs.degree, arcs.replicas
        for a, (c, gpus, degree, most) in enumerate(np.array(columns).T.tolist()):
            for k in range(gpus, int(table.node_gpus[c]) + 1):
                rest = 0 if self.box.most == 1 else int(table.node_gpus[c]) - k
                found[a, k] = self._limit(
                    *(c, degree, most + rest), single=degree == gpus
                )
                if self.box.most == 1 and most < self.box.replicas:
                    found[a, k] = -1  # a single pipeline has all replicas itself
        return found

    def _limit_of(self, kind: int, degree: int, here: int, *, single: bool) -> int:
        """Return the most units of a stage, by its class, degree and replicas.

        Where its layers have two replicas or more, each exchanges (n - 1) / n of them
        over no faster link than the fastest at its node. Where not all replicas can lie
        in the node, or do, they cross to others.
        """
        least = self._fewest(1 if single else 2)
        time, limits = self.box.sync_us, [Fraction(NO_LIMIT)]
        rates = [self._sync.intra[kind], self._sync.inter]
        known = [rate for rate in rates if rate is not None]
        if time is None or not known:
            return NO_LIMIT
        if least > 1:
            limits.append(degree * max(known) * time * Fraction(least, least - 1))
        hosted = here >= least and not (kind in self.box.bare and self.box.fewest > 1)
        if not hosted and self.sent is not None:
            limits.append(degree * self.sent / self._crossing(least, here))
        return floor(min(limits))

    @cached_property
    def demand(self) -> Whole:
        """Return what stages in one node demand of the node's share, by [arc, run].

        By (1) the node's part of the replicas, summed over layers by size, is no less
        than the stage's size beyond d beta s. That is also so under `bottleneck`, where
        layers with all replicas in the node count, and no others.
        """
        found = np.zeros((len(self.arcs.gpus), len(self.table.runs)), np.int64)
        for degree in np.unique(self.arcs.degree).tolist():
            least = self._fewest(1)
            found[self.arcs.degree == degree] = self._beyond(degree, least)
        return found

    def _beyond(self, degree: int, replicas: int) -> Whole:
        low = self._sync.low
        if self.sent is None or replicas < 2:
            return np.zeros_like(low)
        able = degree * self.sent
        if not self._ring:
            able = able * Fraction(replicas, replicas - 1)
        return np.maximum(0, low - min(ceil(able), NO_LIMIT))

    @cached_property
    def shared_light(self) -> Whole:
        """Return the most units of each replica of stages in several nodes."""
        return self.several_light(2)

    def several_light(self, nodes: int) -> Whole:
        """Return the same of stages in so many nodes, or more."""
        found = np.full(len(self.arcs.shared), NO_LIMIT, np.int64)
        if self.sent is not None:
            part = self._crossing(self._fewest(nodes), None, nodes)
            for i, (_, t, _) in enumerate(self.arcs.shared.tolist()):
                found[i] = min(NO_LIMIT, floor(t * self.sent / part))
        return found

    @cached_property
    def shared_demand(self) -> Whole:
        """Return what such replicas demand of their node's share: [run, replica]."""
        degrees = self.arcs.shared[:, 1]
        found = np.zeros((len(self.table.runs), len(degrees)), np.int64)
        for degree in np.unique(degrees).tolist():
            each = self._beyond(degree, self._fewest(2))
            found[:, degrees == degree] = each[:, None]
        return found
