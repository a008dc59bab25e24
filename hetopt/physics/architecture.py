"""The parts of a layer and the matrices that they multiply with.

A layer is one or two parts, in this order: `attention` (grouped-query, or latent as in
DeepSeek-V2), `window` (the same, of the nearest tokens), `mamba` (Mamba-2), `dense` (an
MLP), `experts` (a mixture); a third is `further`, what predicting further tokens takes
beside a layer, without its pass through the head. Matrices are
those of one GPU: of `t` tensor-parallel ones a t-th of the heads and of the width, of
`ep` expert-parallel ones an ep-th of the experts.
"""

from collections import Counter
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

ATTENTION, MAMBA, DENSE, EXPERTS = "attention", "mamba", "dense", "experts"
WINDOW, FURTHER = "window", "further"
ATTENDING = (ATTENTION, WINDOW)
Layer = tuple[str, ...]


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


class Latent(NamedTuple):
    """Widths of latent attention (MLA): DeepSeek-V2, arXiv 2405.04434, section 2.1."""

    queries: int  # 0: they are not compressed
    keys: int
    plain: int  # of a head, without position
    rotary: int
    values: int


class Mamba(NamedTuple):
    """A Mamba-2 mixer: heads x head_dim wide, with a state of so many a head."""

    heads: int
    head_dim: int
    state: int
    groups: int = 8


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
    latent: Latent | None = None
    mamba: Mamba | None = None
    window: int | None = None  # of the part `window`; else of every other layer
    chunked: bool = False  # windows are chunks, which do not slide
    relu: bool = False  # of a plain MLP; keeps its output alone

    @cached_property
    def kinds(self) -> Counter[Layer]:
        """How many layers there are of each kind."""
        return Counter(self.layers)

    def seen(self, part: str, s: float) -> float:
        """Tokens that one sees on average, of sequences of `s`."""
        if not self.window:
            return s / 2
        if part != WINDOW and any(WINDOW in layer for layer in self.kinds):
            return s / 2
        if part != WINDOW:  # told of the model: every other layer has it
            return (s / 2 + min(self.window, s / 2)) / 2
        w = min(self.window, s)
        if self.chunked:
            return (s // w * w * w + (s % w) ** 2) / (2 * s)
        return w - w * w / (2 * s)

    @property
    def score_width(self) -> int:
        """Of a head's queries and keys."""
        return self.latent.plain + self.latent.rotary if self.latent else self.head_dim

    @property
    def value_width(self) -> int:
        """Of a head's values."""
        return self.latent.values if self.latent else self.head_dim

    def matrices(self, part: str, t: int = 1, ep: int = 1) -> tuple[Matrix, ...]:
        """The products of a part's forward pass on one GPU."""
        make = {
            ATTENTION: self._attention,
            WINDOW: self._attention,
            FURTHER: self._further,
            MAMBA: self._mamba,
            DENSE: self._dense,
            EXPERTS: self._experts,
        }[part]
        return make(t, ep)

    def parameters(self, part: str, t: int = 1, ep: int = 1) -> float:
        """Weights of a part on one GPU, its norm among them."""
        return self.hidden + sum(m.parameters for m in self.matrices(part, t, ep))

    @property
    def active(self) -> float:
        """Weights of all layers that one token is multiplied with."""
        return sum(
            matrix.parameters * matrix.rows
            for layer in self.layers
            for part in layer
            for matrix in self.matrices(part)
        )

    def _attention(self, t: int, ep: int) -> tuple[Matrix, ...]:
        h, heads = self.hidden, self.heads / t
        if (x := self.latent) is not None:
            scored = heads * (x.plain + x.rotary)
            asked = [Matrix(scored, x.queries or h)]
            return (
                *([Matrix(x.queries, h)] if x.queries else []),
                *asked,
                Matrix(x.keys + x.rotary, h),
                Matrix(heads * (x.plain + x.values), x.keys),
                Matrix(h, heads * x.values),
            )
        kv = max(self.kv_heads / t, 1)
        joint = (heads + 2 * kv) * self.head_dim
        return Matrix(joint, h), Matrix(h, heads * self.head_dim)

    def _mamba(self, t: int, ep: int) -> tuple[Matrix, ...]:
        x = self.mamba
        assert x is not None
        inner = x.heads * x.head_dim
        joint = (2 * inner + x.heads + 2 * x.groups * x.state) / t
        return Matrix(joint, self.hidden), Matrix(self.hidden, inner / t)

    def _further(self, t: int, ep: int) -> tuple[Matrix, ...]:
        """The last hidden state and the next token's embedding, joined."""
        return (Matrix(self.hidden / t, 2 * self.hidden),)

    def _mlp(
        self, width: float, rows: float = 1, times: float = 1, routed: bool = False
    ) -> list[Matrix]:
        up = Matrix(width * (2 if self.gated else 1), self.hidden, rows, times, routed)
        return [up, Matrix(self.hidden, width, rows, times, routed)]

    def _dense(self, t: int, ep: int) -> tuple[Matrix, ...]:
        return tuple(self._mlp(self.intermediate / t))

    def _experts(self, t: int, ep: int) -> tuple[Matrix, ...]:
        """Experts whole on a GPU, their tokens those of its share of the sequence."""
        router = Matrix(self.experts, self.hidden, 1 / t)
        each = self.experts_per_token * ep / (t * self.experts)
        here = self.experts / ep
        made = [router, *self._mlp(self.expert_intermediate, each, here, routed=True)]
        if self.shared_intermediate:
            made += self._mlp(self.shared_intermediate / t)
        return tuple(made)
