"""Idle GPUs of a cluster, in buckets by their number on a node.

Finding the fullest node that still has n idle GPUs looks at as many buckets as a node
has GPUs, however many nodes there are.
"""

import heapq
from collections.abc import Callable, Iterable

from ..schema import Cluster


class _Buckets:
    """Nodes of one kind by their number of idle GPUs; the total is kept."""

    def __init__(self, largest: int) -> None:
        # Dictionaries keep the order in which nodes came: the same run, the same node.
        self.nodes: list[dict[str, None]] = [{} for _ in range(largest + 1)]
        self.total = 0

    def move(self, node: str, before: int, after: int) -> None:
        del self.nodes[before][node]
        self.nodes[after][node] = None
        self.total += after - before

    def first(self, count: int) -> str | None:
        """Return a node with so many idle GPUs; None without."""
        return next(iter(self.nodes[count]), None)


class Idle:
    """Idle GPUs by node; `kind_of` says which types count as one kind of GPU."""

    def __init__(self, cluster: Cluster, kind_of: Callable[[str], int]) -> None:
        self.cluster = cluster
        self._kind = {node.name: kind_of(node.gpu) for node in cluster.nodes}
        self._free = {node.name: list(range(node.count)) for node in cluster.nodes}
        self.kinds = sorted(set(self._kind.values()))
        self._by_kind = {kind: _Buckets(self._largest(kind)) for kind in self.kinds}
        for node in cluster.nodes:
            buckets = self._by_kind[self._kind[node.name]]
            buckets.nodes[node.count][node.name] = None
            buckets.total += node.count

    def _largest(self, kind: int) -> int:
        nodes = self.cluster.nodes
        return max(node.count for node in nodes if self._kind[node.name] == kind)

    def total(self, kind: int) -> int:
        """Idle GPUs of a kind."""
        return self._by_kind[kind].total

    def on(self, node: str) -> int:
        """Idle GPUs of a node."""
        return len(self._free[node])

    def take(self, node: str, gpus: int) -> tuple[str, ...]:
        """Take the lowest-numbered idle GPUs of a node; it must have as many."""
        free = self._free[node]
        before = len(free)
        taken = sorted(heapq.heappop(free) for _ in range(gpus))
        self._by_kind[self._kind[node]].move(node, before, len(free))
        return tuple(f"{node}:{index}" for index in taken)

    def give(self, gpus: Iterable[str]) -> None:
        """Give GPUs back."""
        by_node: dict[str, list[int]] = {}
        for gpu in gpus:
            name, _, number = gpu.rpartition(":")
            by_node.setdefault(name, []).append(int(number))
        for node, indices in by_node.items():
            free = self._free[node]
            before = len(free)
            for index in indices:
                heapq.heappush(free, index)
            self._by_kind[self._kind[node]].move(node, before, len(free))

    def best_fit(self, kinds: list[int], gpus: int) -> dict[str, int] | None:
        """Return the GPUs by node, of these kinds alike; None where they are too few.

        The node with the fewest idle GPUs that holds all that are still missing; where
        there is none, the node with the most, and again for the rest (Frenzy, algorithm
        1). Among equals, the first of the kinds. Nothing is taken.
        """
        alike = [self._by_kind[kind] for kind in kinds]
        if sum(one.total for one in alike) < gpus:
            return None
        held: dict[str, int] = {}
        undo: list[tuple[_Buckets, str, int]] = []
        while gpus and (found := _best(alike, gpus)):
            buckets, node, count = found
            held[node] = min(count, gpus)
            gpus -= held[node]
            buckets.move(node, count, 0)
            undo.append((buckets, node, count))
        for buckets, node, count in reversed(undo):
            buckets.move(node, 0, count)
        return held


def _best(kinds: list[_Buckets], gpus: int) -> tuple[_Buckets, str, int] | None:
    """A node of the kinds for so many GPUs, or for a part of them: what it has idle."""
    largest = max((len(kind.nodes) for kind in kinds), default=0) - 1
    for count in (*range(gpus, largest + 1), *range(min(gpus - 1, largest), 0, -1)):
        for kind in kinds:
            if count < len(kind.nodes) and (node := kind.first(count)):
                return kind, node, count
    return None
