"""The data of a recovery: machines, what is saved where, and who needs what."""

from fractions import Fraction
from functools import cached_property
from math import lcm
from typing import Annotated, Literal, Self

from pydantic import Field, model_validator

from ...schema import GbytesPerS, GpuId, Name, Record, once

CLOUD = "cloud"
MOST_PIECES = 4096  # of one unit: degrees without a common measure have many
Rate = Annotated[int, Field(ge=1, le=10**15)]
Degree = Annotated[int, Field(ge=1, le=4096)]
Units = Annotated[tuple[Name, ...], Field(min_length=1, max_length=10_002)]
Medium = Literal["memory", "disk", "cloud"]


class Unit(Record):
    """A unit is saved and moved by itself: a layer, the embedding or the head."""

    name: Name
    parameters: Annotated[int, Field(ge=0, le=10**13)]


class Machine(Record):
    """A node that is alive, and how fast its storage and its network are."""

    name: Name
    memory_bytes_per_s: Rate
    disk_bytes_per_s: Rate
    network_bytes_per_s: Rate = Field(description="In and out, each.")


class Pair(Record):
    """A link of its own between two nodes, as fast in each direction."""

    first: Name
    second: Name
    bytes_per_s: Rate


class Saved(Record):
    """Shards of one rank and degree, of several units, in one place."""

    place: Name = Field(description="A node, alive or not, or cloud.")
    medium: Medium
    units: Units
    rank: Annotated[int, Field(ge=0)]
    degree: Degree


class Need(Record):
    """The shard that a GPU needs of each of some units."""

    gpu: GpuId
    units: Units
    rank: Annotated[int, Field(ge=0)]
    degree: Degree

    @property
    def node(self) -> str:
        """Node of the GPU."""
        return self.gpu.rpartition(":")[0]


