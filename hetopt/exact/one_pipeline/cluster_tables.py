"""Exact costs of the stages of one pipeline, and where they fit.

Nodes go by number, classes of nodes (equal GPUs, equal link within) by `FastCost`'s
kinds. A stage is a run of layers on replicas of one degree `t`, its position `k`
counted from the end: 1 is the last stage, and with `1f1b` stage k holds min(n, k)
micro-batches in flight.
"""

from bisect import bisect_left
from collections.abc import Iterable
from functools import cached_property
from itertools import accumulate

import numpy as np
from numpy.typing import NDArray

from ...schema import Instance
from ...search.fast_cost import FastCost, Slot

Array = NDArray[np.int64]

BIG = 1 << 60  # longer than any plan, in us; twice of it is still an int64


class ClusterTables:
    """Nodes, layer times, memory, hops and synchronisation of one instance."""

    def __init__(self, instance: Instance) -> None:
        """`InstanceError` where the instance has no cluster."""
        self.instance = instance
        self.cost = FastCost(instance)
        self.table = self.cost.table
        self.layers = self.cost.layers
        self.count = [node.count for node in self.cost.nodes]
        self.kind = self.cost.kind
        self.kinds = range(max(self.kind) + 1)
        self.members = [
            [i for i, kind in enumerate(self.kind) if kind == c] for c in self.kinds
        ]
        self.largest = [max(self.count[i] for i in rows) for rows in self.members]
        self.gpus = [sum(self.count[i] for i in rows) for rows in self.members]
        # Nodes that can be exchanged in every plan; with links by pair, none.
        pairs = instance.planned_cluster.inter.pairs
        same = list(zip(self.kind, self.count, strict=True))
        self.alike = [i if pairs else same.index(one) for i, one in enumerate(same)]
        self._prefixes: dict[tuple[int, int, int], Array | None] = {}
        self._tops: dict[tuple[int, ...], int] = {}
        self._syncs: dict[tuple[int, tuple[tuple[int, int], ...]], list[int]] = {}

    # --- time ------------------------------------------------------------------

    def prefix(self, kind: int, t: int, s: int) -> Array | None:
        """Sums of layer times before each layer for `s` samples; None unmeasured."""
        key = (kind, t, s)
        if key not in self._prefixes:
            node = self.members[kind][0]
            known = self.table.usable(self.cost.names[node], t, s)
            sums = self.cost.prefix(node, t, s)[0] if known else None
            self._prefixes[key] = None if sums is None else np.array(sums, np.int64)
        return self._prefixes[key]

    def span_us(self, kind: int, t: int, s: int, first: int, last: int) -> int:
        """Compute time of a run of layers, the head's included at the end."""
        sums = self.prefix(kind, t, s)
        if sums is None:
            return BIG
        us = int(sums[last] - sums[first])
        if last == self.layers:
            us += self.cost.head_us(self.members[kind][0], t, s)
        return us

    # --- memory ----------------------------------------------------------------

    @cached_property
    def even(self) -> bool:
        """Tell whether runs of equally many layers need equal memory."""
        return self.table.even

    def allowed(
        self, kind: int, t: int, n: int, first: int, last: int, k: int, most: int
    ) -> list[int]:
        """Samples, at most `most`, that a replica of a stage can take."""
        if self.table.profile.weighs:  # memory may shrink as samples grow
            fits = [
                s
                for s in range(1, most + 1)
                if self._fits(kind, t, s, n, first, last, k)
            ]
        else:
            key = self._place(kind, t, n, first, last, k, most)
            if key not in self._tops:
                # A run with one layer less, where it was looked at, says how many.
                shorter = self._place(kind, t, n, first + 1, last, k, most)
                high = self._tops.get(shorter, most)
                self._tops[key] = self._top(kind, t, n, first, last, k, high)
            fits = list(range(1, self._tops[key] + 1))
        return [s for s in fits if self.prefix(kind, t, s) is not None]

    def _place(
        self, kind: int, t: int, n: int, first: int, last: int, k: int, most: int
    ) -> tuple[int, ...]:
        """Equal for runs that as many samples fit."""
        flight = int(self.cost.in_flight(n, k, 0))
        ends = (first == 0, last == self.layers)
        run = (last - first,) if self.even else (first, last)
        return (kind, t, flight, *ends, most, *run)

    def _top(
        self, kind: int, t: int, n: int, first: int, last: int, k: int, most: int
    ) -> int:
        if not most or self._fits(kind, t, most, n, first, last, k):
            return most

        def short(samples: int) -> bool:
            return not self._fits(kind, t, samples, n, first, last, k)

        return bisect_left(range(1, most), True, key=short)

    def _fits(
        self, kind: int, t: int, s: int, n: int, first: int, last: int, k: int
    ) -> bool:
        node = self.members[kind][0]
        if self.table.profile.weighs and self.prefix(kind, t, s) is None:
            return False
        # A stage that begins the model is the first of k stages.
        j = 0 if first == 0 else 1
        need = self.cost.need_mib(s, n, k + j, j, Slot(node, t, first, last))
        return need <= self.cost.room[node]

    # --- synchronisation ---------------------------------------------------------

    def sync_us(self, t: int, places: Iterable[tuple[int, int]], span: range) -> int:
        """Time to synchronise a stage; `places` are (node, replicas) of its nodes."""
        key = tuple(sorted((self.alike[node], count) for node, count in places))
        if (t, key) not in self._syncs:
            holders = [
                (self.cost.names[node], t)
                for node, count in places
                for _ in range(count)
            ]
            one = {
                p: self.table.sync_us(p, holders)
                for p in {*self.instance.model.parameters}
            }
            rows = [one[p] for p in self.instance.model.parameters]
            ends = 0
            if self.instance.workload.costs.compute.head == "include":
                embedding = self.instance.model.embedding_parameters
                ends = self.table.sync_us(embedding, holders)
            self._syncs[t, key] = [*accumulate(rows, initial=0), ends]
        return self.summed(self._syncs[t, key], span)

    def summed(self, sums: list[int], span: range) -> int:
        """Sync of a run; `sums` are those before each layer, then that of an end."""
        ends = (span.start == 0) + (span.stop == self.layers)
        return sums[span.stop] - sums[span.start] + ends * sums[-1]
