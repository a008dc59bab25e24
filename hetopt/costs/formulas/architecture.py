"""The parts of a layer and the matrices that they multiply with.

A layer is one part or several: `attention` (grouped-query, or latent as in
DeepSeek-V2), `window` (the same, of the nearest tokens), a mixer without scores by its
name (`mamba` is Mamba-2), `dense` (an MLP), `experts` (a mixture), and `further`, what
predicting further tokens takes beside a layer, without its pass through the head.
Matrices are those of one GPU: of `t` tensor-parallel ones a t-th of the heads and of
the width, of `ep` expert-parallel ones an ep-th of the experts.
"""

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import NamedTuple

from ...schema.layers import (
    ATTENDING,
    ATTENTION,
    DENSE,
    EXPERTS,
    FURTHER,
    WINDOW,
    LatentAttention,
    Parts,
)
from .shared import scores

Layer = Parts


class Matrix(NamedTuple):
    """A product of [m, k] x [k, n], `times` over; m is `rows` of each token."""

    n: float
    k: float
    rows: float = 1
    times: float = 1
    routed: bool = False  # of experts that tokens are sent to

    @property
    def parameters(self) -> float:
        """Weights of all `times`."""
        return self.n * self.k * self.times


Matrices = tuple[Matrix, ...]


class Division(NamedTuple):
    """How the experts of a layer lie on GPUs.

    They are divided among `groups` GPUs, and each of them is cut among `cut` others;
    all those GPUs together compute on `batches` micro-batches.
    """

    groups: int
    cut: int
    batches: float

    @classmethod
    def of(cls, t: int, ep: int = 1, etp: int | None = None) -> "Division":
        """Return that of groups of `t` GPUs, each with a micro-batch of its own.

        Unless `etp` tells, tensor parallelism cuts experts where nothing divides them.
        """
        cut = (t if ep == 1 else 1) if etp is None else etp
        return cls(ep, cut, ep * cut / t)


class Adapters(NamedTuple):
    """Low-rank adapters of a part on one GPU."""

    products: int  # matrices that have one
    parameters: float
    elements: float  # of a token, what they take and give

    @classmethod
    def of(cls, widths: Iterable[float], rank: int, t: int) -> "Adapters":
        """Return those beside matrices of so many rows and columns together."""
        each = list(widths)
        return cls(len(each), rank * sum(each) / t, sum(each) / t)


class Mixer(NamedTuple):
    """A mixer without scores: products (n, k, which of the two a group cuts)."""

    products: tuple[tuple[int, int, str], ...]
    inner: int  # width between the projections
    kept: int  # elements of a token for the backward pass, its input apart
    scan: int  # FLOPs of a token's forward pass beside products and convolution


def mamba_2(
    hidden: int, heads: int, head_dim: int, state: int, groups: int = 8
) -> Mixer:
    """Return a Mamba-2 mixer: heads x head_dim wide, with a state of so many a head."""
    inner = heads * head_dim
    joint, scan = 2 * inner + heads + 2 * groups * state, 7 * inner * state
    return Mixer(((joint, hidden, "n"), (hidden, inner, "k")), inner, 5 * inner, scan)


class Indexer(NamedTuple):
    """A part that chooses the tokens that attention sees."""

    heads: int
    head_dim: int
    chosen: int
    products: tuple[tuple[int, int, str], ...]


