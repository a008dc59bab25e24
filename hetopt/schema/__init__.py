"""The shared instance schema: what there is, and what is to be trained on it.

Records are frozen and strict; units end the names. Numbers are taken as the exact
decimals that the file shows (`exact`), so that every part of hetopt computes with
the same rationals.
"""

import hashlib
import json
import operator
import secrets
from array import array
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from fractions import Fraction
from functools import cached_property, lru_cache
from itertools import chain
from typing import (
    TYPE_CHECKING,
    Annotated,
    Any,
    ClassVar,
    Literal,
    NamedTuple,
    Self,
    TypeVar,
    cast,
    overload,
)

from pydantic import (
    AfterValidator,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    GetCoreSchemaHandler,
    SerializationInfo,
    ValidationError,
    ValidationInfo,
    model_validator,
)
from pydantic_core import CoreSchema, core_schema

from ..errors import InstanceError, cut, quoted

if TYPE_CHECKING:
    from .links import LinkTable

LONGEST_NAME = 200


def name_fault(text: str) -> str | None:
    """Why a text is no name, with the remedy; None where it is one.

    A name is one line of printable characters that neither begins nor ends with a
    blank: names reach scripts, tables and terminals.
    """
    if not 0 < len(text) <= LONGEST_NAME:
        return (
            f"found {quoted(text)}, expected text of 1 to {LONGEST_NAME} characters; "
            f"{'shorten it' if text else 'give a name'}"
        )
    return _unprintable(text)


def _unprintable(text: str) -> str | None:
    if not text.isprintable():
        at, character = next(
            (at, c) for at, c in enumerate(text, 1) if not c.isprintable()
        )
        return (
            f"found {quoted(text)} with {character!r} as character {at}, "
            "expected one line of printable characters; remove it"
        )
    if text != text.strip():
        return (
            f"found {quoted(text)}, expected no blank at the beginning or the end; "
            "remove it"
        )
    return None


def printable(text: str) -> str:
    """The text, which has what a name of any length has; else a `ValueError`."""
    if fault := _unprintable(text):
        raise ValueError(fault)
    return text


def _gpu_id(text: str) -> str:
    if fault := name_fault(text.rpartition(":")[0]):
        raise ValueError(fault)
    return text


Name = Annotated[
    str, Field(min_length=1, max_length=LONGEST_NAME), AfterValidator(printable)
]
# The longest name of a node, a colon, the index.
GpuId = Annotated[
    str,
    Field(
        max_length=LONGEST_NAME + 5,
        pattern=r"^[\s\S]+:[0-9]{1,4}$",
        description="node:index",
    ),
    AfterValidator(_gpu_id),
]
Positive = Annotated[float, Field(gt=0, le=1e9)]
NotNegative = Annotated[float, Field(ge=0, le=1e9)]
Count = Annotated[int, Field(ge=1, le=10_000_000)]
# In tables they are MiB and GFLOP/s, whole numbers below 1e9.
MemoryGib = Annotated[float, Field(gt=0, lt=976_562.5)]
PeakTflops = Annotated[float, Field(gt=0, lt=1e6)]


@lru_cache(maxsize=4096)
def exact(number: float) -> Fraction:
    """The decimal that a file shows for `number`, as a fraction."""
    return Fraction(repr(number))


class Record(BaseModel):
    """Frozen, strict, refuses unknown fields; equal content has an equal digest."""

    model_config = ConfigDict(
        frozen=True, extra="forbid", strict=True, allow_inf_nan=False
    )

    #: Fields that came later: the digest leaves them out where they say nothing, so
    #: that what was made for older files still names its data.
    _later: ClassVar[frozenset[str]] = frozenset()

    @cached_property
    def digest(self) -> str:
        """`sha256:` of the canonical JSON of the record."""
        # Half a million links are written by hand: as objects they take seconds.
        texts: dict[str, str] = {}
        data = _said(self, self.model_dump(mode="json", context={"links": texts}))
        text = json.dumps(data, sort_keys=True, separators=(",", ":"))
        for mark, links in texts.items():
            text = text.replace(f'"{mark}"', links)
        return "sha256:" + hashlib.sha256(text.encode()).hexdigest()

    def model_copy(
        self, *, update: Mapping[str, Any] | None = None, deep: bool = False
    ) -> Self:
        """A copy with changes; what was derived from the old content is dropped."""
        copy = super().model_copy(update=update, deep=deep)
        for name in set(copy.__dict__) - set(type(self).model_fields):
            del copy.__dict__[name]
        return copy


