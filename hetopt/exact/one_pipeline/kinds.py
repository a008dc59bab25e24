"""Stages by counts: what is known of a stage before its nodes are chosen.

A single-node stage has all its replicas on one node, a multi-node one on several.
Stages are placed from the last to the first; the *state* of a label says what the next
stage can use of the one placed last: its degree and its classes of nodes, and, where it
is on one node, the GPUs that are left there (`room`). A *move* puts a stage of some
*kind* before one with a state: sharing a node with it, or not. Its transfer and its
synchronisation are the least that any choice of nodes could give: single-node stages
that follow each other are priced exactly.
"""

from collections.abc import Iterator
from fractions import Fraction
from functools import cached_property, partial
from itertools import product
from typing import NamedTuple

import numpy as np

from ...caching import cached_method
from .cluster_tables import BIG, Array, ClusterTables


class State(NamedTuple):
    """The state of the stage placed last; `room` is -1 where it has several nodes."""

    classes: tuple[int, ...]
    t: int
    room: int


class Kind(NamedTuple):
    """A kind of stages that move alike; `gpus` are 0 where they have several nodes.

    The replica with the most samples takes `low` of them or more.
    """

    classes: tuple[int, ...]
    t: int
    gpus: int
    low: int


class Pattern(NamedTuple):
    """Replicas of degree `t` by class of nodes, on one node or on several."""

    t: int
    replicas: tuple[int, ...]
    on_one_node: bool

    @property
    def total(self) -> int:
        """Replicas of all classes."""
        return sum(self.replicas)

    @property
    def classes(self) -> tuple[int, ...]:
        """Classes of nodes that have a replica."""
        return tuple(c for c, m in enumerate(self.replicas) if m)


END = State((), 0, -1)  # before the last stage, nothing was placed


