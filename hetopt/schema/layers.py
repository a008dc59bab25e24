"""Layers need not all be attention and an MLP: these are their parts.

A layer is one part or several. `attention` sees all tokens before it, `window` the
nearest ones; `mamba` (Mamba-2), `mamba1`, `linear` and `convolution` mix tokens without
scores; `dense` is an MLP, `experts` a mixture of them. A layer that predicts further
tokens has one part more, `further`.
"""

from abc import abstractmethod
from functools import cached_property
from typing import Annotated, Literal, NamedTuple, Self

from pydantic import AfterValidator, Field

from .record import Count, Record

ATTENTION, WINDOW, MAMBA = "attention", "window", "mamba"
MAMBA_1, LINEAR, CONVOLUTION = "mamba1", "linear", "convolution"
DENSE, EXPERTS, FURTHER = "dense", "experts", "further"
#: Parts that mix tokens without scores; each is a field of the model of its name.
MIXERS = (MAMBA, MAMBA_1, LINEAR, CONVOLUTION)
ATTENDING = (ATTENTION, WINDOW)
#: Modules that are a part without its norm, as Megatron-LM calls them.
MODULE_OF = {DENSE: "mlp", EXPERTS: "moe"}
PARTS = (*ATTENDING, *MIXERS, DENSE, EXPERTS)
_MOST_PARTS = 8


def _kind(text: str) -> str:
    parts = text.split("+")
    if len(parts) > _MOST_PARTS or not {*parts} <= {*PARTS}:
        raise ValueError(
            f"found {text[:60]!r}, expected 1 to {_MOST_PARTS} of {', '.join(PARTS)}, "
            "separated by plus signs: correct it"
        )
    return text


LayerKind = Annotated[str, Field(max_length=100), AfterValidator(_kind)]
Parts = tuple[str, ...]
_Some = Annotated[int, Field(ge=0, le=10**12)]


class Product(NamedTuple):
    """A matrix of n x k; a tensor-parallel group cuts `n`, `k` or neither."""

    n: int
    k: int
    cut: Literal["n", "k", ""] = ""


class LatentAttention(Record):
    """Widths of multi-head latent attention (DeepSeek-V2, arXiv 2405.04434, 2.1)."""

    query_rank: Annotated[int, Field(ge=0, le=10_000_000)] = 0
    key_rank: Count
    plain: Count
    rotary: Count
    value_dim: Count

    @property
    def scored(self) -> int:
        """Return the width of a head's queries and keys."""
        return self.plain + self.rotary

    def matrices(self, hidden: int, heads: int) -> int:
        """Parameters of the products; `query_rank` 0: queries are not compressed."""
        down = hidden * (self.query_rank + self.key_rank + self.rotary)
        return self.raised(hidden, heads) + down + heads * self.value_dim * hidden

    def raised(self, hidden: int, heads: int) -> int:
        """Return the parameters that make queries, keys and values of low ranks."""
        keyed = (self.plain + self.value_dim) * self.key_rank
        return heads * (self.scored * (self.query_rank or hidden) + keyed)


class Indexer(Record):
    """An indexer chooses the tokens that attention sees (DSA, DeepSeek-V3.2)."""

    heads: Count
    head_dim: Count
    chosen: Count

    def products(self, hidden: int, query_rank: int) -> tuple[Product, ...]:
        """Matrices of queries, of the key that heads share, and of heads' weights."""
        return (
            Product(self.heads * self.head_dim, query_rank or hidden),
            Product(self.head_dim, hidden),
            Product(self.heads, hidden),
        )

    @property
    def vectors(self) -> int:
        """Return a layer norm of the key."""
        return 2 * self.head_dim


class Sizes(NamedTuple):
    """The sizes of a mixer of tokens, by which it is counted, timed and cut.

    `inner` is the width between the projections. Elements of a token `kept` for
    the backward pass leave out its input. `scan` are forward FLOPs of a token beside
    products and convolution, `vectors` parameters in no product; a tensor-parallel
    degree divides all of `whole`.
    """

    inner: int
    kept: int
    scan: int
    vectors: int
    whole: tuple[int, ...]