R = TypeVar("R", bound=Record)


def tabled(
    record: type[R],
    where: str,
    fields: Mapping[str, Any],
    sources: Mapping[str, str] | None = None,
) -> R:
    """A record of what was computed from an instance, for a solver.

    `InstanceError` where a number has no place in it, with the field: coefficients stay
    below 1e9, where back ends agree. `sources` say by the field's name what it comes
    from in an instance.
    """
    try:
        return record.model_validate(fields)
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
        loc, field = first["loc"], ""
        for part in loc:
            field += f"[{part}]" if isinstance(part, int) else f".{part}"
        field = field.removeprefix(".")
        source = (sources or {}).get(str(loc[-1]) if loc else "", "the instance")
        raise InstanceError.at(
            None,
            f"{where}: {field}" if field else where,
            f"found {cut(repr(first['input']))}, made from {source}: {first['msg']}; "
            "tables hold whole numbers below 1e9: change what it is made from",
        ) from None


def _said(value: Any, data: Any) -> Any:
    """The JSON `data` of a value, without later fields at their defaults."""
    if isinstance(value, Record):
        fields = type(value).model_fields
        return {
            name: _said(getattr(value, name), inner)
            for name, inner in data.items()
            if name not in value._later
            or getattr(value, name) != fields[name].get_default()
        }
    if isinstance(value, list | tuple):
        return [_said(*pair) for pair in zip(value, data, strict=True)]
    if isinstance(value, dict):
        return {key: _said(value[key], inner) for key, inner in data.items()}
    return data


class GpuType(Record):
    """One type of GPU.

    With `memory_gbytes_per_s`, the rate of its own memory, what no matrix product
    hides is timed too: norms, activations, softmax, dropout and the optimiser.
    """

    peak_tflops: PeakTflops = Field(
        description="Peak dense TFLOP/s in the precision of the products, 16-bit ones."
    )
    memory_gib: MemoryGib
    efficiency: Annotated[float, Field(gt=0, le=1)] = 1.0
    usd_per_hour: NotNegative | None = None
    memory_gbytes_per_s: Positive | None = None

    _later = frozenset({"memory_gbytes_per_s"})


class Node(Record):
    """A machine with GPUs of one type, joined by one intra-node link."""

    name: Name
    gpu: Name
    count: Annotated[int, Field(ge=1, le=4096)]
    intra_gbytes_per_s: Positive | None = None
    intra_latency_us: NotNegative = 0

    @model_validator(mode="after")
    def _several_gpus_need_a_link(self) -> Self:
        if self.count > 1 and self.intra_gbytes_per_s is None:
            raise ValueError(
                f"node {self.name!r} has {self.count} GPUs and no intra_gbytes_per_s: "
                "add it"
            )
        return self


def _as_link(value: Any) -> Any:
    """A pair written as a row, `[node, node, gbytes_per_s, latency_us?]`."""
    if isinstance(value, list | tuple):
        if len(value) not in (3, 4):
            raise ValueError(
                f"a pair is [node, node, gbytes_per_s] or "
                f"[node, node, gbytes_per_s, latency_us], not {len(value)} values"
            )
        keys = ("first", "second", "gbytes_per_s", "latency_us")
        return dict(zip(keys, value, strict=False))
    return value


class Link(Record):
    """The link between two nodes, the same in both directions."""

    first: Name
    second: Name
    gbytes_per_s: Positive
    latency_us: NotNegative = 0


