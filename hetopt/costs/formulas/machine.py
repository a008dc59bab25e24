"""A GPU and the machine around it: what data sheets say."""

import math
from typing import NamedTuple


class Machine(NamedTuple):
    """Rates of one GPU, of the links within its node, and of the node's adapters."""

    card: str
    generation: str
    flops: dict[str, float]  # FLOP/s by precision, dense
    memory_bytes_per_s: float
    memory_gib: float
    gpus: int  # of a node, as adapters are counted
    domain: int  # GPUs that fast links join
    link_bytes_per_s: float  # of a GPU, one direction, to others of the domain
    adapters: int
    adapter_bytes_per_s: float
    host: str = "x86"
    rails: int = 64  # adapters that one ring uses, at the most
    site: str = ""  # a machine by name, whose pace was measured
    linked: bool = True  # by links of its own, not by a bus alone or a bridge
    neighbours: int = 0  # that a GPU's links join it to; 0: a switch joins all
    bus_bytes_per_s: float = math.inf  # of a GPU to its host, one direction
    is_told: bool = True  # the rate of a bus that joins GPUs, or they have links

    def across_bytes_per_s(self, members: float) -> float:
        """Return what so many GPUs of a node have between nodes, together."""
        return self.adapter_bytes_per_s * min(
            self.adapters, members * max(1, self.adapters / self.gpus)
        )

    def ring_bytes_per_s(self, size: int, stride: int) -> float:
        """The rate of each of the rings of `size` GPUs, every `stride`-th one.

        Rings of neighbours run at once; all that leaves a node shares its adapters.
        Where links join pairs, those to GPUs that are not of the ring are of no use.
        """
        if size * stride <= self.domain:
            reached = (size - 1) / self.neighbours if self.neighbours else 1.0
            return self.link_bytes_per_s * min(1.0, reached)
        return self.leaving_bytes_per_s(max(1, self.gpus // stride), stride)

    def leaving_bytes_per_s(self, members: int, stride: int) -> float:
        """The rate of a ring that leaves the node, with so many members on it.

        As many run at once as there are GPUs between one member and the next.
        """
        rings = min(stride, self.gpus)
        shared = self.across_bytes_per_s(members * rings) / rings
        rail = self.adapter_bytes_per_s * self.rails
        return min(self.link_bytes_per_s, shared, rail)

    @property
    def share_bytes_per_s(self) -> float:
        """Return what each GPU has between nodes while all of its node send."""
        return self.across_bytes_per_s(self.gpus) / self.gpus


def host_of(card: str) -> str:
    """The processor beside a card of the catalogue: Grace, of GB and GH, is an Arm."""
    return "arm" if card.startswith(("GB", "GH")) else "x86"
