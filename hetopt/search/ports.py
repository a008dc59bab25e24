"""How long the ports of nodes are busy, fast and exact: sums of whole numbers.

A node with `adapters` has its links' rate once for all its stages. Its port toward
links of one rate is an entry of a list here; bytes of pipelines and of rings are added
up by entry, and the entry that is busy longest is rounded up once. The definition is
the judge's (`hetopt.problems.training_plan.ports`), with which it shares no code.
"""

from collections.abc import Iterable, Mapping, Sequence
from fractions import Fraction

import numpy as np

from ..costs import CostTable

#: Bytes by the number of a port.
Sent = tuple[tuple[int, int], ...]


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
