"""GPUs, the nodes that have them, and the links between nodes."""

import json
import operator
import secrets
from array import array
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from fractions import Fraction
from functools import cached_property
from itertools import chain
from typing import TYPE_CHECKING, Annotated, Any, Self, cast, overload

from pydantic import (
    BeforeValidator,
    Field,
    GetCoreSchemaHandler,
    SerializationInfo,
    ValidationError,
    ValidationInfo,
    model_validator,
)
from pydantic_core import CoreSchema, core_schema

from .calibration import Precision
from .islands import Island, Row, rows
from .rates import slower
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
    exact,
)

if TYPE_CHECKING:
    from .links import LinkTable


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

    _later = frozenset(
        {
            *("memory_gbytes_per_s", "watts", "aliases"),
            *("card", "generation", "peaks", "host_gbytes_per_s"),
        }
    )


class Node(Record):
    """A machine with GPUs of one type, joined by one intra-node link.

    With `adapters`, the link to another node is what all of them carry together, which
    all stages of the node share, and a hop or a ring has the part of it that its GPUs
    reach; without, each has all of it.
    `host_gib` is the memory of its host for what training pins there: offloaded states
    and activations; without it there is as much as a plan needs.
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

    _later = frozenset({"adapters", "host_gib", "gres", "product", "machine"})

    @model_validator(mode="after")
    def _several_gpus_need_a_link(self) -> Self:
        if self.count > 1 and self.intra_gbytes_per_s is None:
            raise ValueError(
                f"node {self.name!r} has {self.count} GPUs and no intra_gbytes_per_s: "
                "add it"
            )
        return self


def _as_link(value: object) -> object:
    """Return a pair written as a row; the last two of its values need not be there."""
    if isinstance(value, list | tuple):
        if len(value) not in (3, 4, 5):
            raise ValueError(
                "a pair is [node, node, gbytes_per_s] or [node, node, gbytes_per_s, "
                f"latency_us, back_gbytes_per_s], found {len(value)} values"
            )
        return dict(zip(Link.model_fields, value, strict=False))
    return value


class Link(Record):
    """The link between two nodes; `back_gbytes_per_s` from the second to the first.

    Without it both directions are alike. A hop sends activations one way and gradients
    the other; a ring waits for the slower direction.
    """

    first: Name
    second: Name
    gbytes_per_s: GbytesPerS
    latency_us: LatencyUs = 0
    back_gbytes_per_s: GbytesPerS | None = None

    _later = frozenset({"back_gbytes_per_s"})

    @property
    def slower_gbytes_per_s(self) -> float:
        """Return the rate of the slower direction."""
        return slower((self.gbytes_per_s, self.latency_us, self.back_gbytes_per_s))


class Pairs(Sequence[Link]):
    """Links of single pairs of nodes, a sequence of `Link`; held as numbers.

    A thousand nodes have half a million pairs. Each is three numbers here, of its ends
    among `names` and of its (gbytes_per_s, latency_us, back_gbytes_per_s) among
    `rates`; a `Link` is made when it is asked for.
    """

    __slots__ = ("firsts", "names", "rated", "rates", "seconds")

    def __init__(self, links: Iterable[Link] = ()) -> None:
        """Hold links as columns, in their order."""
        rows = [tuple(getattr(x, name) for name in Link.model_fields) for x in links]
        self._hold(*(zip(*rows, strict=True) if rows else ((), (), (), (), ())))

    def _hold(
        self,
        firsts: Sequence[str],
        seconds: Sequence[str],
        gbytes_per_s: Iterable[float],
        latencies_us: Iterable[float],
        back_gbytes_per_s: Iterable[float | None],
    ) -> None:
        place = {name: i for i, name in enumerate(dict.fromkeys((*firsts, *seconds)))}
        backs = (None if rate is None else float(rate) for rate in back_gbytes_per_s)
        rows = list(zip(map(float, gbytes_per_s), map(float, latencies_us), backs))  # noqa: B905
        rate = {row: i for i, row in enumerate(dict.fromkeys(rows))}
        self.names, self.rates = tuple(place), tuple(rate)
        self.firsts = array("i", map(place.__getitem__, firsts))
        self.seconds = array("i", map(place.__getitem__, seconds))
        self.rated = array("i", map(rate.__getitem__, rows))

    def __len__(self) -> int:
        return len(self.firsts)

    @overload
    def __getitem__(self, at: int) -> Link: ...

    @overload
    def __getitem__(self, at: slice) -> tuple[Link, ...]: ...

    def __getitem__(self, at: int | slice) -> Link | tuple[Link, ...]:
        if isinstance(at, slice):
            return tuple(self[i] for i in range(*at.indices(len(self))))
        rate, latency, back = self.rates[self.rated[at]]
        return Link(
            first=self.names[self.firsts[at]],
            second=self.names[self.seconds[at]],
            gbytes_per_s=rate,
            latency_us=latency,
            back_gbytes_per_s=back,
        )

    def _content(self) -> tuple[object, ...]:
        """Equal for equal links in an equal order, and for no others."""
        numbers = (self.firsts, self.seconds, self.rated)
        return self.names, self.rates, *(column.tobytes() for column in numbers)

    def __eq__(self, other: object) -> bool:
        if isinstance(other, list | tuple):
            return tuple(self) == tuple(other)
        return isinstance(other, Pairs) and self._content() == other._content()

    def __hash__(self) -> int:
        return hash(self._content())

    def __repr__(self) -> str:
        return repr(tuple(self)) if len(self) < 10 else f"Pairs of {len(self)} links"

    @classmethod
    def __get_pydantic_core_schema__(
        cls, source: object, handler: GetCoreSchemaHandler
    ) -> CoreSchema:
        row = Annotated[Link, BeforeValidator(_as_link)]
        return core_schema.with_info_wrap_validator_function(
            cls._read,
            handler.generate_schema(tuple[row, ...]),
            serialization=core_schema.plain_serializer_function_ser_schema(
                _as_objects, info_arg=True
            ),
        )

    @classmethod
    def _read(cls, value: Any, rows: Any, info: ValidationInfo) -> "Pairs":
        """Read rows or links; `Link` reports what is wrong with one, and where.

        Rows of plain values are looked at all together, which is ten times as fast. A
        reader that did so itself has them in the context.
        """
        if info.context is not None and "pairs" in info.context:
            return cast("Pairs", info.context["pairs"])
        if isinstance(value, Pairs):
            return value
        if isinstance(value, list | tuple) and (made := cls.plain(value)) is not None:
            return made
        return cls(rows(tuple(value) if isinstance(value, list) else value))

    @classmethod
    def plain(cls, rows: Sequence[Any]) -> "Pairs | None":
        """Return rows of names and numbers, every different one of which is right."""
        kinds = set(map(type, rows))
        if kinds == {dict} and set(map(len, rows)) == {4}:
            columns = operator.itemgetter(*list(Link.model_fields)[:4])
            with suppress(KeyError):
                return cls.plain([columns(row) for row in rows])
        if not rows or not kinds <= {list, tuple}:
            return None
        lengths = set(map(len, rows))
        if not lengths <= {3, 4, 5}:
            return None
        rows = [(*row, 0, None)[:5] if len(row) == 3 else (*row, None) for row in rows]
        firsts, seconds, rates, latencies, backs = zip(
            *(row[:5] for row in rows), strict=True
        )
        texts, numbers = chain(firsts, seconds), chain(rates, latencies)
        if set(map(type, texts)) != {str} or not set(map(type, numbers)) <= {
            int,
            float,
        }:
            return None
        if not set(map(type, backs)) <= {int, float, type(None)}:
            return None
        made = cls()
        try:
            made._hold(firsts, seconds, rates, latencies, backs)
            for name in made.names:
                Link(first=name, second=name, gbytes_per_s=1)
            for values in made.rates:
                rate = dict(zip([*Link.model_fields][2:], values, strict=True))
                Link.model_validate({"first": "a", "second": "b", **rate})
        except (ValidationError, OverflowError):
            return None
        return made


def _canonical(pairs: Pairs) -> str:
    """Return the links as the digest reads them."""
    names = [json.dumps(name) for name in pairs.names]
    rates = [
        f'"gbytes_per_s":{rate!r},"latency_us":{us!r}' for rate, us, _ in pairs.rates
    ]
    backs = [
        "" if back is None else f'"back_gbytes_per_s":{back!r},'
        for _, _, back in pairs.rates
    ]
    rows = zip(pairs.firsts, pairs.seconds, pairs.rated, strict=True)
    each = (
        f'{{{backs[k]}"first":{names[a]},{rates[k]},"second":{names[b]}}}'
        for a, b, k in rows
    )
    return f"[{','.join(each)}]"


def _as_objects(pairs: Pairs, info: SerializationInfo) -> object:
    """Return the links as objects, a tuple of them in Python, as any record has."""
    if info.context is not None and "links" in info.context:
        mark = secrets.token_hex()  # no text of a file is that
        info.context["links"][mark] = _canonical(pairs)
        return mark
    short = info.exclude_unset or info.exclude_defaults
    rates = [
        {"gbytes_per_s": rate}
        | ({} if short and not us else {"latency_us": us})
        | ({} if back is None else {"back_gbytes_per_s": back})
        for rate, us, back in pairs.rates
    ]
    names = pairs.names
    rows = zip(pairs.firsts, pairs.seconds, pairs.rated, strict=True)
    made = [{"first": names[a], "second": names[b], **rates[k]} for a, b, k in rows]
    return made if info.mode == "json" else tuple(made)


class Inter(Record):
    """Links between nodes: one for all, with exceptions by island and by pair.

    Of two islands with both nodes the later one counts, and a pair before any island.
    In a cluster islands are written out as pairs.
    """

    gbytes_per_s: GbytesPerS | None = None
    latency_us: LatencyUs = 0
    islands: tuple[Island, ...] = ()
    pairs: Pairs = Pairs()

    _later = frozenset({"islands"})


class Cluster(Record):
    """Nodes of GPUs and the links between them."""

    gpus: dict[Name, GpuType]
    nodes: Annotated[tuple[Node, ...], Field(min_length=1, max_length=20_000)]
    inter: Inter = Inter()

    @model_validator(mode="after")
    def _islands_are_pairs(self) -> Self:
        inter = self.inter
        if inter.islands:
            by_ends: dict[tuple[str, ...], Row] = {}
            for row in chain(rows(inter.islands, self._names()), _rows(inter.pairs)):
                by_ends[tuple(sorted(row[:2]))] = row
            pairs = Pairs()
            pairs._hold(*zip(*by_ends.values(), strict=True))
            fields = {name: getattr(inter, name) for name in inter.model_fields_set}
            del fields["islands"]
            # Frozen from the outside; here the record is still being made.
            self.__dict__["inter"] = Inter(**{**fields, "pairs": pairs})
        return self

    def only(self, nodes: Sequence[Node]) -> Self:
        """Return the cluster with these nodes alone, which may have fewer GPUs."""
        names = {node.name for node in nodes}
        types = {node.gpu for node in nodes}
        pairs = Pairs(
            p for p in self.inter.pairs if p.first in names and p.second in names
        )
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
        names = self._names()
        if twice := sorted(n for n, times in Counter(names).items() if times > 1):
            raise ValueError(
                f"nodes of one name: {', '.join(map(repr, twice))}: rename all but one"
            )
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
        pairs = self.inter.pairs
        if unknown := [end for end in pairs.names if end not in self.node]:
            raise ValueError(
                f"inter.pairs names {unknown[0]!r}, expected a name that nodes lists: "
                "correct it"
            )
        if (own := next(_joined_to_itself(pairs), None)) is not None:
            raise ValueError(
                f"inter.pairs joins {own!r} to itself: give its "
                "intra_gbytes_per_s instead"
            )
        if self.inter.gbytes_per_s is None:
            self._every_pair_is_linked()
        return self

    def _every_pair_is_linked(self) -> None:
        pairs, nodes = self.inter.pairs, self.nodes
        linked = {
            (a, b) if a < b else (b, a)
            for a, b in zip(pairs.firsts, pairs.seconds, strict=True)
        }
        if len(linked) == len(nodes) * (len(nodes) - 1) // 2:
            return
        place = {name: i for i, name in enumerate(pairs.names)}
        for i, a in enumerate(nodes):
            for b in nodes[i + 1 :]:
                ends = place.get(a.name, -1), place.get(b.name, -1)
                if (min(ends), max(ends)) not in linked:
                    raise ValueError(
                        f"no link between {a.name!r} and {b.name!r}: give "
                        "inter.gbytes_per_s or a row of inter.pairs"
                    )

    @cached_property
    def node(self) -> dict[str, Node]:
        """Return the nodes by name."""
        return {node.name: node for node in self.nodes}

    @cached_property
    def gpu_count(self) -> int:
        """Return the number of GPUs in the cluster."""
        return sum(node.count for node in self.nodes)

    def gpu_ids(self) -> Iterator[str]:
        """Every GPU as `node:index`, in the order of the nodes."""
        for node in self.nodes:
            for index in range(node.count):
                yield f"{node.name}:{index}"

    @cached_property
    def number(self) -> dict[str, int]:
        """Return the number of each node, by its name."""
        return {node.name: i for i, node in enumerate(self.nodes)}

    @cached_property
    def links(self) -> "LinkTable":
        """Return the links between nodes, by classes of equal ones."""
        from .links import LinkTable  # numpy is loaded where links are asked for

        inter, pairs = self.inter, self.inter.pairs
        place = array("i", map(self.number.__getitem__, pairs.names))
        firsts = array("i", map(place.__getitem__, pairs.firsts))
        seconds = array("i", map(place.__getitem__, pairs.seconds))
        usual = None
        if inter.gbytes_per_s is not None:
            usual = inter.gbytes_per_s, inter.latency_us
        rows = firsts, seconds, pairs.rated
        return LinkTable(len(self.nodes), rows, pairs.rates, usual, link_of)

    def ways(self, a: str, b: str) -> tuple[Fraction, Fraction, Fraction]:
        """Latency in s, and bytes/s of the slower and of the faster direction.

        Between GPUs of nodes `a` and `b`, as `link`.
        """
        if a == b or not self.inter.pairs:
            latency, rate = self.link(a, b)
            return latency, rate, rate
        rates = self.links.rates[self.links.between(self.number[a], self.number[b])]
        latency, rate = link_of(slower(rates), rates[1])
        return latency, rate, link_of(max(rates[0], rates[2] or 0), 0)[1]

    def link(self, a: str, b: str) -> tuple[Fraction, Fraction]:
        """Latency in s and bandwidth in bytes/s between GPUs of nodes `a` and `b`.

        For `a == b` it is the intra-node link; a node of one GPU has none (KeyError).
        Of two directions it is the slower one.
        """
        if a == b:
            node = self.node[a]
            if node.intra_gbytes_per_s is None:
                raise KeyError(f"node {a!r} has one GPU and no link within")
            return link_of(node.intra_gbytes_per_s, node.intra_latency_us)
        if self.inter.pairs:
            links = self.links
            return links.exactly(links.between(self.number[a], self.number[b]))
        assert self.inter.gbytes_per_s is not None
        return link_of(self.inter.gbytes_per_s, self.inter.latency_us)


def _rows(pairs: Pairs) -> Iterator[Row]:
    for a, b, k in zip(pairs.firsts, pairs.seconds, pairs.rated, strict=True):
        rate, latency, back = pairs.rates[k]
        yield pairs.names[a], pairs.names[b], rate, latency, back


def _joined_to_itself(pairs: Pairs) -> Iterator[str]:
    if any(map(operator.eq, pairs.firsts, pairs.seconds)):
        for a, b in zip(pairs.firsts, pairs.seconds, strict=True):
            if a == b:
                yield pairs.names[a]


def link_of(gbytes_per_s: float, latency_us: float) -> tuple[Fraction, Fraction]:
    """Return the latency in s and bandwidth in bytes/s of a link that a file gives."""
    return exact(latency_us) / 10**6, exact(gbytes_per_s) * 10**9
