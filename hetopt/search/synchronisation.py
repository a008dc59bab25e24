"""Synchronisation times of layers, fast and exact.

The synchronisation of a layer depends on how many of its replicas lie on each node
and on their least degree. Both are digits of one integer per layer, its *signature*:
adding or removing a pipeline adds or subtracts a constant, and equal signatures have
equal times, which are kept.

Groups of ZeRO and blocks of experts are of neighbouring ranks. Where there are any, the
order of the pipelines counts: the digits of a signature then are the replicas in their
order (`is_ordered`), and a change has all signatures made anew.

A node with `adapters` has its links' rate once for all its stages. Its port toward
links of one rate has a number here; bytes of pipelines and of rings are added up by
port, and the one that is busy longest is rounded up once. The definition is the judge's
(`hetopt.problems.training_plan.ports`), with which this shares no code.
"""

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from fractions import Fraction
from functools import cached_property
from itertools import accumulate
from math import ceil, lcm
from operator import add, sub
from typing import NamedTuple, ParamSpec, TypeVar

import numpy as np

from ..caching import cached_method
from ..costs import CostTable
from ..costs.communication import ring_slowdown
from ..costs.compute import LinkRate
from ..schema import Recompute
from ..schema.links import ROUNDING

_RINGS = 1024  # of different replicas that are kept
_NONE, _ONE = Fraction(0), Fraction(1)
#: Bytes by the number of a port.
Sent = tuple[tuple[int, int], ...]


_P = ParamSpec("_P")
_R = TypeVar("_R")


class bounded_method(cached_method[_P, _R]):
    """A method of which the values last asked for are kept."""

    most = 200_000


class Slot(NamedTuple):
    """A stage: `t` GPUs of a node, and its layers `first` to `last` - 1.

    `recompute` is the stage's own rule, None that of the workload.
    """

    node: int
    t: int
    first: int
    last: int
    recompute: Recompute | None = None


class Sums(NamedTuple):
    """Sums of times of a plan's layers, and of what they send through ports.

    `behind` are sums of times over the layers before each; ports send a `share`-th of
    the bytes of `sent`.
    """

    behind: list[int]
    embedding: int
    head: int
    share: int
    sent: dict[int, int]


