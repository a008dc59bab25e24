"""Rows of stages of one pipeline that find nodes: a statement for plans, not a bound.

Chains have as many GPUs as divide those of a node, and use them all. So nodes that have
GPUs enough have room for each chain, and what is left of them is for spread stages.
"""

from collections.abc import Iterator

from .rows import Room, Rows, Shape
from .stages import Stages


class RowsOnNodes(Rows):
    """Rows of stages that no other pipeline is beside."""

    def chains(self, stages: Stages, kind: int) -> list[int]:
        """How many GPUs of a node of a kind chains use."""
        whole = len(stages.away[kind]) - 1
        return [c for c in range(1, whole + 1) if not whole % c]

    def packed(self, stages: Stages, kind: int) -> Iterator[Shape]:
        """Stages in one node of a kind; the last of a chain uses all that is left."""
        within, away = stages.within[kind], stages.away[kind]
        whole = len(away) - 1  # of a chain so long alone there are times
        for chain in self.chains(stages, kind):
            lefts = {Room(): chain}
            lefts |= {Room(kind, chain, left): left for left in range(1, chain)}
            if chain == whole > 1:
                lefts[Room(kind)] = chain - 1
            for room, left in lefts.items():
                for k in range(1, left + 1):
                    use = tuple(k if c == kind else 0 for c in range(len(stages.away)))
                    rest = Room(kind, chain, left - k) if left > k else Room()
                    us = (within if left > k else away)[whole, k]
                    yield Shape(use, (self.rooms[room],), self.rooms[rest], us, True)