class Mixer(Record):
    """A mixer mixes tokens without scores: products, and a scan or a convolution."""

    @cached_property
    @abstractmethod
    def sizes(self) -> Sizes:
        """Return all that depends on no other field of the model."""

    @abstractmethod
    def products(self, hidden: int) -> tuple[Product, ...]:
        """Return the matrices, in the order of the forward pass."""

    def matrices(self, hidden: int) -> int:
        """Return the parameters of the products."""
        return sum(x.n * x.k for x in self.products(hidden))


class MambaMixer(Mixer):
    """A Mamba-2 mixer (arXiv 2405.21060): heads x head_dim wide, a state a head."""

    heads: Count
    head_dim: Count
    state: Count
    groups: Count = 1
    convolution: Count = 4

    @cached_property
    def sizes(self) -> Sizes:
        """Return the sizes; FLOPs of the scan are those that Megatron-LM counts."""
        inner, convolved = self.heads * self.head_dim, self._convolved
        return Sizes(
            inner,
            kept=2 * convolved + 3 * inner,
            scan=7 * inner * self.state,
            vectors=convolved * (self.convolution + 1) + 3 * self.heads + inner,
            whole=(self.heads, self.groups),
        )

    @property
    def _convolved(self) -> int:
        return self.heads * self.head_dim + 2 * self.groups * self.state

    def products(self, hidden: int) -> tuple[Product, ...]:
        """Return the projections before and after."""
        inner = self.heads * self.head_dim
        joint = inner + self._convolved + self.heads
        return Product(joint, hidden, "n"), Product(hidden, inner, "k")


class SelectiveMixer(Mixer):
    """A Mamba-1 mixer (arXiv 2312.00752): a state for each element of its width."""

    width: Count
    state: Count
    rank: Count
    convolution: Count = 4

    @cached_property
    def sizes(self) -> Sizes:
        """Return the sizes; a scan is decay, input, sum and output of each state."""
        return Sizes(
            self.width,
            kept=6 * self.width + self.rank + 2 * self.state,
            scan=7 * self.width * self.state,
            vectors=self.width * (self.convolution + 3 + self.state),
            whole=(self.width,),
        )

    def products(self, hidden: int) -> tuple[Product, ...]:
        """Return projections before, of step and states, of the step, and after."""
        return (
            Product(2 * self.width, hidden, "n"),
            Product(self.rank + 2 * self.state, self.width, "k"),
            Product(self.width, self.rank, "n"),
            Product(hidden, self.width, "k"),
        )


class LinearAttention(Mixer):
    """Attention whose heads carry a state of key_dim x value_dim in place of scores.

    `decay` of the state is `fixed` (lightning attention, arXiv 2501.08313), of each
    `head` (gated delta rule, arXiv 2412.06464) or of each `channel` of the keys (Kimi
    Delta Attention, arXiv 2510.26692). `rank` is that of the output's gate and of the
    channels' decay; 0: a product of full width.
    """

    key_heads: Count
    value_heads: Count
    key_dim: Count
    value_dim: Count
    decay: Literal["fixed", "head", "channel"]
    rank: Annotated[int, Field(ge=0, le=10_000_000)] = 0
    convolution: Annotated[int, Field(ge=0, le=10_000_000)] = 0

    @cached_property
    def sizes(self) -> Sizes:
        """Return the sizes; to read a state, the delta rule reads it twice."""
        inner, keyed = self.value_heads * self.value_dim, self.key_heads * self.key_dim
        mixed, fixed = 2 * keyed + inner, self.decay == "fixed"
        decays = {"fixed": 0, "head": 2 * self.value_heads}
        vectors = mixed * self.convolution + (inner if fixed else self.value_dim)
        return Sizes(
            inner,
            kept=(2 if self.convolution else 1) * mixed + 3 * inner,
            scan=(5 if fixed else 7) * inner * self.key_dim,
            vectors=vectors + decays.get(self.decay, keyed + self.value_heads),
            whole=(self.key_heads, self.value_heads),
        )

    def products(self, hidden: int) -> tuple[Product, ...]:
        """Return the products of queries, keys and values, decays, gate, output."""
        inner, keyed = self.value_heads * self.value_dim, self.key_heads * self.key_dim
        gate: tuple[Product, ...] = (Product(inner, hidden, "n"),)
        if self.rank:
            gate = Product(self.rank, hidden), Product(inner, self.rank, "n")
        decays: tuple[Product, ...] = ()
        if self.decay == "head":
            decays = (Product(2 * self.value_heads, hidden, "n"),)
        if self.decay == "channel":
            low = self.rank or hidden
            decays = (Product(keyed, low, "n"), Product(self.value_heads, hidden))
            if self.rank:
                decays = (Product(self.rank, hidden), *decays)
        first = Product(2 * keyed + inner, hidden, "n")
        return first, *decays, *gate, Product(hidden, inner, "k")


