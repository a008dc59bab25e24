"""Synchronisation times of layers, fast and exact.

The synchronisation of a layer depends on how many of its replicas lie on each node
and on their least degree. Both are digits of one integer per layer, its *signature*:
adding or removing a pipeline adds or subtracts a constant, and equal signatures have
equal times, which are kept.

Groups of ZeRO and blocks of experts are of neighbouring ranks. Where there are any, the
order of the pipelines counts: the digits of a signature then are the replicas in their
order (`is_ordered`), and a change has all signatures made anew.
"""

from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from fractions import Fraction
from itertools import accumulate
from math import ceil, lcm
from operator import add, sub
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from ..costs import CostTable
from ..costs.compute import LinkRate
from ..schema import Recompute
from ..schema.links import ROUNDING, LinkTable
from .ports import PortTable, Sent, added

KEPT = 400_000  # entries of a cache before it is emptied
_ALL = Fraction(1)  # a link is all a ring's
_Slow = dict[int, Fraction]  # by node, time over what a ring reaches to all of it
# Up to here all links are kept as integers over common denominators.
_FEW_NODES, _FEW_CLASSES = 128, 64


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
        self._kept: dict[tuple[int, int], int] = {}
        self._weights: dict[tuple[Slot, ...], list[int]] = {}
        self._adapters = [node.adapters for node in cluster.nodes]
        self._shared = any(self._adapters)
        #: The ports of nodes, which all layers' rings share.
        self.ports = PortTable(table)
        self._sending: dict[tuple[int, bool], tuple[int, Sent]] = {}
        self._links(table)

    def _links(self, table: CostTable) -> None:
        """Latencies and inverse bandwidths as integers over common denominators."""
        cluster = table.cluster
        self._uniform = not cluster.inter.pairs
        self._within_links = [
            table.node_class[node.name].intra or (Fraction(0),) * 2
            for node in cluster.nodes
        ]
        self._far: _FarLinks | None = None
        across = [(Fraction(0),) * 2]
        if not self._uniform:
            self._table = cluster.links
            if self._count > _FEW_NODES or self._table.classes > _FEW_CLASSES:
                self._far = _FarLinks(self._table, self._within_links)
                return
            across = [self._table.exactly(k) for k in range(self._table.classes)]
        elif self._count > 1:
            across = [table.link(cluster.nodes[0].name, cluster.nodes[1].name)]
        inside = {id(link): link for link in self._within_links}.values()
        links = {*across, *inside}
        self._alpha = lcm(*(latency.denominator for latency, _ in links))
        self._beta = lcm(*(rate.numerator for _, rate in links if rate))

        def whole(link: tuple[Fraction, Fraction]) -> tuple[int, int]:
            latency, rate = link
            return int(latency * self._alpha), int(self._beta / rate) if rate else 0

        numbers = {id(link): whole(link) for link in inside}
        self._within = [numbers[id(link)] for link in self._within_links]
        each = [whole(link) for link in across]
        if self._uniform:
            self._across = [each]
            return
        self._across = [
            [each[k] if k >= 0 else (0, 0) for k in self._table.row(i).tolist()]
            for i in range(self._count)
        ]

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
        """Return the signature of replicas: node and degree of each, in order."""
        bits, count, found = self._bits, self._count, 0
        for node, t in held:
            if self.is_ordered:
                found = found * (count * self._degrees + 1) + node * self._degrees + t
            else:
                found += (1 << bits * node) + (1 << bits * (count + t - 1))
        return found

    def _replicas(self, signature: int) -> list[tuple[int, int]]:
        """Return node and degree of the replicas of an ordered signature."""
        found = []
        while signature:
            signature, digit = divmod(signature, self._count * self._degrees + 1)
            node, less = divmod(digit - 1, self._degrees)
            found.append((node, less + 1))
        return found[::-1]

    def weights(self, slots: tuple[Slot, ...]) -> list[int]:
        """Return what a pipeline adds to the signature of each layer."""
        found = self._weights.get(slots)
        if found is None:
            if len(self._weights) >= KEPT // 4:
                self._weights.clear()
            found = []
            for node, t, first, last, _ in slots:
                found += [self._signature([(node, t)])] * (last - first)
            self._weights[slots] = found
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
        held: dict[tuple[int, bool], int] = {}
        rows = zip(signatures, self._parameters, self._routed, strict=True)
        for signature, whole, routed in rows:
            key = signature, False
            held[key] = held.get(key, 0) + whole
            if routed:
                key = signature, True
                held[key] = held.get(key, 0) + routed
        if self._end_parameters is not None:
            for signature in (signatures[0], signatures[-1]):
                held[signature, False] += self._end_parameters
        parts = [
            (p, *self._sent_each(key[0], divided=key[1])) for key, p in held.items()
        ]
        share = lcm(*(own for _, own, _ in parts))
        return share, added((p * share // own, sent) for p, own, sent in parts)

    def _sent_each(self, signature: int, *, divided: bool) -> tuple[int, Sent]:
        """Return the traffic of one parameter, which may be a divided expert's."""
        key = signature, divided
        found = self._sending.get(key)
        if found is None:
            if len(self._sending) >= KEPT // 4:
                self._sending.clear()
            total: dict[int, Fraction] = {}
            for counts, each in self._rings(signature, divided=divided):
                n = sum(counts)
                for port, others in self.ports.ring(counts):
                    part = each(self.ports.node(port)) * others / n
                    total[port] = total.get(port, Fraction(0)) + part
            share = lcm(*(part.denominator for part in total.values()))
            sent = tuple((port, int(part * share)) for port, part in total.items())
            found = self._sending[key] = share, sent
        return found

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

    def _routed_time(self, parameters: int, signature: int) -> int:
        """Return the time of experts: every replica of a layer has as many GPUs."""
        key = (-parameters, signature)
        found = self._kept.get(key)
        if found is None:
            holders = self._named(self._replicas(signature))
            found = self._costs.routed_sync_us(parameters, holders)
            self._kept[key] = found
        return found

    def _time(self, parameters: int, signature: int) -> int:
        key = (parameters, signature)
        found = self._kept.get(key)
        if found is None:
            self._check()
            if len(self._kept) >= KEPT:
                self._kept.clear()
            found = self._kept[key] = self._time_of(parameters, signature)
        return found

    def _time_of(self, parameters: int, signature: int) -> int:
        digits = self._decoded(signature)
        t = next((i for i, c in enumerate(digits[self._count :], 1) if c), 1)
        if self._grouped:
            holders = self._named(self._replicas(signature))
            return self._costs.sync_us(parameters, holders)
        c = self._context
        counts: Sequence[int] = digits[: self._count]
        if c > 1:  # each part of a group is a replica
            counts, t = [c * count for count in counts], t // c
        replicas = sum(counts)
        if replicas < 2:
            return 0
        slow = self._slower(counts, t) if self._shared else None
        if self._far is not None:
            size = Fraction(self._passes * self._each * parameters * 10**6, t)
            if not self._ring:
                return self._far.slowest_us(size, counts, replicas, slow)
            return self._far.ring_us(size, self._passes * 10**6, counts, replicas, slow)
        per, weights = _whole_weights(slow)
        if not self._ring:
            held = [(a, c) for a, c in enumerate(counts) if c]
            inverse = self._slowest_link(held, per, weights)
            volume = self._passes * self._each * parameters
            top = volume * (replicas - 1) * inverse * 10**6
            return -(-top // (replicas * t * self._beta * per))
        share = t * replicas * per
        worst = max(
            alphas * share * self._beta + self._each * parameters * betas * self._alpha
            for alphas, betas in self._to_others(counts, replicas, per, weights)
        )
        top = self._passes * worst * 10**6
        return -(-top // (self._alpha * share * self._beta))

    def _slower(self, counts: Sequence[int], t: int) -> _Slow:
        """By node that has replicas: how much slower than its link a ring is there.

        `t` rings at once share the adapters that their members on the node reach.
        """
        return {
            a: Fraction(n * t, min(n, t * c)) if (n := self._adapters[a]) else _ALL
            for a, c in enumerate(counts)
            if c
        }

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

    def _slowest_link(
        self, held: list[tuple[int, int]], per: int, weights: dict[int, int]
    ) -> int:
        """The largest inverse bandwidth between two replicas, in parts of `per`."""
        rates = [per * self._within[a][1] for a, c in held if c > 1]
        if self._uniform and len(held) > 1:
            slowest = max((weights.get(a, per) for a, _ in held), default=per)
            rates.append(slowest * self._across[0][0][1])
        elif not self._uniform:
            rates += [
                max(weights.get(a, per), weights.get(b, per)) * self._across[a][b][1]
                for a, _ in held
                for b, _ in held
                if a != b
            ]
        return max(rates)

    def _to_others(
        self, counts: Sequence[int], replicas: int, per: int, weights: dict[int, int]
    ) -> Iterable[tuple[int, int]]:
        """Latencies and inverse bandwidths from a replica of each node, summed.

        Bandwidths are weighed by what a ring reaches at both ends, in parts of `per`.
        """
        if weights:
            yield from self._weighed(counts, per, weights)
            return
        if self._uniform:  # nodes of equal links and counts are in the same place
            alpha, beta = self._across[0][0]
            for (within_alpha, within_beta), c in set(
                zip(self._within, counts, strict=True)
            ):
                if c:
                    yield (
                        (c - 1) * within_alpha + (replicas - c) * alpha,
                        (c - 1) * within_beta + (replicas - c) * beta,
                    )
            return
        held = [(a, c) for a, c in enumerate(counts) if c]
        for a, here in held:
            alpha, beta = self._within[a]
            alphas, betas = (here - 1) * alpha, (here - 1) * beta
            for b, there in held:
                if b != a:
                    alpha, beta = self._across[a][b]
                    alphas, betas = alphas + there * alpha, betas + there * beta
            yield alphas, betas

    def _weighed(
        self, counts: Sequence[int], per: int, weights: dict[int, int]
    ) -> Iterable[tuple[int, int]]:
        """Yield latencies and inverse bandwidths as `_to_others` does, by weights."""
        among = Counter[int]()  # replicas on nodes of each weight
        for a, weight in weights.items():
            among[weight] += counts[a]
        for a, mine in weights.items():
            alpha, beta = self._within[a]
            here = counts[a]
            alphas, betas = (here - 1) * alpha, (here - 1) * beta * per
            if self._uniform:
                alpha, beta = self._across[0][0]
                for weight, there in among.items():
                    others = there - here * (weight == mine)
                    alphas += others * alpha
                    betas += others * beta * max(weight, mine)
            else:
                for b, weight in weights.items():
                    if b != a:
                        alpha, beta = self._across[a][b]
                        alphas += counts[b] * alpha
                        betas += counts[b] * beta * max(weight, mine)
            yield alphas, betas


def _whole_weights(slow: _Slow | None) -> tuple[int, dict[int, int]]:
    """Factors as whole numbers over a common denominator, which comes first."""
    if slow is None:
        return 1, {}
    per = lcm(*(factor.denominator for factor in slow.values()))
    return per, {a: int(factor * per) for a, factor in slow.items()}


# The link within a node, its other replicas, and those by class of link and factor.
_Profile = tuple[LinkRate, int, tuple[tuple[tuple[int, Fraction], int], ...]]


class _FarLinks:
    """Synchronisation over links that differ pair by pair, between many nodes.

    Common denominators of thousands of links have thousands of digits. So sums over
    links are floats first, and fractions where the floats leave a microsecond open.
    """

    def __init__(self, links: LinkTable, within: Sequence[LinkRate]) -> None:
        self._links, self._within = links, within
        self._latency, self._inverse = links.latency_s, 1 / links.bytes_per_s
        few = {
            id(link): (float(link[0]), float(1 / link[1]) if link[1] else 0.0)
            for link in {id(link): link for link in within}.values()
        }
        self._latency_inside = np.array([few[id(link)][0] for link in within])
        self._inverse_inside = np.array([few[id(link)][1] for link in within])

    def ring_us(
        self,
        size: Fraction,
        scale: int,
        counts: Sequence[int],
        replicas: int,
        slow: _Slow | None,
    ) -> int:
        """The slowest replica's time: to each other, `scale` latencies and a share.

        `size` is what all shares together take at a byte a second; `slow` has factors
        of the time by node, where adapters are told.
        """
        many = np.fromiter(counts, np.int64, len(counts))
        share = float(size) / replicas
        within = scale * self._latency_inside + share * self._inverse_inside
        sums = self._sums(scale, share, many, slow)
        sums = np.where(many > 0, sums + (many - 1) * within, 0.0)
        low, high = _whole_us(float(sums.max()))
        if low == high:
            return low
        near = np.flatnonzero(sums >= sums.max() * (1 - 2 * ROUNDING)).tolist()
        profiles = {self._profile(a, many, slow) for a in near}
        return max(
            -(-total.numerator // total.denominator)
            for total in (
                self._exactly(profile, scale, size / replicas) for profile in profiles
            )
        )

    def _sums(
        self, scale: int, share: float, many: NDArray[np.int64], slow: _Slow | None
    ) -> NDArray[np.float64]:
        """Return each node's time to all replicas on other nodes."""
        latency, wait = scale * self._latency, share * self._inverse
        if slow is None:
            return self._links.sums(latency + wait, many)
        found, factors = np.zeros(len(many)), np.zeros(len(many))
        for a, factor in slow.items():
            factors[a] = float(factor)
        for mine in set(factors[factors > 0].tolist()):
            sums = np.zeros(len(many))
            for other in set(factors[factors > 0].tolist()):
                there = np.where(factors == other, many, 0)
                sums += self._links.sums(latency + wait * max(mine, other), there)
            found = np.where(factors == mine, sums, found)
        return found

    def _profile(self, a: int, many: NDArray[np.int64], slow: _Slow | None) -> _Profile:
        held = np.flatnonzero(many)
        to_others = Counter[tuple[int, Fraction]]()
        classes = self._links.row(a)[held].tolist()
        for b, link in zip(held.tolist(), classes, strict=True):
            factor = max(slow[a], slow[b]) if slow and b != a else _ALL
            to_others[link, factor] += int(many[b])
        own = to_others.pop((-1, _ALL))
        return self._within[a], own - 1, tuple(sorted(to_others.items()))

    def _exactly(self, profile: _Profile, scale: int, share: Fraction) -> Fraction:
        (latency, rate), inside, classes = profile
        total = inside * (scale * latency + share / rate) if inside else Fraction(0)
        for (link, factor), count in classes:
            latency, rate = self._links.exactly(link)
            total += count * (scale * latency + share * factor / rate)
        return total

    def slowest_us(
        self,
        size: Fraction,
        counts: Sequence[int],
        replicas: int,
        slow: _Slow | None,
    ) -> int:
        """Time by the slowest link between two replicas."""
        held = [a for a, count in enumerate(counts) if count]
        rates = [self._within[a][1] for a in held if counts[a] > 1]
        if slow is not None:
            rates += self._rates_within_reach(held, slow)
            total = size * (replicas - 1) / replicas / min(rates)
            return -(-total.numerator // total.denominator)
        slowest = -1
        for a in held if len(held) > 1 else []:
            links = self._links.row(a)[held]
            links = links[links >= 0]
            link = int(links[self._links.bytes_per_s[links].argmin()])
            if slowest < 0 or (
                self._links.bytes_per_s[link] < self._links.bytes_per_s[slowest]
            ):
                slowest = link
        if slowest >= 0:
            rates.append(self._links.exactly(slowest)[1])
        total = size * (replicas - 1) / replicas / min(rates)
        return -(-total.numerator // total.denominator)

    def _rates_within_reach(self, held: list[int], slow: _Slow) -> Iterable[Fraction]:
        """Bytes/s of a ring between any two nodes, each link and factor once."""
        pairs: set[tuple[int, Fraction]] = set()
        for a in held if len(held) > 1 else []:
            links = self._links.row(a)[held].tolist()
            pairs |= {
                (link, max(slow[a], slow[b]))
                for b, link in zip(held, links, strict=True)
                if link >= 0
            }
        return [self._links.exactly(link)[1] / factor for link, factor in pairs]


def _whole_us(value: float) -> tuple[int, int]:
    """Between which whole numbers `value`, known to `ROUNDING`, is rounded up."""
    return ceil(value * (1 - ROUNDING)), ceil(value * (1 + ROUNDING))
