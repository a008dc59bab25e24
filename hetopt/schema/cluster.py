"""GPUs, the nodes that have them, and the links between nodes."""

from collections.abc import Iterator, Sequence
from fnmatch import fnmatchcase
from fractions import Fraction
from functools import cached_property
from itertools import chain, combinations
from typing import TYPE_CHECKING, Annotated, Self

from pydantic import Field, model_validator

from .calibration import Precision
from .record import (
    Efficiency,
    GbytesPerS,
    HostGib,
    LatencyUs,
    MemoryGib,
    Name,
    PeakTflops,
    Positive,
    Record,
    UsdPerHour,
    link_of,
    once,
)

if TYPE_CHECKING:
    from .links import LinkTable


#: Pairs that islands may join: as many as a file could list.
MOST_PAIRS = 2_000_000


class GpuType(Record):
    """One type of GPU.

    With `memory_gbytes_per_s`, the rate of its own memory, the optimiser is timed too.
    `card`, `generation` and `peaks` are what calibrated times are looked up with.
    """

    peak_tflops: PeakTflops = Field(
        description="Peak dense TFLOP/s in the precision of the products, 16-bit ones."
    )
    memory_gib: MemoryGib
    efficiency: Efficiency = 1.0
    usd_per_hour: UsdPerHour | None = None
    memory_gbytes_per_s: GbytesPerS | None = None
    watts: Positive | None = None
    host_gbytes_per_s: GbytesPerS | None = None
    aliases: Annotated[tuple[Name, ...], Field(max_length=100)] = ()
    card: Name | None = None
    generation: Name | None = None
    peaks: dict[Precision, PeakTflops] | None = None


class Node(Record):
    """A machine with GPUs of one type, joined by one intra-node link.

    With `adapters`, the link to another node is what all of them carry together, which
    all stages of the node share, and a hop or a ring has the part of it that its GPUs
    reach; without, each has all of it.
    `host_gib` is the memory of its host for offloaded states, which training pins
    there; without it there is as much as a plan needs.
    `gres` is what Slurm calls its GPUs, `product` what nvidia-smi does, and `machine`
    the machine that it is a part of; no figure depends on them.
    """

    name: Name
    gpu: Name
    count: Annotated[int, Field(ge=1, le=4096)]
    intra_gbytes_per_s: GbytesPerS | None = None
    intra_latency_us: LatencyUs = 0
    adapters: Annotated[int, Field(ge=1, le=4096)] | None = None
    host_gib: HostGib | None = None
    gres: Name | None = None
    product: Name | None = None
    machine: Name | None = None

    @model_validator(mode="after")
    def _several_gpus_need_a_link(self) -> Self:
        if self.count > 1 and self.intra_gbytes_per_s is None:
            raise ValueError(
                f"node {self.name!r} has {self.count} GPUs and no intra_gbytes_per_s: "
                "add it"
            )
        return self


class Link(Record):
    """The link between two nodes, as fast in both directions."""

    first: Name
    second: Name
    gbytes_per_s: GbytesPerS
    latency_us: LatencyUs = 0.0

    @model_validator(mode="before")
    @classmethod
    def _of_row(cls, value: object) -> object:
        """Return a link that is written as a row; its latency need not be there."""
        if isinstance(value, list | tuple):
            if len(value) not in (3, 4):
                raise ValueError(
                    "a pair is [node, node, gbytes_per_s] or [node, node, "
                    f"gbytes_per_s, latency_us], found {len(value)} values"
                )
            return dict(zip(cls.model_fields, value, strict=False))
        return value


class Island(Record):
    """Nodes of which every two are joined by one link."""

    nodes: Annotated[tuple[Name, ...], Field(min_length=1, max_length=20_000)] = Field(
        description="Names of nodes, or patterns of them such as a100-*."
    )
    gbytes_per_s: GbytesPerS
    latency_us: LatencyUs = 0


class Inter(Record):
    """Links between nodes: one for all, with exceptions by island and by pair.

    Of two islands with both nodes the later one counts, and a pair before any island.
    In a cluster islands are written out as pairs.
    """

    gbytes_per_s: GbytesPerS | None = None
    latency_us: LatencyUs = 0
    islands: tuple[Island, ...] = ()
    pairs: Annotated[tuple[Link, ...], Field(strict=False)] = ()


