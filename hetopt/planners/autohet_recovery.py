"""AutoHet's recovery: local first, then a peer over the network, then the cloud.

Every GPU takes each piece from its own node's memory, else its own node's disk, else
another node, else the cloud. Where the degree of tensor parallelism stays, shards are
read as they are; where it doubles, slices of them; where it halves, two are joined.

Where the paper is silent: of several peers the one is taken that has sent the fewest
bytes so far, memory before disk, in the order of the nodes. The paper's first case,
states that are not complete on the nodes, names only the cloud for what is missing;
here pieces that a peer has still come from the peer.

Source: AutoHet, section IV.
"""

from fractions import Fraction
from typing import Literal

from ..errors import NoPlan
from ..plans import Recovery
from ..problems.recovery import CLOUD, Data
from ..problems.recovery.network import Assembler, Source, bits_of

problem: Literal["recovery"] = "recovery"


def plan(data: Data, *, seed: int = 0, deadline: float | None = None) -> Recovery:
    """Return the paper's choice for every piece; `NoPlan` names a unit that is lost.

    Neither `seed` nor `deadline` has an effect.
    """
    nearest = _Nearest(data)
    rows = [
        (need.gpu, unit, source, bits)
        for need in data.needs
        for unit in need.units
        for source, bits in nearest.parts(need.node, unit, bits_of(data, need, unit))
    ]
    return Assembler(data).plan(rows)


class _Nearest:
    """Finds sources, and remembers what every peer has sent."""

    def __init__(self, data: Data) -> None:
        self._data = data
        self._order = {node.name: i for i, node in enumerate(data.nodes)}
        self._sent = {node.name: Fraction(0) for node in data.nodes}
        self._read: dict[tuple[str, str], dict[Source, int]] = {}

    def parts(self, node: str, unit: str, bits: int) -> list[tuple[Source, int]]:
        """Return the pieces `bits` of a unit for a GPU of `node`, by source."""
        found: dict[Source, int] = {}
        if self._data.loads == "once_a_node":
            # What the node has read for another GPU is there already.
            for source, held in self._read.get((node, unit), {}).items():
                if bits & held:
                    found[source] = bits & held
                    bits &= ~held
        for source in self._near(node, unit):
            if not bits:
                break
            if taken := bits & self._data.bitmap(unit)[source]:
                self._take(node, unit, source, taken)
                found[source] = found.get(source, 0) | taken
                bits &= ~taken
        if bits:
            raise NoPlan(
                f"autohet_recovery: a part of unit {unit!r}, which {node!r} needs, "
                "is lost"
            )
        return list(found.items())

    def _near(self, node: str, unit: str) -> list[Source]:
        """Sources from near to far; peers by what they have sent so far."""

        def rank(source: Source) -> tuple[int, Fraction, bool, int]:
            place, medium = source
            if place == CLOUD:
                return 2, Fraction(0), False, 0
            if place == node:
                return 0, Fraction(0), medium != "memory", 0
            return 1, self._sent[place], medium != "memory", self._order[place]

        return sorted(self._data.bitmap(unit), key=rank)

    def _take(self, node: str, unit: str, source: Source, bits: int) -> None:
        if source[0] not in (node, CLOUD):
            self._sent[source[0]] += self._data.piece_bytes[unit] * bits.bit_count()
        held = self._read.setdefault((node, unit), {})
        held[source] = held.get(source, 0) | bits