class Kinds:
    """Patterns, kinds, states and moves for micro-batches of `b` sequences."""

    def __init__(self, cluster: ClusterTables, b: int) -> None:
        self.cluster, self.b = cluster, b
        self.patterns = [*self._single_node(), *self._multi_node()]
        each = [self._kind_of(pattern) for pattern in self.patterns]
        self.kinds = [*dict.fromkeys(each)]
        numbers = {kind: i for i, kind in enumerate(self.kinds)}
        self.of_pattern = [numbers[kind] for kind in each]
        self.states = [
            END,
            *dict.fromkeys(t for k in self.kinds for t in self.states_of(k)),
        ]
        self.state_number = {state: i for i, state in enumerate(self.states)}
        # A pair is a kind with one of the states that its stages may have.
        self.pairs = [
            (i, self.state_number[state])
            for i, kind in enumerate(self.kinds)
            for state in self.states_of(kind)
        ]

    # --- patterns ----------------------------------------------------------------

    def _single_node(self) -> Iterator[Pattern]:
        for c in self.cluster.kinds:
            for t in range(1, self.cluster.largest[c] + 1):
                for m in range(1, min(self.b, self.cluster.largest[c] // t) + 1):
                    replicas = [0] * len(self.cluster.kinds)
                    replicas[c] = m
                    yield Pattern(t, tuple(replicas), on_one_node=True)

    def _multi_node(self) -> Iterator[Pattern]:
        cluster = self.cluster
        for t in range(1, max(cluster.largest) + 1):
            most = [
                min(self.b, sum(cluster.count[i] // t for i in rows))
                for rows in cluster.members
            ]
            for replicas in product(*(range(m + 1) for m in most)):
                nodes = sum(
                    sum(cluster.count[i] >= t for i in cluster.members[c])
                    for c, m in enumerate(replicas)
                    if m
                )
                if 2 <= sum(replicas) <= self.b and nodes > 1:
                    yield Pattern(t, replicas, on_one_node=False)

    def _kind_of(self, pattern: Pattern) -> Kind:
        gpus = pattern.total * pattern.t if pattern.on_one_node else 0
        return Kind(pattern.classes, pattern.t, gpus, -(-self.b // pattern.total))

    # --- moves -----------------------------------------------------------------

    def states_of(self, kind: Kind) -> list[State]:
        """Tags that a stage of a kind may have."""
        if not kind.gpus:
            return [State(kind.classes, kind.t, -1)]
        spare = self.cluster.largest[kind.classes[0]] - kind.gpus
        return [State(kind.classes, kind.t, room) for room in range(spare + 1)]

    @cached_property
    def hops(self) -> tuple[Array, Array]:
        """Least hop of each pair into each state, with a shared node and without."""
        shared = np.full((len(self.pairs), len(self.states)), BIG, np.int64)
        apart = shared.copy()
        for p, (i, own) in enumerate(self.pairs):
            for y, later in enumerate(self.states):
                one, two = self._hop(self.kinds[i], self.states[own], later)
                shared[p, y], apart[p, y] = one, two
        return shared, apart

    def _hop(self, kind: Kind, own: State, later: State) -> tuple[int, int]:
        """Hop of a stage before `later` that ends with `own`: shared, apart."""
        fresh = not kind.gpus or (
            own.room == self.cluster.largest[kind.classes[0]] - kind.gpus
        )
        if later == END:
            return BIG, 0 if fresh else BIG
        apart = min(
            self._between(x, y, later.t, kind.low)
            for x in kind.classes
            for y in later.classes
        )
        both = [c for c in kind.classes if c in later.classes]
        inside = [
            self._within(c, later.t, kind.low)
            for c in both
            if self._joins(kind, own, later, c)
        ]
        shared = min(inside, default=BIG)
        if not (kind.gpus and later.room >= 0):  # several nodes: the best link counts
            shared = min(shared, apart) if inside else BIG
        return shared, apart if fresh else BIG

    def _joins(self, kind: Kind, own: State, later: State, c: int) -> bool:
        """Tell whether a stage can have a node of class `c` in common with `later`."""
        room = later.room if later.room >= 0 else self.cluster.largest[c] - later.t
        if not kind.gpus:
            return kind.t <= room
        return own.room == room - kind.gpus

    @cached_method
    def _between(self, x: int, y: int, t: int, samples: int) -> int:
        """Least hop between two nodes of classes `x` and `y`; BIG where none."""
        members = self.cluster.members
        links = {
            self.cluster.table.cluster.link(
                self.cluster.cost.names[i], self.cluster.cost.names[j]
            ): (i, j)
            for i in members[x]
            for j in members[y]
            if i != j and self.cluster.count[j] >= t
        }
        return min(
            (
                self.cluster.cost.hop_us(i, j, t, samples, None)
                for i, j in links.values()
            ),
            default=BIG,
        )

    @cached_method
    def _within(self, c: int, t: int, samples: int) -> int:
        """Hop inside a node of class `c`; BIG where it has one GPU."""
        if self.cluster.largest[c] < 2:
            return BIG
        node = next(
            i
            for i in self.cluster.members[c]
            if self.cluster.count[i] == self.cluster.largest[c]
        )
        return self.cluster.cost.hop_us(node, node, t, samples, None)

    # --- synchronisation -----------------------------------------------------------

    def sync_sums(self, pattern: Pattern) -> Array:
        """Least sync before each layer, as `ClusterTables.summed` takes it."""
        return self.cluster.sums(partial(self._sync_us, pattern))

    def _sync_us(self, pattern: Pattern, parameters: int) -> int:
        cluster, n, t = self.cluster, pattern.total, pattern.t
        if pattern.on_one_node:
            node = self._roomiest(pattern.classes[0])
            return cluster.table.sync_us(parameters, [(node, t)] * n)
        classes, costs = pattern.classes, cluster.instance.workload.costs
        volume = costs.memory.gradient_bytes * parameters
        if costs.updates.sync == "bottleneck":
            best = max(self._rates(x, y)[1] for x in classes for y in classes)
            seconds = Fraction(2 * (n - 1) * volume, n * t) / best
            return -(-seconds.numerator * 10**6 // seconds.denominator)
        chunk = Fraction(volume, t * n)
        worst = max(self._ring_s(pattern, c, chunk) for c in classes)
        return -(-2 * worst.numerator * 10**6 // worst.denominator)

    def _ring_s(self, pattern: Pattern, c: int, chunk: Fraction) -> Fraction:
        links = [link for y in pattern.classes for link in self._links(c, y)]
        away = min(latency + chunk / rate for latency, rate in links)
        mates = min(pattern.replicas[c], self.cluster.largest[c] // pattern.t) - 1
        if not mates:
            return (pattern.total - 1) * away
        node = self._roomiest(c)
        latency, rate = self.cluster.table.link(node, node)
        near = min(latency + chunk / rate, away)
        return mates * near + (pattern.total - 1 - mates) * away

    def _rates(self, x: int, y: int) -> tuple[Fraction, Fraction]:
        none = (Fraction(0), Fraction(0))
        return max(self._links(x, y), key=lambda link: link[1], default=none)

    @cached_method
    def _links(self, x: int, y: int) -> frozenset[tuple[Fraction, Fraction]]:
        names, members = self.cluster.cost.names, self.cluster.members
        return frozenset(
            self.cluster.table.link(names[i], names[j])
            for i in members[x]
            for j in members[y]
            if i != j
        )

    def _roomiest(self, c: int) -> str:
        """Name of a node of class `c` that no other has more GPUs than."""
        cluster = self.cluster
        return cluster.cost.names[
            max(cluster.members[c], key=lambda i: cluster.count[i])
        ]