class Pairs(Sequence[Link]):
    """Links of single pairs of nodes, a sequence of `Link`; held as numbers.

    A thousand nodes have half a million pairs. Each is three numbers here, of its ends
    among `names` and of its (gbytes_per_s, latency_us) among `rates`; a `Link` is made
    when it is asked for.
    """

    __slots__ = ("firsts", "names", "rated", "rates", "seconds")

    def __init__(self, links: Iterable[Link] = ()) -> None:
        """The same links, in their order."""
        rows = [(x.first, x.second, x.gbytes_per_s, x.latency_us) for x in links]
        self._hold(*(zip(*rows, strict=True) if rows else ((), (), (), ())))

    def _hold(
        self,
        firsts: Sequence[str],
        seconds: Sequence[str],
        gbytes_per_s: Iterable[float],
        latencies_us: Iterable[float],
    ) -> None:
        place = {name: i for i, name in enumerate(dict.fromkeys((*firsts, *seconds)))}
        rows = list(zip(map(float, gbytes_per_s), map(float, latencies_us)))  # noqa: B905
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
        rate, latency = self.rates[self.rated[at]]
        return Link(
            first=self.names[self.firsts[at]],
            second=self.names[self.seconds[at]],
            gbytes_per_s=rate,
            latency_us=latency,
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
        cls, source: Any, handler: GetCoreSchemaHandler
    ) -> CoreSchema:
        row = Annotated[Link, BeforeValidator(_as_link)]
        return core_schema.with_info_wrap_validator_function(
            cls._read,
            handler.generate_schema(tuple[row, ...]),
            serialization=core_schema.plain_serializer_function_ser_schema(
                _written, info_arg=True
            ),
        )

    @classmethod
    def _read(cls, value: Any, rows: Any, info: ValidationInfo) -> "Pairs":
        """From rows or links; what is wrong with one is said by `Link`, with its place.

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
        """Rows of names and numbers, every different one of which is right."""
        kinds = set(map(type, rows))
        if kinds == {dict} and set(map(len, rows)) == {4}:
            columns = operator.itemgetter(*Link.model_fields)
            with suppress(KeyError):
                return cls.plain([columns(row) for row in rows])
        if not rows or not kinds <= {list, tuple}:
            return None
        lengths = set(map(len, rows))
        if not lengths <= {3, 4}:
            return None
        if 3 in lengths:
            rows = [(*row, 0)[:4] for row in rows]
        firsts, seconds, rates, latencies = zip(*rows, strict=True)
        texts, numbers = chain(firsts, seconds), chain(rates, latencies)
        if set(map(type, texts)) != {str} or not set(map(type, numbers)) <= {
            int,
            float,
        }:
            return None
        made = cls()
        try:
            made._hold(firsts, seconds, rates, latencies)
            for name in made.names:
                Link(first=name, second=name, gbytes_per_s=1)
            for rate, latency in made.rates:
                Link(first="a", second="b", gbytes_per_s=rate, latency_us=latency)
        except (ValidationError, OverflowError):
            return None
        return made


def _canonical(pairs: Pairs) -> str:
    """The links as the digest reads them."""
    names = [json.dumps(name) for name in pairs.names]
    rates = [f'"gbytes_per_s":{rate!r},"latency_us":{us!r}' for rate, us in pairs.rates]
    rows = zip(pairs.firsts, pairs.seconds, pairs.rated, strict=True)
    each = (
        f'{{"first":{names[a]},{rates[k]},"second":{names[b]}}}' for a, b, k in rows
    )
    return f"[{','.join(each)}]"


def _written(pairs: Pairs, info: SerializationInfo) -> Any:
    """The links as objects, a tuple of them in Python, as any record has."""
    if info.context is not None and "links" in info.context:
        mark = secrets.token_hex()  # no text of a file is that
        info.context["links"][mark] = _canonical(pairs)
        return mark
    short = info.exclude_unset or info.exclude_defaults
    rates = [
        {"gbytes_per_s": rate} | ({} if short and not us else {"latency_us": us})
        for rate, us in pairs.rates
    ]
    names = pairs.names
    rows = zip(pairs.firsts, pairs.seconds, pairs.rated, strict=True)
    made = [{"first": names[a], "second": names[b], **rates[k]} for a, b, k in rows]
    return made if info.mode == "json" else tuple(made)


class Inter(Record):
    """Links between nodes: one for all, with exceptions by pair."""

    gbytes_per_s: Positive | None = None
    latency_us: NotNegative = 0
    pairs: Pairs = Pairs()


class Cluster(Record):
    """Nodes of GPUs and the links between them."""

    gpus: dict[Name, GpuType]
    nodes: Annotated[tuple[Node, ...], Field(min_length=1, max_length=20_000)]
    inter: Inter = Inter()

    @model_validator(mode="after")
    def _names_agree(self) -> Self:
        names = [node.name for node in self.nodes]
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
        """Nodes by name."""
        return {node.name: node for node in self.nodes}

    @cached_property
    def gpu_count(self) -> int:
        """Number of GPUs in the cluster."""
        return sum(node.count for node in self.nodes)

    def gpu_ids(self) -> Iterator[str]:
        """Every GPU as `node:index`, in the order of the nodes."""
        for node in self.nodes:
            for index in range(node.count):
                yield f"{node.name}:{index}"

    @cached_property
    def number(self) -> dict[str, int]:
        """The number of each node, by its name."""
        return {node.name: i for i, node in enumerate(self.nodes)}

    @cached_property
    def links(self) -> "LinkTable":
        """Links between nodes, by classes of equal ones."""
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
            links = self.links
            return links.exactly(links.between(self.number[a], self.number[b]))
        assert self.inter.gbytes_per_s is not None
        return link_of(self.inter.gbytes_per_s, self.inter.latency_us)


def _joined_to_itself(pairs: Pairs) -> Iterator[str]:
    if any(map(operator.eq, pairs.firsts, pairs.seconds)):
        for a, b in zip(pairs.firsts, pairs.seconds, strict=True):
            if a == b:
                yield pairs.names[a]


def link_of(gbytes_per_s: float, latency_us: float) -> tuple[Fraction, Fraction]:
    """Latency in s and bandwidth in bytes/s of a link that a file gives."""
    return exact(latency_us) / 10**6, exact(gbytes_per_s) * 10**9


class ModelSpec(Record):
    """A transformer: layers of equal width, parameters per layer equal or listed.

    Parameters of a layer are, in this order: `layer_parameters`, else
    `parameters_per_layer`, else derived from the architecture where any of
    `kv_heads, head_dim, intermediate, gated, experts` is given, else 12 H^2.
    `active_parameters` are the ones that a token uses (fewer than all for MoE):
    memory and synchronisation count all, FLOPs count the active ones.

    `activation, norm, dropout, attention_dropout` decide which tensors a layer keeps
    for its backward pass under `costs.activations: architecture`, and what its
    memory-bound kernels move. `norm: layer_from_output` is the layer norm that keeps
    its output in place of its input; `rms_unfused` one made of single operators.
    """

    name: Name
    layers: Annotated[int, Field(ge=1, le=10_000)]
    hidden: Annotated[int, Field(ge=1, le=1_000_000)]
    heads: Annotated[int, Field(ge=1, le=10_000)]
    vocabulary: Annotated[int, Field(ge=0, le=10_000_000)]
    parameters_per_layer: Annotated[int, Field(ge=1, le=10**13)] | None = None
    layer_parameters: tuple[Annotated[int, Field(ge=0, le=10**13)], ...] | None = None
    active_layer_parameters: (
        tuple[Annotated[int, Field(ge=0, le=10**13)], ...] | None
    ) = None
    kv_heads: Count | None = None
    head_dim: Count | None = None
    intermediate: Count | None = None
    gated: bool = False
    tied_embeddings: bool = False
    experts: Count | None = None
    active_experts: Count | None = None
    shared_experts: Annotated[int, Field(ge=0)] = 0
    expert_intermediate: Count | None = None
    dense_layers: Annotated[int, Field(ge=0)] = 0
    activation: Literal["gelu", "relu", "silu"] = "gelu"
    norm: Literal["layer", "layer_from_output", "rms", "rms_unfused"] = "layer"
    dropout: bool = True
    attention_dropout: bool = True

    _later = frozenset({"activation", "norm", "dropout", "attention_dropout"})

    @model_validator(mode="after")
    def _consistent(self) -> Self:
        for field in ("layer_parameters", "active_layer_parameters"):
            listed = getattr(self, field)
            if listed is not None and len(listed) != self.layers:
                raise ValueError(
                    f"{field} lists {len(listed)} layers, layers is {self.layers}: "
                    "list one number a layer"
                )
        if self.layer_parameters and self.parameters_per_layer:
            raise ValueError("give parameters_per_layer or layer_parameters, not both")
        if self.kv_heads and self.heads % self.kv_heads:
            raise ValueError(
                f"kv_heads {self.kv_heads} does not divide heads {self.heads}: "
                "correct one of them"
            )
        if self.head_dim is None and self.hidden % self.heads:
            raise ValueError(
                f"heads {self.heads} does not divide hidden {self.hidden}: "
                "give head_dim"
            )
        if (self.experts or 1) < (self.active_experts or 1):
            raise ValueError(
                f"active_experts {self.active_experts} exceeds experts "
                f"{self.experts or 1}: correct one of them"
            )
        if self.experts and not self.active_experts:
            raise ValueError(
                "found experts without active_experts: add how many a token uses"
            )
        if self.dense_layers > self.layers:
            raise ValueError(
                f"dense_layers {self.dense_layers} exceeds layers {self.layers}: "
                "correct one of them"
            )
        return self

    @cached_property
    def attention_width(self) -> int:
        """heads x head_dim, the width in the 4 b S^2 H term; H unless head_dim."""
        return self.heads * self.head_dim if self.head_dim else self.hidden

    @property
    def mlp_width(self) -> int:
        """Width between the matrices of a dense MLP; 4 H unless `intermediate`."""
        return self.intermediate or 4 * self.hidden

    @property
    def kv_width(self) -> int:
        """Width of the keys, and of the values."""
        return (self.kv_heads or self.heads) * self.attention_width // self.heads

    @cached_property
    def parameters(self) -> tuple[int, ...]:
        """Parameters of each layer, all experts counted."""
        if self.layer_parameters is not None:
            return self.layer_parameters
        if self.parameters_per_layer is not None:
            return (self.parameters_per_layer,) * self.layers
        return self._derived(self.experts)

    @cached_property
    def active_parameters(self) -> tuple[int, ...]:
        """Parameters of each layer that one token uses."""
        if self.active_layer_parameters is not None:
            return self.active_layer_parameters
        if self.layer_parameters is not None or self.parameters_per_layer is not None:
            return self.parameters
        return self._derived(self.active_experts)

    @property
    def embedding_parameters(self) -> int:
        """V H, of the embedding and of the head alike."""
        return self.vocabulary * self.hidden

    def _derived(self, experts: int | None) -> tuple[int, ...]:
        h = self.hidden
        given = (self.kv_heads, self.head_dim, self.intermediate, self.experts)
        if not any(given) and not self.gated:
            return (12 * h * h,) * self.layers
        kv = (self.kv_heads or self.heads) * self.attention_width // self.heads
        attention = 2 * h * self.attention_width + 2 * h * kv
        matrices = 3 if self.gated else 2
        dense = matrices * h * (self.intermediate or 4 * h)
        norms = 2 * h
        if not self.experts:
            return (attention + dense + norms,) * self.layers
        assert experts is not None
        expert = matrices * h * (self.expert_intermediate or self.intermediate or 4 * h)
        router = h * self.experts
        sparse = expert * (experts + self.shared_experts) + router
        return tuple(
            attention + norms + (dense if layer < self.dense_layers else sparse)
            for layer in range(self.layers)
        )


_LayerUs = tuple[Annotated[int, Field(ge=0, le=10**9)], ...]
_LayerMib = tuple[Annotated[int, Field(ge=0, le=10**7)], ...]


class Profile(Record):
    """Measurements of every layer at one (GPU type, TP degree, micro-batch).

    Both passes are timed together (`layer_us`, of which `backward_us` may tell a part)
    or apart (`forward_us` and `backward_us`). How sizes that were not measured and
    further micro-batches in flight are counted is said in `hetopt.costs.profiles`.
    """

    _later = frozenset({"forward_us", "layer_mib", "activation_mib"})

    gpu: Name
    tensor_parallel: Count
    micro_batch: Count
    layer_us: _LayerUs = Field(
        description="Forward and backward of each layer, TP communication included."
    )
    forward_us: _LayerUs | None = None
    backward_us: _LayerUs | None = None
    layer_mib: _LayerMib | None = Field(
        None,
        description="Memory that each layer takes on each GPU, states and activations, "
        "with one micro-batch in flight.",
    )
    activation_mib: _LayerMib | None = Field(
        None, description="The part of layer_mib that each micro-batch in flight holds."
    )

    @model_validator(mode="before")
    @classmethod
    def _both_passes(cls, data: Any) -> Any:
        """`layer_us` as the sum of two passes that were timed apart."""
        if not isinstance(data, dict):
            return data
        # Seen from here JSON's lists are lists already, which strict tuples refuse.
        data = {k: tuple(v) if isinstance(v, list) else v for k, v in data.items()}
        if "layer_us" in data:
            return data
        passes = [data.get("forward_us"), data.get("backward_us")]
        if not all(
            isinstance(times, tuple) and all(type(us) is int for us in times)
            for times in passes
        ):
            return data  # the fields' own checks say what is wrong
        return {**data, "layer_us": tuple(map(sum, zip(*passes, strict=False)))}

    @model_validator(mode="after")
    def _parts_agree(self) -> Self:
        count = len(self.layer_us)
        for field in ("forward_us", "backward_us", "layer_mib", "activation_mib"):
            listed = getattr(self, field)
            if listed is not None and len(listed) != count:
                raise ValueError(
                    f"{field} lists {len(listed)} layers, layer_us {count}: list one "
                    "number a layer"
                )
        if self.forward_us is not None and self.layer_us != tuple(
            map(sum, zip(self.forward_us, self.backward_us or (), strict=False))
        ):
            raise ValueError(
                "layer_us is not forward_us + backward_us: give both passes together "
                "(layer_us) or apart (forward_us and backward_us)"
            )
        self._is_part("backward_us", "layer_us")
        if self.activation_mib is not None:
            if self.layer_mib is None:
                raise ValueError("found activation_mib without layer_mib: add it")
            self._is_part("activation_mib", "layer_mib")
        return self

    def _is_part(self, part: str, whole: str) -> None:
        pairs = zip(getattr(self, part) or (), getattr(self, whole), strict=False)
        for layer, (some, every) in enumerate(pairs):
            if some > every:
                raise ValueError(
                    f"{part} of layer {layer} is {some}, more than its {whole} "
                    f"{every}: correct one of them"
                )


class StateBytes(NamedTuple):
    """Bytes of a parameter: its weight, its gradient, what the optimiser keeps."""

    weight: int
    gradient: int
    optimiser: int


#: Adam's two moments, and a master copy in single precision where it is mixed.
PRECISIONS: dict[str, StateBytes] = {
    "fp32": StateBytes(4, 4, 8),
    "bf16": StateBytes(2, 2, 4),
    "bf16_mixed": StateBytes(2, 2, 12),
    "bf16_fp32_gradients": StateBytes(2, 4, 12),
}


Recompute = Literal["full", "selective", "none"]


class CostSettings(Record):
    """The variants of the one cost model; each paper's variant is data here.

    `precision` in place of `bytes_per_parameter` says what these bytes are, and how
    wide activations and gradients are on links; without it they are 16-bit.
    `zero: 1..3` divides optimiser states, gradients too, weights too, among the
    replicas of a layer. `interleave: v` gives each GPU v runs of layers in place of
    one; `hops: both` lets a transfer occupy the receiving stage too. `fused_loss`
    keeps one copy of the logits, in their own precision.
    """

    bytes_per_parameter: Annotated[int, Field(ge=1, le=64)] = 16
    precision: Literal["fp32", "bf16", "bf16_mixed", "bf16_fp32_gradients"] | None = (
        None
    )
    zero: Annotated[int, Field(ge=0, le=3)] = 0
    head: Literal["include", "omit"] = "include"
    fused_loss: bool = False
    recompute: Recompute = "full"
    activations: Literal["standard", "checkpoint", "architecture"] = "standard"
    in_flight: Literal["1f1b", "gpipe", "one"] = "1f1b"
    sequence_parallel: bool = False
    flash: bool = False
    interleave: Annotated[int, Field(ge=1, le=1000)] = 1
    hops: Literal["sender", "both"] = "sender"
    pipeline: Literal["critical", "lockstep"] = "critical"
    pipeline_factor: Positive = 1
    sync: Literal["ring", "bottleneck"] = "ring"
    sync_overlap: Literal["none", "backward"] = "none"
    sync_factor: NotNegative = 1
    reserve_mib: Annotated[int, Field(ge=0, le=10**7)] = 0
    layer_times: Literal["analytic", "profile"] = "analytic"
    profile: tuple[Profile, ...] = ()

    _later = frozenset({"precision", "zero", "fused_loss", "interleave", "hops"})

    @model_validator(mode="after")
    def _bytes_of_the_precision(self) -> Self:
        if self.precision is None:
            return self
        known = sum(PRECISIONS[self.precision])
        if "bytes_per_parameter" not in self.model_fields_set:
            # Frozen from the outside; here the record is still being made.
            self.__dict__["bytes_per_parameter"] = known
        elif self.bytes_per_parameter != known:
            raise ValueError(
                f"bytes_per_parameter is {self.bytes_per_parameter}, precision "
                f"{self.precision!r} makes it {known}: give one of them"
            )
        return self

    @model_validator(mode="after")
    def _interleaved_pipelines_are_1f1b(self) -> Self:
        if self.interleave > 1 and (
            self.in_flight == "gpipe" or self.pipeline == "lockstep"
        ):
            raise ValueError(
                f"interleave {self.interleave} is a 1F1B schedule, found in_flight "
                f"{self.in_flight!r} and pipeline {self.pipeline!r}: give in_flight "
                "'1f1b' and pipeline 'critical', or interleave 1"
            )
        return self

    @model_validator(mode="after")
    def _profile_is_there_when_asked_for(self) -> Self:
        if (self.layer_times == "profile") != bool(self.profile):
            raise ValueError(
                f"layer_times is {self.layer_times!r} and profile has "
                f"{len(self.profile)} rows: give both or neither"
            )
        if self.zero and any(row.layer_mib for row in self.profile):
            raise ValueError(
                f"zero is {self.zero} and profile has layer_mib, whose states are not "
                "told apart: remove layer_mib, or zero"
            )
        for field in ("layer_mib", "activation_mib"):
            told = [getattr(row, field) is not None for row in self.profile]
            if any(told) and not all(told):
                row = self.profile[told.index(False)]
                raise ValueError(
                    f"profile[{told.index(False)}] ({row.gpu!r}, tensor_parallel "
                    f"{row.tensor_parallel}, micro_batch {row.micro_batch}) has no "
                    f"{field}, other rows have: measure it, or remove it from all"
                )
        keys = [(r.gpu, r.tensor_parallel, r.micro_batch) for r in self.profile]
        if twice := [key for key, times in Counter(keys).items() if times > 1]:
            gpu, t, b = twice[0]
            raise ValueError(
                f"profile has {gpu!r} at tensor_parallel {t} and micro_batch {b} "
                "twice: remove one row"
            )
        return self

    @property
    def states(self) -> StateBytes:
        """What the bytes of a parameter are; 16-bit weights where nothing says so."""
        if self.precision is not None:
            return PRECISIONS[self.precision]
        each = self.bytes_per_parameter
        # Fewer than four bytes leave nothing for an optimiser: all are weights then.
        return StateBytes(2, 2, each - 4) if each > 4 else StateBytes(each, 0, 0)

    @property
    def kept_bytes(self) -> int:
        """Bytes of a parameter that every replica holds, however many there are."""
        weight, gradient, optimiser = self.states
        return (weight + gradient + optimiser, weight + gradient, weight, 0)[self.zero]

    @property
    def sync_passes(self) -> int:
        """Passes over the gradients: reduce, gather; ZeRO-3 gathers weights twice."""
        return 3 if self.zero == 3 else 2

    @property
    def element_bytes(self) -> int:
        """Bytes of an element of an activation."""
        return 4 if self.precision == "fp32" else 2

    @property
    def gradient_bytes(self) -> int:
        """Bytes of a gradient when it is synchronised."""
        return 2 if self.precision is None else self.states.gradient


class Alternatives(Record):
    """Settings that a plan may choose in place of those of `costs`.

    `recompute` is chosen for each stage. `zero` is chosen for the whole plan: the
    replicas of a layer, which lie in different pipelines, must divide it alike.
    """

    recompute: tuple[Recompute, ...] = ()
    zero: tuple[Annotated[int, Field(ge=0, le=3)], ...] = ()


class Workload(Record):
    """What is trained, in which batches, for how long.

    Without `alternatives` all stages recompute, and replicas divide states, as `costs`
    says; micro-batch sizes are always chosen from a list.
    """

    sequence_length: Count
    global_batch: Count
    micro_batch_sizes: Annotated[tuple[Count, ...], Field(min_length=1)] = (1,)
    iterations: Count = 1
    costs: CostSettings = CostSettings()
    alternatives: Alternatives = Alternatives()

    _later = frozenset({"alternatives"})

    @model_validator(mode="after")
    def _alternatives_have_costs_of_their_own(self) -> Self:
        costs, other = self.costs, self.alternatives
        if other.recompute and costs.layer_times == "profile":
            raise ValueError(
                "found alternatives.recompute and layer_times 'profile', whose times "
                "are of one rule: remove the alternatives, or the profile"
            )
        if other.recompute and costs.activations == "checkpoint":
            raise ValueError(
                "found alternatives.recompute and activations 'checkpoint', which "
                "weighs all rules alike: give activations 'standard' or 'architecture'"
            )
        if other.zero and any(row.layer_mib for row in costs.profile):
            raise ValueError(
                "found alternatives.zero and profile with layer_mib, whose states are "
                "not told apart: remove layer_mib, or the alternatives"
            )
        return self

    @property
    def recomputes(self) -> tuple[Recompute, ...]:
        """Rules that a stage may have, that of `costs` first."""
        rules = (self.costs.recompute, *self.alternatives.recompute)
        return tuple(dict.fromkeys(rules))

    @property
    def zeros(self) -> tuple[int, ...]:
        """Stages of ZeRO that a plan may have, that of `costs` first."""
        return tuple(dict.fromkeys((self.costs.zero, *self.alternatives.zero)))


class Offer(Record):
    """GPUs that can be rented: a type, how many, at what price."""

    gpu: Name
    quota: Annotated[int, Field(ge=0, le=1_000_000)]
    usd_per_hour: NotNegative = Field(description="Of one GPU.")
    peak_tflops: PeakTflops
    memory_gib: MemoryGib
    efficiency: Annotated[float, Field(gt=0, le=1)] = 1.0
    gbytes_per_s: Positive = Field(description="Network of an instance.")
    latency_us: NotNegative = 0
    gpus_per_instance: Annotated[int, Field(ge=1, le=1024)] = Field(
        1, description="GPUs that are rented together; quota and price are of one GPU."
    )


class Requirements(Record):
    """What a provisioning must meet; `None` asks for nothing."""

    deadline_s: NotNegative | None = None
    budget_usd: NotNegative | None = None


class Search(Record):
    """The structures that provisioning may choose from."""

    micro_batches: Count
    data_parallel: Annotated[tuple[Count, ...], Field(min_length=1)] = (1,)
    max_stages: Count = 16


class Instance(Record):
    """A model, a workload, and a cluster to plan on or offers to rent from."""

    name: Name
    source: Annotated[str, Field(max_length=2000)] = ""
    model: ModelSpec
    workload: Workload
    cluster: Cluster | None = None
    offers: tuple[Offer, ...] = ()
    requirements: Requirements = Requirements()
    search: Search | None = None

    @model_validator(mode="after")
    def _cluster_or_offers(self) -> Self:
        if (self.cluster is None) == (not self.offers):
            found = "both" if self.cluster else "neither"
            raise ValueError(f"found {found} of cluster and offers: give one of them")
        if self.offers and self.workload.alternatives != Alternatives():
            raise ValueError(
                "found workload.alternatives and offers, whose stages have no settings "
                "of their own: remove the alternatives"
            )
        names = [offer.gpu for offer in self.offers]
        if twice := sorted({n for n in names if names.count(n) > 1}):
            raise ValueError(f"offers of one GPU type: {', '.join(twice)}: merge them")
        for row in self.workload.costs.profile:
            if len(row.layer_us) != self.model.layers:
                raise ValueError(
                    f"the profile of {row.gpu!r} (tensor_parallel "
                    f"{row.tensor_parallel}, micro_batch {row.micro_batch}) times "
                    f"{len(row.layer_us)} layers, the model has {self.model.layers}: "
                    "list one time a layer"
                )
        return self

    @property
    def planned_cluster(self) -> Cluster:
        """The cluster; an `InstanceError` where the instance has offers instead."""
        if self.cluster is None:
            raise InstanceError(
                f"instance {self.name!r} has offers and no cluster: "
                "use `hetopt provision`"
            )
        return self.cluster
