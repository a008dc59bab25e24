"""Layers need not all be attention and an MLP: these are their parts.

A layer is one part or several. `attention` sees all tokens before it, `window` the
nearest ones; `mamba` (Mamba-2), `mamba1`, `linear` and `convolution` mix tokens without
scores; `dense` is an MLP, `experts` a mixture of them. A layer that predicts further
tokens has one part more, `further`.
"""

from abc import abstractmethod
from typing import Annotated, Literal, NamedTuple, Self

from pydantic import AfterValidator, Field

from .record import Count, Record

ATTENTION, WINDOW, MAMBA = "attention", "window", "mamba"
MAMBA_1, LINEAR, CONVOLUTION = "mamba1", "linear", "convolution"
DENSE, EXPERTS, FURTHER = "dense", "experts", "further"
#: Parts that mix tokens without scores; each is a field of the model of its name.
MIXERS = (MAMBA, MAMBA_1, LINEAR, CONVOLUTION)
ATTENDING = (ATTENTION, WINDOW)
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
        queries = heads * self.scored
        low = self.query_rank
        asked = low * (hidden + queries) if low else hidden * queries
        down = hidden * (self.key_rank + self.rotary)
        up = self.key_rank * heads * (self.plain + self.value_dim)
        return asked + down + up + heads * self.value_dim * hidden


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


class Mixer(Record):
    """A mixer mixes tokens without scores: products, and a scan or a convolution."""

    @property
    @abstractmethod
    def inner(self) -> int:
        """Return the width between the projections."""

    @property
    @abstractmethod
    def kept(self) -> int:
        """Elements of a token that the backward pass needs, its input apart."""

    @property
    @abstractmethod
    def scan(self) -> int:
        """Return FLOPs of a token beside the products and the convolution, forward."""

    @property
    @abstractmethod
    def vectors(self) -> int:
        """Return the parameters that are in no product."""

    @property
    @abstractmethod
    def whole(self) -> tuple[int, ...]:
        """Counts that a tensor-parallel degree divides, for none is cut."""

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

    @property
    def inner(self) -> int:
        """Return the width between the projections."""
        return self.heads * self.head_dim

    @property
    def convolved(self) -> int:
        """Return the width that passes through the convolution."""
        return self.inner + 2 * self.groups * self.state

    @property
    def kept(self) -> int:
        """Gate, what the convolution takes and gives, output, gated output."""
        return 2 * self.convolved + 3 * self.inner

    @property
    def scan(self) -> int:
        """Return the FLOPs as Megatron-LM counts them."""
        return 7 * self.inner * self.state

    @property
    def vectors(self) -> int:
        """Convolution and its bias, three numbers a head, the norm of the output."""
        return self.convolved * (self.convolution + 1) + 3 * self.heads + self.inner

    @property
    def whole(self) -> tuple[int, ...]:
        """Heads and groups."""
        return self.heads, self.groups

    def products(self, hidden: int) -> tuple[Product, ...]:
        """Return the projections before and after."""
        joint = self.inner + self.convolved + self.heads
        return Product(joint, hidden, "n"), Product(hidden, self.inner, "k")


class SelectiveMixer(Mixer):
    """A Mamba-1 mixer (arXiv 2312.00752): a state for each element of its width."""

    width: Count
    state: Count
    rank: Count
    convolution: Count = 4

    @property
    def inner(self) -> int:
        """Return the width between the projections."""
        return self.width

    @property
    def kept(self) -> int:
        """Gate, convolution's input and output, time step, output, gated output."""
        return 6 * self.width + self.rank + 2 * self.state

    @property
    def scan(self) -> int:
        """Return the FLOPs of decay, input, sum and output of each state."""
        return 7 * self.width * self.state

    @property
    def vectors(self) -> int:
        """Convolution and its bias, the step's bias, a decay a state, a skip."""
        return self.width * (self.convolution + 3 + self.state)

    @property
    def whole(self) -> tuple[int, ...]:
        """Return the width."""
        return (self.width,)

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

    @property
    def inner(self) -> int:
        """Return the width of the values."""
        return self.value_heads * self.value_dim

    @property
    def keyed(self) -> int:
        """Return the width of the keys, and of the queries."""
        return self.key_heads * self.key_dim

    @property
    def mixed(self) -> int:
        """Return the width of queries, keys and values."""
        return 2 * self.keyed + self.inner

    @property
    def kept(self) -> int:
        """Return the width kept for backward: convolution, scan, both gates."""
        return (2 if self.convolution else 1) * self.mixed + 3 * self.inner

    @property
    def scan(self) -> int:
        """FLOPs of a state's decay, update and reading; the delta rule reads twice."""
        return (5 if self.decay == "fixed" else 7) * self.inner * self.key_dim

    @property
    def vectors(self) -> int:
        """Convolution, what decays begin with, the norm of the output."""
        decays = {
            "fixed": 0,
            "head": 2 * self.value_heads,
            "channel": self.keyed + self.value_heads,
        }[self.decay]
        norm = self.inner if self.decay == "fixed" else self.value_dim
        return self.mixed * self.convolution + decays + norm

    @property
    def whole(self) -> tuple[int, ...]:
        """Heads."""
        return self.key_heads, self.value_heads

    def products(self, hidden: int) -> tuple[Product, ...]:
        """Return the products of queries, keys and values, decays, gate, output."""
        gate: tuple[Product, ...] = (Product(self.inner, hidden, "n"),)
        if self.rank:
            gate = Product(self.rank, hidden), Product(self.inner, self.rank, "n")
        decays: tuple[Product, ...] = ()
        if self.decay == "head":
            decays = (Product(2 * self.value_heads, hidden, "n"),)
        if self.decay == "channel":
            low = self.rank or hidden
            decays = (Product(self.keyed, low, "n"), Product(self.value_heads, hidden))
            if self.rank:
                decays = (Product(self.rank, hidden), *decays)
        first, last = Product(self.mixed, hidden, "n"), Product(hidden, self.inner, "k")
        return first, *decays, *gate, last


class ShortConvolution(Mixer):
    """A gated convolution of a few tokens (LFM2, arXiv 2511.23404)."""

    width: Count
    convolution: Count = 3

    @property
    def inner(self) -> int:
        """Return the width between the projections."""
        return self.width

    @property
    def kept(self) -> int:
        """Three that are projected, what the convolution takes and gives, gated."""
        return 6 * self.width

    @property
    def scan(self) -> int:
        """Return the FLOPs of the gates."""
        return 2 * self.width

    @property
    def vectors(self) -> int:
        """Return the weights of the convolution."""
        return self.width * self.convolution

    @property
    def whole(self) -> tuple[int, ...]:
        """Return the width."""
        return (self.width,)

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
