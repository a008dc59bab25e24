"""Idle GPUs of a cluster, by node and by kind."""

import heapq
from collections import Counter
from collections.abc import Callable, Iterable

from ..schema import Cluster


class Idle:
    """Idle GPUs by node; `kind_of` says which types count as one kind of GPU."""

    def __init__(self, cluster: Cluster, kind_of: Callable[[str], int]) -> None:
        self.cluster = cluster
        self._kind = {node.name: kind_of(node.gpu) for node in cluster.nodes}
        self._free = {node.name: list(range(node.count)) for node in cluster.nodes}
        self.kinds = sorted(set(self._kind.values()))
        self._total = Counter[int]()
        self._nodes: dict[int, list[str]] = {kind: [] for kind in self.kinds}
        for node in cluster.nodes:
            self._nodes[self._kind[node.name]].append(node.name)
            self._total[self._kind[node.name]] += node.count

    def total(self, kind: int) -> int:
        """Idle GPUs of a kind."""
        return self._total[kind]

    def on(self, node: str) -> int:
        """Idle GPUs of a node."""
        return len(self._free[node])

    def take(self, node: str, gpus: int) -> tuple[str, ...]:
        """Take the lowest-numbered idle GPUs of a node; it must have as many."""
        taken = sorted(heapq.heappop(self._free[node]) for _ in range(gpus))
        self._total[self._kind[node]] -= gpus
        return tuple(f"{node}:{index}" for index in taken)

    def give(self, gpus: Iterable[str]) -> None:
        """Give GPUs back."""
        for gpu in gpus:
            node, _, number = gpu.rpartition(":")
            heapq.heappush(self._free[node], int(number))
            self._total[self._kind[node]] += 1

    def best_fit(self, kinds: list[int], gpus: int) -> dict[str, int] | None:
        """Return the GPUs by node, of these kinds alike; None where they are too few.

        The node with the fewest idle GPUs that holds all that are still missing; where
        there is none, the node with the most, and again for the rest (Frenzy, algorithm
        1). Among equals, the first of the kinds. Nothing is taken.
        """
        if sum(map(self.total, kinds)) < gpus:
            return None
        names = (name for kind in kinds for name in self._nodes[kind])
        idle = {name: self.on(name) for name in names}
        held: dict[str, int] = {}
        while gpus:
            enough = [name for name, count in idle.items() if count >= gpus]
            # Of equal ones both take the first.
            choose, among = (min, enough) if enough else (max, idle)
            node = choose(among, key=idle.__getitem__)
            held[node] = min(gpus, idle.pop(node))
            gpus -= held[node]
        return held
