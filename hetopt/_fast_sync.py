"""Synchronisation times of layers, fast and exact.

The synchronisation of a layer depends on how many of its replicas lie on each node
and on their least degree. Both are digits of one integer per layer, its *signature*:
adding or removing a pipeline adds or subtracts a constant, and equal signatures have
equal times, which are kept.
"""

from collections.abc import Iterable, Sequence
from fractions import Fraction
from itertools import accumulate
from math import lcm
from operator import add, sub
from typing import NamedTuple

import numpy as np

from .costs import CostTable
from .schema import Recompute

KEPT = 400_000  # entries of a cache before it is emptied


class Slot(NamedTuple):
    """A stage: `t` GPUs of a node, and its layers `first` to `last` - 1.

    `recompute` is the stage's own rule, None that of the workload.
    """

    node: int
    t: int
    first: int
    last: int
    recompute: Recompute | None = None


class SyncTimes:
    """Synchronisation time of a layer from its signature, and what links need."""

    def __init__(self, table: CostTable, parameters: Sequence[int]) -> None:
        self._parameters = parameters
        self._one_size = len(set(parameters)) == 1
        workload = table.workload
        self._ring = workload.costs.sync == "ring"
        self._passes = workload.costs.sync_passes
        self._each = workload.costs.gradient_bytes
        with_ends = workload.costs.head == "include"
        self._end_parameters = table.model.embedding_parameters if with_ends else 0
        cluster = table.cluster
        self._count = len(cluster.nodes)
        degrees = max(node.count for node in cluster.nodes)
        self._digits = self._count + degrees
        # No layer has more replicas than there are GPUs: digits never overflow.
        self._bits = 8 * next(w for w in (1, 2, 4, 8) if cluster.gpu_count < 256**w)
        self._kept: dict[tuple[int, int], int] = {}
        self._weights: dict[tuple[Slot, ...], list[int]] = {}
        self._links(table)

    def _links(self, table: CostTable) -> None:
        """Latencies and inverse bandwidths as integers over common denominators."""
        cluster = table.cluster
        names = [node.name for node in cluster.nodes]
        self._uniform = not cluster.inter.pairs
        far = table.link(names[0], names[1]) if len(names) > 1 else (Fraction(0),) * 2
        within = [
            table.link(node.name, node.name) if node.count > 1 else (Fraction(0),) * 2
            for node in cluster.nodes
        ]
        rows = [[far]] if self._uniform else []
        if not self._uniform:
            rows = [[table.link(a, b) if a != b else within[i] for b in names]
                    for i, a in enumerate(names)]  # fmt: skip
        links = {link for row in [*rows, within] for link in row}
        self._alpha = lcm(*(latency.denominator for latency, _ in links))
        self._beta = lcm(*(rate.numerator for _, rate in links if rate))

        def whole(link: tuple[Fraction, Fraction]) -> tuple[int, int]:
            latency, rate = link
            return int(latency * self._alpha), int(self._beta / rate) if rate else 0

        self._within = [whole(link) for link in within]
        self._across = [[whole(link) for link in row] for row in rows]

    def weights(self, slots: tuple[Slot, ...]) -> list[int]:
        """What a pipeline adds to the signature of each layer."""
        found = self._weights.get(slots)
        if found is None:
            if len(self._weights) >= KEPT // 4:
                self._weights.clear()
            bits, found = self._bits, []
            for node, t, first, last, _ in slots:
                weight = (1 << bits * node) + (1 << bits * (self._count + t - 1))
                found += [weight] * (last - first)
            self._weights[slots] = found
        return found

    def signatures(self, pipes: Iterable[tuple[Slot, ...]]) -> list[int]:
        """Signature of every layer."""
        return self.changed([0] * len(self._parameters), (), pipes)

    def changed(
        self,
        signatures: list[int],
        removed: Iterable[tuple[Slot, ...]],
        added: Iterable[tuple[Slot, ...]],
    ) -> list[int]:
        """Signatures with some pipelines taken away and others added."""
        for slots in removed:
            signatures = list(map(sub, signatures, self.weights(slots)))
        for slots in added:
            signatures = list(map(add, signatures, self.weights(slots)))
        return signatures

    def times(self, signatures: Sequence[int]) -> tuple[list[int], int, int]:
        """Sums of sync times over the layers before each; embedding's; head's."""
        embedding = head = 0
        if self._end_parameters:
            embedding = self._time(self._end_parameters, signatures[0])
            head = self._time(self._end_parameters, signatures[-1])
        if self._one_size:
            size = self._parameters[0]
            one = {s: self._time(size, s) for s in set(signatures)}
            each: Iterable[int] = map(one.__getitem__, signatures)
        else:
            each = map(self._time, self._parameters, signatures)
        return list(accumulate(each, initial=0)), embedding, head

    def _time(self, parameters: int, signature: int) -> int:
        key = (parameters, signature)
        found = self._kept.get(key)
        if found is None:
            if len(self._kept) >= KEPT:
                self._kept.clear()
            found = self._kept[key] = self._time_of(parameters, signature)
        return found

    def _time_of(self, parameters: int, signature: int) -> int:
        digits = self._decoded(signature)
        counts = digits[: self._count]
        replicas = sum(counts)
        if replicas < 2:
            return 0
        t = next(i for i, c in enumerate(digits[self._count :], 1) if c)
        if not self._ring:
            inverse = self._slowest_link([(a, c) for a, c in enumerate(counts) if c])
            volume = self._passes * self._each * parameters
            top = volume * (replicas - 1) * inverse * 10**6
            return -(-top // (replicas * t * self._beta))
        share = t * replicas
        worst = max(
            alphas * share * self._beta + self._each * parameters * betas * self._alpha
            for alphas, betas in self._to_others(counts, replicas)
        )
        top = self._passes * worst * 10**6
        return -(-top // (self._alpha * share * self._beta))

    def _decoded(self, signature: int) -> Sequence[int]:
        """Replicas on each node, then replicas of each degree from 1."""
        width = self._bits // 8
        raw = signature.to_bytes(width * self._digits, "little")
        if width == 1:
            return raw
        found: list[int] = np.frombuffer(raw, f"<u{width}").tolist()
        return found

    def _slowest_link(self, held: list[tuple[int, int]]) -> int:
        """The largest inverse bandwidth between two replicas."""
        rates = [self._within[a][1] for a, c in held if c > 1]
        if self._uniform and len(held) > 1:
            rates.append(self._across[0][0][1])
        elif not self._uniform:
            rates += [self._across[a][b][1] for a, _ in held for b, _ in held if a != b]
        return max(rates)

    def _to_others(
        self, counts: Sequence[int], replicas: int
    ) -> Iterable[tuple[int, int]]:
        """Latencies and inverse bandwidths from a replica of each node, summed."""
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