class Cluster(Record):
    """Nodes of GPUs and the links between them."""

    gpus: dict[Name, GpuType]
    nodes: Annotated[tuple[Node, ...], Field(min_length=1, max_length=20_000)]
    inter: Inter = Inter()

    @model_validator(mode="after")
    def _islands_are_pairs(self) -> Self:
        inter = self.inter
        if inter.islands:
            joined = _links_of(inter.islands, self._names())
            by_ends = {
                frozenset((link.first, link.second)): link
                for link in chain(joined, inter.pairs)
            }
            fields = {name: getattr(inter, name) for name in inter.model_fields_set}
            del fields["islands"]
            # Frozen from the outside; here the record is still being made.
            pairs = tuple(by_ends.values())
            self.__dict__["inter"] = Inter(**{**fields, "pairs": pairs})
        return self

    def only(self, nodes: Sequence[Node]) -> Self:
        """Return the cluster with these nodes alone, which may have fewer GPUs."""
        names = {node.name for node in nodes}
        types = {node.gpu for node in nodes}
        pairs = tuple(x for x in self.inter.pairs if {x.first, x.second} <= names)
        return self.model_copy(
            update={
                "gpus": {name: gpu for name, gpu in self.gpus.items() if name in types},
                "nodes": tuple(nodes),
                "inter": self.inter.model_copy(update={"pairs": pairs}),
            }
        )

    def _names(self) -> list[str]:
        return [node.name for node in self.nodes]

    @model_validator(mode="after")
    def _names_agree(self) -> Self:
        once("nodes of one name", self._names())
        for node in self.nodes:
            if node.gpu not in self.gpus:
                known = ", ".join(sorted(self.gpus))
                raise ValueError(
                    f"node {node.name!r} has GPUs of unknown type {node.gpu!r}, "
                    f"expected one of {known}: correct it or add the type to gpus"
                )
        if idle := sorted(set(self.gpus) - {node.gpu for node in self.nodes}):
            raise ValueError(
                f"GPU types that no node has: {', '.join(idle)}: "
                "add a node of the type or remove it"
            )
        for pair in self.inter.pairs:
            for end in (pair.first, pair.second):
                if end not in self.node:
                    raise ValueError(
                        f"inter.pairs names {end!r}, expected a name that nodes lists: "
                        "correct it"
                    )
            if pair.first == pair.second:
                raise ValueError(
                    f"inter.pairs joins {pair.first!r} to itself: give its "
                    "intra_gbytes_per_s instead"
                )
        linked = {frozenset((pair.first, pair.second)) for pair in self.inter.pairs}
        is_told = self.inter.gbytes_per_s is not None
        for a, b in () if is_told else combinations(self._names(), 2):
            if frozenset((a, b)) not in linked:
                raise ValueError(
                    f"no link between {a!r} and {b!r}: give inter.gbytes_per_s or a "
                    "row of inter.pairs"
                )
        return self

    @cached_property
    def node(self) -> dict[str, Node]:
        """Return the nodes by name."""
        return {node.name: node for node in self.nodes}

    @property
    def alike(self) -> list[list[Node]]:
        """Return the nodes in groups, within which no figure depends on the node."""
        words = dict.fromkeys(("name", "gres", "product", "machine"))
        kinds: dict[Node, list[Node]] = {}
        for node in self.nodes:
            kinds.setdefault(node.model_copy(update=words), []).append(node)
        return [*kinds.values()]

    @cached_property
    def gpu_count(self) -> int:
        """Return the number of GPUs in the cluster."""
        return sum(node.count for node in self.nodes)

    def gpu_ids(self) -> Iterator[str]:
        """Every GPU as `node:index`, in the order of the nodes."""
        return (f"{node.name}:{i}" for node in self.nodes for i in range(node.count))

    @cached_property
    def number(self) -> dict[str, int]:
        """Return the number of each node, by its name."""
        return {node.name: i for i, node in enumerate(self.nodes)}

    @cached_property
    def links(self) -> "LinkTable":
        """Return the links between nodes, by classes of equal ones."""
        from .links import LinkTable  # numpy is loaded where links are asked for

        inter, number = self.inter, self.number
        usual = None
        if inter.gbytes_per_s is not None:
            usual = inter.gbytes_per_s, inter.latency_us
        rows = (
            (number[x.first], number[x.second], (x.gbytes_per_s, x.latency_us))
            for x in inter.pairs
        )
        return LinkTable(len(self.nodes), rows, usual)

    def link(self, a: str, b: str) -> tuple[Fraction, Fraction]:
        """Latency in s and bandwidth in bytes/s between GPUs of nodes `a` and `b`.

        For `a == b` it is the intra-node link; a node of one GPU has none (KeyError).
        """
        if a == b:
            node = self.node[a]
            if node.intra_gbytes_per_s is None:
                raise KeyError(f"node {a!r} has one GPU and no link within")
            return link_of(node.intra_gbytes_per_s, node.intra_latency_us)
        if self.inter.pairs:
            return self.links.exactly(
                self.links.between(self.number[a], self.number[b])
            )
        assert self.inter.gbytes_per_s is not None
        return link_of(self.inter.gbytes_per_s, self.inter.latency_us)


def _links_of(islands: Sequence[Island], names: Sequence[str]) -> Iterator[Link]:
    """Yield every pair that the islands join, in their order.

    `ValueError` for a name or pattern that no node has, an island of one node, and
    more pairs than `MOST_PAIRS`.
    """
    joined = 0
    for at, island in enumerate(islands):
        there = _members(island, names, f"inter.islands[{at}].nodes")
        joined += len(there) * (len(there) - 1) // 2
        if joined > MOST_PAIRS:
            raise ValueError(
                f"inter.islands join {joined} pairs of nodes, expected at most "
                f"{MOST_PAIRS}: give the link of most nodes as inter.gbytes_per_s"
            )
        link = {
            "gbytes_per_s": island.gbytes_per_s,
            "latency_us": float(island.latency_us),
        }
        for a, b in combinations(there, 2):
            yield Link.model_construct(None, first=a, second=b, **link)


def _members(island: Island, names: Sequence[str], field: str) -> list[str]:
    """The nodes of an island; a node's own name is no pattern, whatever it holds."""
    known = frozenset(names)
    found: dict[str, None] = {}
    for word in island.nodes:
        fits = [word] if word in known else [n for n in names if fnmatchcase(n, word)]
        if not fits:
            raise ValueError(
                f"{field} has {word!r}, expected the name of a node or a pattern of "
                "such, as a100-*: correct it"
            )
        found |= dict.fromkeys(fits)
    if len(found) == 1:
        raise ValueError(
            f"{field} matches only node {next(iter(found))!r}, expected at least two: "
            "correct it"
        )
    return list(found)