class SyncTimes:
    """Synchronisation time of a layer from its signature, and what links need."""

    def __init__(self, table: CostTable, check: Callable[[], None]) -> None:
        """`check()` is called before what takes long where there are many nodes."""
        self._check = check
        self._context = table.split.context
        self._grouped = table.split.groups > 1
        #: Whether the order of pipelines decides who synchronises with whom.
        self.is_ordered = self._grouped or table.split.experts > 1
        # Of each layer those of experts that are divided; and all others.
        parameters = table.exchanged.layers
        self._routed = table.divided(table.exchanged)
        pairs = zip(parameters, self._routed, strict=True)
        self._parameters = [whole - routed for whole, routed in pairs]
        self._one_size = len({*parameters}) == 1 == len({*self._routed})
        self._names = [node.name for node in table.cluster.nodes]
        self._costs = table
        workload = table.workload
        self._ring = workload.costs.updates.sync == "ring"
        self._passes = workload.costs.updates.sync_passes
        self._each = workload.costs.memory.gradient_bytes
        self._embedding = table.model.embedding_parameters
        # Ends of no vocabulary have messages all the same, as the judge counts them.
        self._end_parameters = table.exchanged.end
        cluster = table.cluster
        self._count = len(cluster.nodes)
        degrees = max(node.count for node in cluster.nodes)
        self._digits = self._count + degrees
        # No layer has more replicas than there are GPUs: digits never overflow.
        self._bits = 8 * next(w for w in (1, 2, 4, 8) if cluster.gpu_count < 256**w)
        self._degrees = degrees
        #: The ports of nodes, which all layers' rings share.
        self.ports = PortTable(table)
        self._links = _Links(table)
        self._known: dict[int, _Ring | None] = {}  # by signature

    def end_us(self, signature: int) -> int:
        """Return the time of the embedding or of the head."""
        return self._time(self._end_parameters or 0, signature)

    def among_us(
        self, parameters: int, t: int, places: Iterable[tuple[int, int]]
    ) -> int:
        """Return the time of parameters whose replicas of `t` GPUs are at `places`.

        A place is a node and its replicas; none of the parameters are of experts.
        """
        held = ((node, t) for node, count in places for _ in range(count))
        return self._time(parameters, self._signature(held))

    def _signature(self, held: Iterable[tuple[int, int]]) -> int:
        bits, count, found = self._bits, self._count, 0
        for node, t in held:
            if self.is_ordered:
                found = found * (count * self._degrees + 1) + node * self._degrees + t
            else:
                found += (1 << bits * node) + (1 << bits * (count + t - 1))
        return found

    def _replicas(self, signature: int) -> list[tuple[int, int]]:
        found = []
        while signature:
            signature, digit = divmod(signature, self._count * self._degrees + 1)
            node, less = divmod(digit - 1, self._degrees)
            found.append((node, less + 1))
        return found[::-1]

    @bounded_method
    def weights(self, slots: tuple[Slot, ...]) -> list[int]:
        """Return what a pipeline adds to the signature of each layer."""
        found = []
        for node, t, first, last, _ in slots:
            found += [self._signature([(node, t)])] * (last - first)
        return found

    def signatures(self, pipes: Iterable[tuple[Slot, ...]]) -> list[int]:
        """Signature of every layer."""
        found = [0] * len(self._parameters)
        if not self.is_ordered:
            return self.changed(found, (), pipes)
        base = self._count * self._degrees + 1
        for slots in pipes:
            pairs = zip(found, self.weights(slots), strict=True)
            found = [signature * base + digit for signature, digit in pairs]
        return found

    def changed(
        self,
        signatures: list[int],
        removed: Iterable[tuple[Slot, ...]],
        added: Iterable[tuple[Slot, ...]],
    ) -> list[int]:
        """Signatures with some pipelines taken away and others added.

        Not of pipelines whose order counts.
        """
        for slots in removed:
            signatures = list(map(sub, signatures, self.weights(slots)))
        for slots in added:
            signatures = list(map(add, signatures, self.weights(slots)))
        return signatures

    def times(self, signatures: Sequence[int]) -> Sums:
        """Sync times of layers, embedding and head, and what they send."""
        embedding = head = 0
        if self._end_parameters is not None:
            embedding = self._time(self._end_parameters, signatures[0])
            head = self._time(self._end_parameters, signatures[-1])
        if self._one_size:
            size = self._parameters[0]
            routed = self._routed[0]
            one = {s: self._layer(size, routed, s) for s in set(signatures)}
            each: Iterable[int] = map(one.__getitem__, signatures)
        else:
            each = map(self._layer, self._parameters, self._routed, signatures)
        sent = self._sent(signatures) if self.ports.any else (1, {})
        return Sums(list(accumulate(each, initial=0)), embedding, head, *sent)

    # --- ports -------------------------------------------------------------------

    def _sent(self, signatures: Sequence[int]) -> tuple[int, dict[int, int]]:
        """Return what all rings send through each port.

        Layers of one signature send alike, each in proportion to its parameters.
        """
        held = Counter[tuple[int, bool]]()
        rows = zip(signatures, self._parameters, self._routed, strict=True)
        for signature, whole, routed in rows:
            held[signature, False] += whole
            if routed:
                held[signature, True] += routed
        if self._end_parameters is not None:
            for signature in (signatures[0], signatures[-1]):
                held[signature, False] += self._end_parameters
        parts = [(p, *self._sent_each(s, divided=d)) for (s, d), p in held.items()]
        share = lcm(*(own for _, own, _ in parts))
        return share, added((p * share // own, sent) for p, own, sent in parts)

    @bounded_method
    def _sent_each(self, signature: int, *, divided: bool) -> tuple[int, Sent]:
        """Return the traffic of one parameter, which may be a divided expert's."""
        total: dict[int, Fraction] = {}
        for counts, each in self._rings(signature, divided=divided):
            n = sum(counts)
            for port, others in self.ports.ring(counts):
                part = each(self.ports.node(port)) * others / n
                total[port] = total.get(port, Fraction(0)) + part
        share = lcm(*(part.denominator for part in total.values()))
        return share, tuple((port, int(us * share)) for port, us in total.items())

    def _rings(
        self, signature: int, *, divided: bool
    ) -> Iterable[tuple[Sequence[int], Callable[[int], Fraction]]]:
        """Rings of a parameter: members by node, and bytes that they pass on a node."""
        digits = self._decoded(signature)
        counts: Sequence[int] = digits[: self._count]
        whole = Fraction(self._passes * self._each)
        if divided:
            e = self._costs.split.experts
            gpus = [a for a, t in self._replicas(signature) for _ in range(t)]
            at_once = [min(e, count) for count in self._counted(gpus)]
            yield self._counted(gpus[::e]), lambda a: whole * at_once[a] / e
        elif self._grouped:
            nodes = [a for a, _ in self._replicas(signature)]
            m = self._costs.workload.costs.updates.sharers(len(nodes))
            for i in range(0, len(nodes), m):
                yield self._counted(nodes[i : i + m]), lambda _: whole
            for i in range(m):
                yield self._counted(nodes[i::m]), lambda _: Fraction(2 * self._each, m)
        else:
            yield counts, lambda _: whole

    def _counted(self, nodes: Sequence[int]) -> list[int]:
        counts = [0] * self._count
        for a in nodes:
            counts[a] += 1
        return counts

    def ties_us(self, pairs: Iterable[tuple[Slot, Slot]]) -> int:
        """The busiest port's time to sum tied embeddings of first and last stages."""
        size, ports = self._passes * self._each * self._embedding, []
        for first, last in pairs:
            for a, b in ((first.node, last.node), (last.node, first.node)):
                if (port := self.ports.toward(a, b)) is not None:
                    ports.append((port, size))
        return self.ports.busiest_us(added([(1, tuple(ports))]), 2)

    # --- rings -------------------------------------------------------------------

    def tied_us(self, first: Slot, last: Slot) -> int:
        """Time to sum tied embeddings of a pipeline's first and last stage."""
        pair = [(slot.node, slot.t) for slot in (first, last)]
        if self._grouped:
            return self._costs.sync_us(
                self._embedding, self._named(pair), grouped=False
            )
        return self._time(self._embedding, self._signature(pair))

    def _named(self, held: Iterable[tuple[int, int]]) -> list[tuple[str, int]]:
        return [(self._names[node], t) for node, t in held]

    def _layer(self, parameters: int, routed: int, signature: int) -> int:
        time = self._time(parameters, signature)
        return time + self._routed_time(routed, signature) if routed else time

    @bounded_method
    def _routed_time(self, parameters: int, signature: int) -> int:
        """Return the time of experts: every replica of a layer has as many GPUs."""
        holders = self._named(self._replicas(signature))
        return self._costs.routed_sync_us(parameters, holders)

    @bounded_method
    def _time(self, parameters: int, signature: int) -> int:
        self._check()
        if self._grouped:
            holders = self._named(self._replicas(signature))
            return self._costs.sync_us(parameters, holders)
        if (ring := self._ring_of(signature)) is None:
            return 0
        volume = self._passes * self._each * parameters * 10**6
        if self._ring:
            return ring.us(self._passes * 10**6, volume)
        return ring.bottleneck_us(volume)

    def _ring_of(self, signature: int) -> "_Ring | None":
        """Return the ring of a layer's replicas; None of one that needs none."""
        if signature not in self._known:
            if len(self._known) >= _RINGS:
                self._known.clear()
            digits, c = self._decoded(signature), self._context
            t = next((i for i, n in enumerate(digits[self._count :], 1) if n), 1)
            # Under context parallelism each part of a group is a replica.
            counts = [c * count for count in digits[: self._count]]
            several = sum(counts) > 1
            made = _Ring(self._links, counts, t // c) if several else None
            self._known[signature] = made
        return self._known[signature]

    def _decoded(self, signature: int) -> Sequence[int]:
        """Replicas on each node, then replicas of each degree from 1."""
        if self.is_ordered:
            held = self._replicas(signature)
            nodes, degrees = Counter(a for a, _ in held), Counter(t for _, t in held)
            counts = [nodes[a] for a in range(self._count)]
            return counts + [degrees[t] for t in range(1, self._degrees + 1)]
        width = self._bits // 8
        raw = signature.to_bytes(width * self._digits, "little")
        if width == 1:
            return raw
        found: list[int] = np.frombuffer(raw, f"<u{width}").tolist()
        return found


class PortTable:
    """The ports of a cluster by number: a node's, toward links of one rate."""

    def __init__(self, table: CostTable) -> None:
        """The cluster's own links tell which rates there are."""
        cluster = table.cluster
        self._links = cluster.links if cluster.inter.pairs else None
        self._told = [node.adapters is not None for node in cluster.nodes]
        #: Whether any node has ports.
        self.any = any(self._told) and len(cluster.nodes) > 1
        rates: list[Fraction] = []
        if self._links is not None:
            rates = [self._links.exactly(k)[1] for k in range(self._links.classes)]
        elif len(cluster.nodes) > 1:
            rates = [table.link(cluster.nodes[0].name, cluster.nodes[1].name)[1]]
        self._rates = list(dict.fromkeys(rates))
        self._rate_of = [self._rates.index(rate) for rate in rates]

    def node(self, port: int) -> int:
        """The node of a port."""
        return port // len(self._rates)

    def toward(self, a: int, b: int) -> int | None:
        """The port of node `a` toward node `b`; None where there is none to be busy."""
        if a == b or not self._told[a]:
            return None
        link = 0 if self._links is None else self._links.between(a, b)
        return a * len(self._rates) + self._rate_of[link]

    def ring(self, counts: Sequence[int]) -> list[tuple[int, int]]:
        """Return how many ports each port of a ring's nodes leads to."""
        held = [a for a, count in enumerate(counts) if count]
        if len(held) < 2:
            return []
        if self._links is None:
            total = sum(counts)
            return [(a, total - counts[a]) for a in held if self._told[a]]
        found: dict[int, int] = {}
        many = [counts[a] for a in held]
        for a in held:
            if not self._told[a]:
                continue
            links = self._links.row(a)[held]  # -1 of the node itself
            led = np.bincount(links + 1, weights=many)[1:]
            for link in np.flatnonzero(led).tolist():
                port = a * len(self._rates) + self._rate_of[link]
                found[port] = found.get(port, 0) + int(led[link])
        return list(found.items())

    def busiest_us(
        self,
        sent: Mapping[int, int],
        share: int = 1,
        hidden: Mapping[int, int] | None = None,
    ) -> int:
        """The time of the busiest port for a `share`-th of the bytes `sent`.

        Less what is `hidden` of each node's; 0 where nothing is sent.
        """
        slowest = 0
        for port, size in sent.items():
            node, rate = divmod(port, len(self._rates))
            speed = self._rates[rate]
            top = size * speed.denominator * 10**6
            us = -(-top // (share * speed.numerator))
            slowest = max(slowest, us - hidden.get(node, 0) if hidden else us)
        return slowest


def added(parts: Iterable[tuple[int, Sent]]) -> dict[int, int]:
    """Bytes by port, each part so many times."""
    total: dict[int, int] = {}
    for times, sent in parts:
        for port, size in sent:
            total[port] = total.get(port, 0) + times * size
    return total


class _Links:
    def __init__(self, table: CostTable) -> None:
        nodes, classes = table.cluster.nodes, table.node_class
        self.between = table.cluster.links
        self.within = [classes[node.name].intra or (_NONE, _NONE) for node in nodes]
        self.adapters = {a: one.adapters for a, one in enumerate(nodes) if one.adapters}
        rates = [(float(s), float(1 / r) if r else 0.0) for s, r in self.within]
        self.latencies, self.inverses = np.array(rates).T
        self.across = 1 / self.between.bytes_per_s


class _Ring:
    """Rings through the replicas of a layer, `shards` of them at once.

    Common denominators of thousands of links have thousands of digits. So times are
    floats first, and fractions where floats leave a microsecond open.
    """

    def __init__(self, links: _Links, counts: Sequence[int], shards: int) -> None:
        """`counts` are the members on each node."""
        self._links, self.shards = links, shards
        self._many = np.array(counts)
        self._held = np.flatnonzero(self._many)
        self._size = sum(counts)
        #: How many times as long the links of nodes take, and which of these it is.
        self._factors, self._level = [_ONE], np.zeros(len(counts), int)
        if links.adapters:
            slower = {
                a: ring_slowdown(links.adapters.get(a), shards, counts[a])
                for a in self._held.tolist()
            }
            self._factors = sorted({*slower.values()})
            for a, factor in slower.items():
                self._level[a] = self._factors.index(factor)

    def us(self, scale: int, volume: int) -> int:
        """The slowest member's time: to each other, `scale` latencies and a share.

        `volume` is what all shares of all rings take at a byte a second.
        """
        share = volume / (self.shards * self._size)
        values = [(scale * x + share * y, a) for x, y, a in self._sums]
        most = max(values)[0]
        low, high = ceil(most * (1 - ROUNDING)), ceil(most * (1 + ROUNDING))
        if low == high:
            return low
        near = {self._to(a) for us, a in values if us >= most * (1 - 2 * ROUNDING)}
        exact = Fraction(volume, self.shards * self._size)
        return ceil(max(self._exactly(*one, scale, exact) for one in near))

    @cached_property
    def _sums(self) -> list[tuple[float, float, int]]:
        """Return latencies and inverse rates from a member to all others, and where."""
        links, table, many = self._links, self._links.between, self._many
        latencies = table.sums(table.latency_s, many) + (many - 1) * links.latencies
        inverses = (many - 1) * links.inverses
        for i, mine in enumerate(self._factors):
            for j, other in enumerate(self._factors):
                there = many * (self._level == j)
                sums = table.sums(links.across * float(max(mine, other)), there)
                inverses += sums * (self._level == i)
        held = self._held.tolist()
        return [(latencies[a].item(), inverses[a].item(), a) for a in held]

    def _to(self, a: int) -> tuple[LinkRate, int, tuple[tuple[int, int], ...]]:
        """The link within a node, its other members, and those by kind of link."""
        others = self._held[self._held != a]
        levels = np.maximum(self._level[a], self._level[others])
        kinds = self._links.between.row(a)[others] * len(self._factors) + levels
        kinds, place = np.unique(kinds, return_inverse=True)
        sums = np.bincount(place, self._many[others], len(kinds)).astype(int)
        pairs = zip(kinds.tolist(), sums.tolist(), strict=True)
        return self._links.within[a], int(self._many[a]) - 1, tuple(pairs)

    def _rate(self, kind: int) -> LinkRate:
        link, level = divmod(kind, len(self._factors))
        latency, rate = self._links.between.exactly(link)
        return latency, rate / self._factors[level]

    def _exactly(
        self,
        within: LinkRate,
        inside: int,
        others: Iterable[tuple[int, int]],
        scale: int,
        share: Fraction,
    ) -> Fraction:
        rates = [(within, inside)] if inside else []
        rates += [(self._rate(kind), count) for kind, count in others]
        total = _NONE
        for (seconds, rate), count in rates:
            total += count * (scale * seconds + share / rate)
        return total

    def bottleneck_us(self, volume: int) -> int:
        """Return the time over the slowest link between two members."""
        share = Fraction(volume, self.shards * self._size)
        return ceil(share * (self._size - 1) / self._least)

    @cached_property
    def _least(self) -> Fraction:
        """Return the rate of the slowest link between two members, in bytes/s."""
        held, levels = self._held, self._level[self._held]
        links = np.array([self._links.between.row(a)[held] for a in held.tolist()])
        kinds = links * len(self._factors) + np.maximum.outer(levels, levels)
        rates: list[LinkRate] = [*map(self._rate, {*kinds[kinds >= 0].tolist()})]
        rates += [self._links.within[a] for a in held[self._many[held] > 1].tolist()]
        return min(rate for _, rate in rates)