class Data(Record):
    """A recovery's data: what lies where, what is needed where, the links."""

    problem: Literal["recovery"] = "recovery"
    name: Name = "recovery"
    units: Annotated[tuple[Unit, ...], Field(min_length=1, max_length=10_002)]
    bytes_per_parameter: Annotated[int, Field(ge=1, le=64)] = 14
    nodes: Annotated[tuple[Machine, ...], Field(min_length=1, max_length=20_000)]
    pairs: tuple[Pair, ...] = ()
    cloud_bytes_per_s: Rate | None = None
    cloud_limit: Literal["shared", "each_node"] = "shared"
    loads: Literal["each_gpu", "once_a_node"] = "each_gpu"
    slices: Annotated[int, Field(ge=1, le=64)] = 1
    saved: Annotated[tuple[Saved, ...], Field(max_length=1_000_000)]
    needs: Annotated[tuple[Need, ...], Field(max_length=1_000_000)]

    @model_validator(mode="after")
    def _names_agree(self) -> Self:
        once("units of one name", (unit.name for unit in self.units))
        once("nodes of one name", (node.name for node in self.nodes))
        alive = {node.name for node in self.nodes}
        if CLOUD in alive:
            raise ValueError("a node is named 'cloud', which stands for the store")
        for pair in self.pairs:
            if not {pair.first, pair.second} <= alive or pair.first == pair.second:
                raise ValueError(
                    f"a pair joins {pair.first!r} and {pair.second!r}, expected two "
                    "names that nodes lists: correct it"
                )
        ends = (" and ".join(sorted((x.first, x.second))) for x in self.pairs)
        once("nodes listed twice in pairs", ends, "remove one")
        return self

    @model_validator(mode="after")
    def _shards_make_sense(self) -> Self:
        known = {unit.name for unit in self.units}
        rows: tuple[Saved | Need, ...] = (*self.saved, *self.needs)
        for row in rows:
            if strange := [name for name in row.units if name not in known]:
                raise ValueError(f"unknown unit {strange[0]!r}: add it to units")
            if row.rank >= row.degree:
                raise ValueError(
                    f"rank {row.rank} of degree {row.degree}: expected a rank from 0 "
                    f"to {row.degree - 1}"
                )
        for saved in self.saved:
            if (saved.place == CLOUD) != (saved.medium == "cloud"):
                raise ValueError(
                    f"shards in {saved.medium} of {saved.place!r}: expected the medium "
                    "cloud for the place cloud, and for no other"
                )
            if saved.place == CLOUD and self.cloud_bytes_per_s is None:
                raise ValueError("shards lie in the cloud: give cloud_bytes_per_s")
        self._each_need_once()
        if large := [name for name, n in self.grid.items() if n > MOST_PIECES]:
            raise ValueError(
                f"unit {large[0]!r} has {self.grid[large[0]]} pieces, expected at "
                f"most {MOST_PIECES}: use degrees with a common divisor"
            )
        return self

    def _each_need_once(self) -> None:
        alive = {node.name for node in self.nodes}
        for need in self.needs:
            if need.node not in alive:
                raise ValueError(
                    f"{need.gpu!r} needs shards, and nodes lists no {need.node!r}: "
                    "add the node"
                )
        each = ((need.gpu, name) for need in self.needs for name in need.units)
        once("GPU and unit needed twice", each, "list it once")

    @cached_property
    def grid(self) -> dict[str, int]:
        """Return the number of equal pieces of each unit."""
        found = {unit.name: self.slices for unit in self.units}
        degrees: dict[str, set[int]] = {unit.name: {1} for unit in self.units}
        rows: tuple[Saved | Need, ...] = (*self.saved, *self.needs)
        for row in rows:
            for name in row.units:
                degrees[name].add(row.degree)
        return {name: n * lcm(*degrees[name]) for name, n in found.items()}

    @cached_property
    def piece_bytes(self) -> dict[str, Fraction]:
        """Size of one piece of each unit."""
        whole = {unit.name: unit.parameters for unit in self.units}
        each = self.bytes_per_parameter
        return {name: Fraction(each * whole[name], n) for name, n in self.grid.items()}

    def bitmap(self, unit: str) -> dict[tuple[str, Medium], int]:
        """Return the pieces of a unit by place: bit i stands for piece i.

        AutoHet's layer bitmap; places that are no longer alive are left out.
        """
        return self._bitmaps[unit]

    @cached_property
    def _bitmaps(self) -> dict[str, dict[tuple[str, Medium], int]]:
        alive = {CLOUD, *(node.name for node in self.nodes)}
        maps: dict[str, dict[tuple[str, Medium], int]] = {n: {} for n in self.grid}
        for saved in self.saved:
            if saved.place not in alive:
                continue
            key = (saved.place, saved.medium)
            for name in saved.units:
                width = self.grid[name] // saved.degree
                bits = ((1 << width) - 1) << (saved.rank * width)
                maps[name][key] = maps[name].get(key, 0) | bits
        return maps


class Storage(Record):
    """Storage says where checkpoints lie, and rates of media in 10^9 bytes/s.

    The disk's, the cloud's and the network's are the paper's figures. It gives none
    for host memory: 50 GB/s is two PCIe 4.0 x16 links at work. The network's speed is
    the instance's where it has links between nodes.
    """

    media: Annotated[tuple[Literal["memory", "disk"], ...], Field(min_length=1)] = (
        "disk",
    )
    memory_gbytes_per_s: GbytesPerS = 50
    disk_gbytes_per_s: GbytesPerS = 3.5
    network_gbytes_per_s: GbytesPerS = 50
    cloud_gbytes_per_s: GbytesPerS | None = Field(
        default=1.2, description="None where there is no cloud."
    )
    cloud_limit: Literal["shared", "each_node"] = "shared"
    loads: Literal["each_gpu", "once_a_node"] = "each_gpu"
    bytes_per_parameter: Annotated[int, Field(ge=1, le=64)] = 14
    unsaved: tuple[str, ...] = Field(
        default=(), description="Nodes that had not written the last checkpoint."
    )
