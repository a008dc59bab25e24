"""Exact costs of the stages of one pipeline, and where they fit.

Nodes go by number, classes of nodes (equal GPUs, equal link within) by `FastCost`'s
kinds. A stage is a run of layers on replicas of one degree `t`, its position `k`
counted from the end: 1 is the last stage, and with `1f1b` stage k holds min(n, k)
micro-batches in flight.
"""

from bisect import bisect_left
from collections.abc import Callable, Iterable
from itertools import accumulate

import numpy as np
from numpy.typing import NDArray

from ...caching import cached_method
from ...schema import Instance
from ...search.fast_cost import FastCost, Slot

Array = NDArray[np.int64]
Flags = NDArray[np.bool_]

BIG = 1 << 60  # longer than any plan, in us; twice of it is still an int64


class ClusterTables:
    """Nodes, layer times, memory, hops and synchronisation of one instance."""

    def __init__(self, instance: Instance) -> None:
        """`InstanceError` where the instance has no cluster."""
        self.instance = instance
        self.cost = FastCost(instance)
        self.table = self.cost.table
        self.layers, self._batch = self.cost.layers, instance.workload.global_batch
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
        self._tops: dict[tuple[object, ...], int] = {}
        self._syncs: dict[tuple[int, tuple[tuple[int, int], ...]], Array] = {}

    # --- time ------------------------------------------------------------------

    def times_us(
        self, kind: int, t: int, n: int, run: tuple[int, int, int], most: int
    ) -> Array:
        """Return the times of 1, 2, ... `most` samples on a replica of a stage.

        `run` is its first layer, one past its last, and its position from the end. The
        head's time is included at the end. `BIG` where samples do not fit, or were not
        measured.
        """
        times = np.full(most, BIG, np.int64)
        if t > self.largest[kind]:
            return times
        sums, known = self._measured(kind, t, most)
        fits = known & self._fitting(kind, t, n, run, known)
        first, last, _ = run
        us = sums[:, last] - sums[:, first]
        if last == self.layers:
            us += sums[:, -1]
        times[fits] = us[fits]
        whole = last - first == self.layers and n * most == self._batch
        if t == 1 and whole and self.table.is_paced:
            times[-1] = BIG  # a plan on one GPU, which is looked at elsewhere
        return times

    @cached_method
    def _measured(self, kind: int, t: int, most: int) -> tuple[Array, Flags]:
        """Sums of layer times before each layer, then the head's, by samples.

        And whether these times are known: where they are not, the sums are 0.
        """
        node = self.members[kind][0]
        name = self.cost.names[node]
        sums = np.zeros((most, self.layers + 2), np.int64)
        known = np.zeros(most, np.bool_)
        for s, row in enumerate(sums, start=1):
            if self.table.usable(name, t, s):
                row[:-1] = self.cost.prefix(node, t, s)[0]
                row[-1] = self.cost.head_us(node, t, s)
                known[s - 1] = True
        return sums, known

    # --- memory ----------------------------------------------------------------

    def _fitting(
        self, kind: int, t: int, n: int, run: tuple[int, int, int], known: Flags
    ) -> Flags:
        """Tell which numbers of samples fit a replica, of those that are known."""
        node, (first, last, k), most = self.members[kind][0], run, len(known)
        j = int(first > 0)  # a stage that begins the model is the first of k stages

        def fits(s: int) -> bool:
            need = self.cost.need_mib(s, n, k + j, j, Slot(node, t, first, last))
            return need <= self.cost.room[node]

        if self.table.profile.weighs:  # memory may shrink as samples grow
            each = [bool(one) and fits(s) for s, one in enumerate(known, start=1)]
            return np.array(each, np.bool_)
        even, alike = self.table.even, (kind, t, self.cost.in_flight(n, k, 0), most)
        ends = even and last == self.layers
        key, shorter = (  # equal for runs that as many samples fit
            (*alike, start == 0, ends, *((last - start,) if even else (start, last)))
            for start in (first, first + 1)
        )
        if key not in self._tops:
            # A run with one layer less, where it was looked at, says how many.
            top = self._tops.get(shorter, most)
            if top and not fits(top):
                top = bisect_left(range(1, top), True, key=lambda s: not fits(s))
            self._tops[key] = top
        return np.arange(most) < self._tops[key]

    # --- synchronisation ---------------------------------------------------------

    def sync_us(self, t: int, places: Iterable[tuple[int, int]], span: range) -> int:
        """Time to synchronise a stage; `places` are (node, replicas) of its nodes."""
        places = [*places]
        key = tuple(sorted((self.alike[node], count) for node, count in places))
        if (t, key) not in self._syncs:
            among_us = self.cost.syncs.among_us
            self._syncs[t, key] = self.sums(lambda p: among_us(p, t, places))
        return int(self.summed(self._syncs[t, key], span.start, span.stop))

    def sums(self, sync_us: Callable[[int], int]) -> Array:
        """Return syncs before each layer, then that of an end, by their parameters."""
        model, ends = self.instance.model, 0
        one = {p: sync_us(p) for p in {*model.parameters}}
        if self.instance.workload.costs.compute.head == "include":
            ends = sync_us(model.embedding_parameters)
        before = accumulate((one[p] for p in model.parameters), initial=0)
        return np.array([*before, ends], np.int64)

    def summed(self, sums: Array, first: int, last: int) -> Array:
        """Return the sync of a run of layers, of one row of `sums` or of several."""
        ends = (first == 0) + (last == self.layers)
        return sums[..., last] - sums[..., first] + ends * sums[..., -1]