@dataclass(frozen=True)
class Architecture:
    """A decoder, as far as its speed and memory depend on it."""

    layers: tuple[Layer, ...]
    hidden: int
    heads: int
    kv_heads: int
    head_dim: int
    intermediate: int
    gated: bool
    vocabulary: int
    tied: bool = False
    experts: int = 0
    experts_per_token: int = 0
    expert_intermediate: int = 0
    shared_intermediate: int = 0
    latent: LatentAttention | None = None
    mixers: Mapping[str, Mixer] = field(default_factory=dict)
    indexer: Indexer | None = None
    value_dim: int = 0  # 0: head_dim
    gate: int = 0  # width of what attention's output is gated by
    kv_products: int = 2  # fewer where keys are values, or another layer's
    expert_hidden: int = 0  # 0: hidden
    window: int | None = None  # of the part `window`; else of every other layer
    chunked: bool = False  # windows are chunks, which do not slide
    relu: bool = False  # of a plain MLP; keeps its output alone

    @cached_property
    def kinds(self) -> Counter[Layer]:
        """How many layers there are of each kind."""
        return Counter(self.layers)

    def seen(self, part: str, s: float) -> float:
        """Tokens that one sees on average, of sequences of `s`."""
        own = self._within(part, s)
        if self.indexer and self.indexer.chosen < s:
            own = min(own, scores(s, self.indexer.chosen) / (2 * s))
        return own

    def _within(self, part: str, s: float) -> float:
        if not self.window:
            return s / 2
        if part != WINDOW and any(WINDOW in layer for layer in self.kinds):
            return s / 2
        if part != WINDOW:  # told of the model: every other layer has it
            return (s / 2 + min(self.window, s / 2)) / 2
        return scores(s, min(self.window, s), chunked=self.chunked) / (2 * s)

    @property
    def score_width(self) -> int:
        """Return the width of a head's queries and keys."""
        return self.latent.scored if self.latent else self.head_dim

    @property
    def value_width(self) -> int:
        """Return the width of a head's values."""
        return self.latent.value_dim if self.latent else self.value_dim or self.head_dim

    def matrices(self, part: str, t: int = 1, of: Division | None = None) -> Matrices:
        """The products of a part's forward pass on one GPU, experts divided as `of`."""
        if (mixer := self.mixers.get(part)) is not None:
            return _cut(mixer.products, t)
        if part == EXPERTS:
            return self._experts(t, of or Division.of(t))
        make = {
            ATTENTION: self._attention,
            WINDOW: self._attention,
            FURTHER: self._further,
            DENSE: self._dense,
        }[part]
        return make(t)

    def parameters(self, part: str, t: int = 1, of: Division | None = None) -> float:
        """Weights of a part on one GPU, its norm among them."""
        return self.hidden + sum(m.parameters for m in self.matrices(part, t, of))

    @property
    def active(self) -> float:
        """Weights of all layers that one token is multiplied with."""
        return sum(
            matrix.parameters * matrix.rows
            for layer in self.layers
            for part in layer
            for matrix in self.matrices(part)
        )

    def _attention(self, t: int) -> Matrices:
        h, heads = self.hidden, self.heads / t
        chooses = _cut(self.indexer.products, t) if self.indexer else ()
        if (x := self.latent) is not None:
            asked = Matrix(heads * x.scored, x.query_rank or h)
            return (
                *([Matrix(x.query_rank, h)] if x.query_rank else []),
                asked,
                Matrix(x.key_rank + x.rotary, h),
                Matrix(heads * (x.plain + x.value_dim), x.key_rank),
                Matrix(h, heads * x.value_dim),
                *chooses,
            )
        joint = heads * self.head_dim + self.gate / t + self.keyed(t)
        return Matrix(joint, h), Matrix(h, heads * self.value_width), *chooses

    def keyed(self, t: int) -> float:
        """Width of keys and values on a GPU, as far as a layer has its own."""
        kv = max(self.kv_heads / t, 1)
        return kv * self.kv_products * (self.head_dim + self.value_width) / 2

    def _further(self, t: int) -> Matrices:
        """The last hidden state and the next token's embedding, joined."""
        return (Matrix(self.hidden / t, 2 * self.hidden),)

    def _mlp(
        self, width: float, rows: float = 1, times: float = 1, *, routed: bool = False
    ) -> list[Matrix]:
        h = self.routed_width if routed else self.hidden
        up = Matrix(width * (2 if self.gated else 1), h, rows, times, routed)
        return [up, Matrix(h, width, rows, times, routed)]

    @property
    def routed_width(self) -> int:
        """Width of a token as experts are given it."""
        return self.expert_hidden or self.hidden

    def _dense(self, t: int) -> Matrices:
        return tuple(self._mlp(self.intermediate / t))

    def adapters(
        self, part: str, rank: int, t: int = 1, attended: str = "qkvo"
    ) -> "Adapters":
        """Return the low-rank adapters beside the matrices of a part, on one GPU."""
        h, gates = self.hidden, 2 if self.gated else 1
        if part in ATTENDING:
            queries, keyed = self.heads * self.head_dim, self.keyed(1) / 2
            widths = {"q": queries, "k": keyed, "o": self.heads * self.value_width}
            if self.kv_products == 2:
                widths["v"] = keyed
            beside = [h + x for name, x in widths.items() if name in attended]
            return Adapters.of(beside, rank, t)
        if part == EXPERTS:
            one = [h + self.expert_intermediate] * (gates + 1)
            used = Adapters.of(one, rank, t)
            return used._replace(
                parameters=used.parameters * self.experts,
                elements=used.elements * self.experts_per_token,
            )
        if part == DENSE:
            return Adapters.of([h + self.intermediate] * (gates + 1), rank, t)
        return Adapters(0, 0.0, 0.0)

    def _experts(self, t: int, of: Division) -> Matrices:
        """Experts of one GPU, and the tokens that they are given of all groups."""
        router = Matrix(self.experts, self.hidden, 1 / t)
        each = self.experts_per_token * of.batches / self.experts
        here, width = self.experts / of.groups, self.expert_intermediate / of.cut
        made = [router, *self._mlp(width, each, here, routed=True)]
        if self.shared_intermediate:
            made += self._mlp(self.shared_intermediate / t)
        if low := self.expert_hidden:
            made += [Matrix(low, self.hidden, 1 / t), Matrix(self.hidden, low, 1 / t)]
        return tuple(made)


def _cut(products: Iterable[tuple[int, int, str]], t: int) -> tuple[Matrix, ...]:
    """Return products as a GPU of a group of `t` has them."""
    return tuple(
        Matrix(n / t if cut == "n" else n, k / t if cut == "k" else k)
        for n, k, cut in products
    )
