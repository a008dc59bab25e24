"""By how much a plan misses the memory of its GPUs: what planners say for a reason."""

from collections.abc import Iterable
from typing import NamedTuple

from .fast_cost import FastCost, Pipe


class Shortage(NamedTuple):
    """MiB that each GPU of the stage at position `stage` lacks."""

    mib: int
    node: str
    stage: int

    def __str__(self) -> str:
        return f"{self.mib} MiB a GPU on node {self.node!r}, stage {self.stage}"


def worst_shortage(cost: FastCost, pipes: Iterable[Pipe]) -> Shortage | None:
    """The largest shortage of a plan; None where it fits."""
    found: list[Shortage] = []
    lacking: dict[tuple[object, ...], int] = {}  # nodes of a kind lack the same
    for n, b, slots in set(pipes):
        cost.check()
        for j, slot in enumerate(slots):
            key = (
                n,
                b,
                len(slots),
                j,
                cost.kind[slot.node],
                cost.room[slot.node],
                slot[1:],
            )
            if key not in lacking:
                need = cost.need_mib(b, n, len(slots), j, slot)
                lacking[key] = need - cost.room[slot.node]
            if lacking[key] > 0:
                found.append(Shortage(lacking[key], cost.names[slot.node], j))
    return max(found, default=None)