class ShortConvolution(Mixer):
    """A gated convolution of a few tokens (LFM2, arXiv 2511.23404)."""

    width: Count
    convolution: Count = 3

    @cached_property
    def sizes(self) -> Sizes:
        """Return the sizes; two gates stand in place of a scan."""
        return Sizes(
            self.width,
            kept=6 * self.width,
            scan=2 * self.width,
            vectors=self.width * self.convolution,
            whole=(self.width,),
        )

    def products(self, hidden: int) -> tuple[Product, ...]:
        """Return the projections before and after."""
        return Product(3 * self.width, hidden, "n"), Product(hidden, self.width, "k")


class Vectors(Record):
    """Parameters of a part that are in none of its matrices: norms, biases, sinks.

    Where a part is absent, what follows from the other fields: its norms, the biases
    that `attention_bias` names, norms of queries and keys. `expert` are those of each
    routed expert, beside those of `experts`. Small matrices of a part that no other
    field tells are among them, too: a token passes them all.
    """

    attention: _Some | None = None
    mamba: _Some | None = None
    mamba1: _Some | None = None
    linear: _Some | None = None
    convolution: _Some | None = None
    dense: _Some | None = None
    experts: _Some | None = None
    expert: _Some = 0


class LayerShape(Record):
    """A layer may be of another width than the model's fields say."""

    heads: Annotated[int, Field(ge=1, le=10_000)] | None = None
    kv_heads: Count | None = None
    head_dim: Count | None = None
    kv_products: Annotated[int, Field(ge=0, le=2)] | None = None
    intermediate: Count | None = None
    vectors: Vectors | None = None


class Kind(tuple[str, ...]):
    """The parts of a layer, in their order, and where it differs the layer's shape."""

    shape: LayerShape | None
    _hash: int

    def __new__(cls, parts: Parts, shape: LayerShape | None = None) -> Self:
        """Make the kind of `parts`."""
        made = super().__new__(cls, parts)
        made.shape = shape
        made._hash = hash(tuple(made) if shape is None else (tuple(made), shape))
        return made

    def __eq__(self, other: object) -> bool:
        """Tell whether parts and shapes are equal; a tuple has no shape."""
        shape = other.shape if isinstance(other, Kind) else None
        return tuple.__eq__(self, other) is True and self.shape == shape

    def __ne__(self, other: object) -> bool:
        """Tell whether it is another kind."""
        return not self == other

    def __hash__(self) -> int:
        """Return the hash of the tuple where there is no shape."""
        return self._hash

    def __reduce__(self) -> tuple[type[Self], tuple[Parts, LayerShape | None]]:
        """Make it anew elsewhere: another process hashes text in another way."""
        return type(self), (tuple(self), self.shape)


def shape_of(kind: Parts) -> LayerShape | None:
    """Return what differs in a layer of `kind`; None where nothing does."""
    return kind.shape if isinstance(kind, Kind) else None
