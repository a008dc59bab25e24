"""The problem `recovery` by kinds: pieces that are alike, links, and routes over them.

Pieces of one size, read on one node, that lie in the same places are interchangeable:
a plan is how many pieces of each kind come from each place. The time of a link is the
bytes of all pieces that pass it, over its bandwidth.
"""

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property
from math import ceil, floor, gcd, lcm
from typing import NamedTuple

from ...errors import InternalError
from ...plans import Recovery, Transfer
from .records import CLOUD, Data, Medium, Need

Source = tuple[str, Medium]  # a node and its medium, or ("cloud", "cloud")


def bits_of(data: Data, need: Need, unit: str) -> int:
    """Return the pieces of a unit that a need asks for, as a bitmap."""
    width = data.grid[unit] // need.degree
    return ((1 << width) - 1) << (need.rank * width)


def numbers(bits: int) -> Iterator[int]:
    """Yield the numbers of the bits that are set, ascending."""
    while bits:
        lowest = bits & -bits
        yield lowest.bit_length() - 1
        bits ^= lowest


class Assembler:
    """Makes transfers of pieces; which shard holds which piece is looked up once."""

    def __init__(self, data: Data) -> None:
        """Index the shards of `data` by unit and place."""
        self._data = data
        self._shards: dict[tuple[str, Source], list[tuple[int, int]]] = {}
        for saved in data.saved:
            for name in saved.units:
                key = (name, (saved.place, saved.medium))
                self._shards.setdefault(key, []).append((saved.rank, saved.degree))

    def transfers(
        self, gpu: str, unit: str, source: Source, bits: int
    ) -> Iterator[Transfer]:
        """The pieces `bits` of a unit from `source` to a GPU, in as few as possible.

        All of them must lie there.
        """
        grid, found = self._data.grid[unit], self._shards.get((unit, source), [])
        while bits:
            first = (bits & -bits).bit_length() - 1
            (rank, degree), last = self._longest(found, grid, first, bits)
            common = gcd(first, last, grid)
            yield Transfer(
                gpu=gpu,
                unit=unit,
                shard=(rank, degree),
                part=(first // common, last // common, grid // common),
                source=source[0],
                medium=source[1],
            )
            bits &= ~((1 << last) - 1)

    @staticmethod
    def _longest(
        shards: Iterable[tuple[int, int]], grid: int, first: int, bits: int
    ) -> tuple[tuple[int, int], int]:
        """The shard that serves the longest run from `first`, and the run's end."""
        run = first
        while bits >> run & 1:
            run += 1
        ends = (
            ((rank, degree), min(run, (rank + 1) * (grid // degree)))
            for rank, degree in shards
            if rank == first // (grid // degree)
        )
        if best := max(ends, key=lambda end: end[1], default=None):
            return best
        raise InternalError(f"piece {first} of {grid} does not lie in its source")

    def plan(self, chosen: Iterable[tuple[str, str, Source, int]]) -> Recovery:
        """Return the plan of rows (GPU, unit, source, bits)."""
        rows = (t for row in chosen for t in self.transfers(*row))
        return Recovery(transfers=tuple(rows))


class Piece(NamedTuple):
    """A piece of a unit and the GPUs, of one node, that it is read for at once."""

    gpus: tuple[str, ...]
    unit: str
    number: int


@dataclass(frozen=True)
class Kind:
    """Pieces that are alike; `routes` holds the links of each source, in order."""

    node: str
    size: int
    sources: tuple[Source, ...]
    routes: tuple[tuple[str, ...], ...]
    pieces: tuple[Piece, ...]

    @property
    def count(self) -> int:
        """Return the number of pieces."""
        return len(self.pieces)


Flow = dict[tuple[int, int], int]  # (number of the kind, of the source): pieces


def link_between(place: str, node: str) -> str:
    """Name of the link from one node to another; no two links share one."""
    escaped = (x.replace("%", "%25").replace("/", "%2F") for x in (place, node))
    return "pair/" + "/".join(escaped)


class Network:
    """Kinds of pieces and bandwidths of links.

    Sizes are whole `grain`s: the largest number of bytes that divides every piece.
    """

    def __init__(self, data: Data) -> None:
        """Sort the pieces of `data` into kinds."""
        self.data = data
        self._joined = {frozenset((p.first, p.second)) for p in data.pairs}
        used = [size for size in data.piece_bytes.values() if size]
        below = lcm(*(size.denominator for size in used))
        above = gcd(*(int(size * below) for size in used))
        self.grain = Fraction(above, below) if used else Fraction(1)
        self.kinds = tuple(self._kinds())

    def _kinds(self) -> Iterator[Kind]:
        alike: dict[tuple[str, int, tuple[Source, ...]], list[Piece]] = {}
        for node, piece in self._pieces():
            size = int(self.data.piece_bytes[piece.unit] / self.grain)
            key = (node, size, self._sources(node, piece))
            alike.setdefault(key, []).append(piece)
        for (node, size, sources), pieces in alike.items():
            routes = tuple(self.route(node, source) for source in sources)
            yield Kind(node, size, sources, routes, tuple(pieces))

    def _pieces(self) -> Iterator[tuple[str, Piece]]:
        data = self.data
        together: dict[tuple[str, str, int], list[str]] = {}
        for need in data.needs:
            for unit in need.units:
                for number in numbers(bits_of(data, need, unit)):
                    if data.loads == "each_gpu":
                        yield need.node, Piece((need.gpu,), unit, number)
                    else:
                        key = (need.node, unit, number)
                        together.setdefault(key, []).append(need.gpu)
        for (node, unit, number), gpus in together.items():
            yield node, Piece(tuple(gpus), unit, number)

    def _sources(self, node: str, piece: Piece) -> tuple[Source, ...]:
        """Return the sources of a piece, the node's own media first, the cloud last."""
        found = [
            source
            for source, bits in self.data.bitmap(piece.unit).items()
            if bits >> piece.number & 1
        ]
        order = {"memory": 0, "disk": 1, CLOUD: 2}
        found.sort(key=lambda s: (s[0] == CLOUD, s[0] != node, order[s[1]], s[0]))
        return tuple(found)

    def route(self, node: str, source: Source) -> tuple[str, ...]:
        """Return the links that a transfer from `source` to `node` loads."""
        place, medium = source
        if place == CLOUD:
            shared = self.data.cloud_limit == "shared"
            return ("cloud",) if shared else (f"cloud/{node}",)
        if place == node:
            return (f"{medium}/{place}",)
        ends = (f"{medium}/{place}", f"out/{place}", f"in/{node}")
        own = frozenset((place, node)) in self._joined
        return (*ends, link_between(place, node)) if own else ends

    @cached_property
    def bandwidth(self) -> dict[str, int]:
        """Bytes a second of every link that some route uses."""
        rates: dict[str, int] = {}
        for node in self.data.nodes:
            rates[f"memory/{node.name}"] = node.memory_bytes_per_s
            rates[f"disk/{node.name}"] = node.disk_bytes_per_s
            rates[f"out/{node.name}"] = node.network_bytes_per_s
            rates[f"in/{node.name}"] = node.network_bytes_per_s
            rates[f"cloud/{node.name}"] = self.data.cloud_bytes_per_s or 0
        rates["cloud"] = self.data.cloud_bytes_per_s or 0
        for pair in self.data.pairs:
            rates[link_between(pair.first, pair.second)] = pair.bytes_per_s
            rates[link_between(pair.second, pair.first)] = pair.bytes_per_s
        used = dict.fromkeys(x for k in self.kinds for r in k.routes for x in r)
        return {link: rates[link] for link in used}

    def grain_us(self, link: str) -> Fraction:
        """Return the time of one grain over a link."""
        return self.grain * 10**6 / self.bandwidth[link]

    def possible(self, time: int) -> int:
        """The least time, in us, not below `time`, that some link can be busy for."""
        each = [self.grain_us(link) for link in self.bandwidth]
        # Times are rounded up: m grains reach `time` once they exceed `time` - 1.
        grains = (floor((time - 1) / one) + 1 for one in each)
        times = (ceil(m * one) for m, one in zip(grains, each, strict=True))
        return min(times, default=time)

    def lost(self) -> list[tuple[str, str]]:
        """(node, unit) of the pieces that lie nowhere any more."""
        rows = [
            (kind.node, piece.unit)
            for kind in self.kinds
            if not kind.sources
            for piece in kind.pieces
        ]
        return list(dict.fromkeys(rows))

    def plan(self, flow: Mapping[tuple[int, int], int]) -> Recovery:
        """The recovery in which pieces are dealt out in order, as the flow counts."""
        chosen = Counter[tuple[str, str, Source]]()
        for k, kind in enumerate(self.kinds):
            pieces = iter(kind.pieces)
            for s, source in enumerate(kind.sources):
                for _ in range(flow.get((k, s), 0)):
                    piece = next(pieces)
                    for gpu in piece.gpus:
                        chosen[gpu, piece.unit, source] |= 1 << piece.number
        rows = ((*key, bits) for key, bits in chosen.items())
        return Assembler(self.data).plan(sorted(rows))

    def flow(self, plan: Recovery) -> Flow:
        """Return how many pieces of each kind a valid plan takes from each source."""
        came: dict[tuple[str, str, int], Source] = {}
        for t in plan.transfers:
            first, last, of = t.part
            each = self.data.grid[t.unit] // of
            for number in range(first * each, last * each):
                came[t.gpu, t.unit, number] = (t.source, t.medium)
        found = Counter[tuple[int, int]]()
        for k, kind in enumerate(self.kinds):
            for piece in kind.pieces:
                source = came[piece.gpus[0], piece.unit, piece.number]
                found[k, kind.sources.index(source)] += 1
        return found
