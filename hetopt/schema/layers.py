"""What layers are made of, where they are not all attention and an MLP.

A layer is one or two parts: `attention` sees all tokens before it, `window` the nearest
ones, `mamba` is a Mamba-2 mixer, `dense` an MLP, `experts` a mixture of them. A layer
that predicts further tokens has a third, `further`.
"""

from typing import Annotated, Literal

from pydantic import Field

from .record import Count, Record

ATTENTION, WINDOW, MAMBA = "attention", "window", "mamba"
DENSE, EXPERTS, FURTHER = "dense", "experts", "further"

LayerKind = Literal[
    "attention+dense",
    "attention+experts",
    "window+dense",
    "window+experts",
    "mamba+dense",
    "mamba+experts",
    "attention",
    "window",
    "mamba",
    "dense",
    "experts",
]
Parts = tuple[str, ...]
_Some = Annotated[int, Field(ge=0, le=10**12)]


class LatentAttention(Record):
    """Widths of multi-head latent attention (DeepSeek-V2, arXiv 2405.04434, 2.1)."""

    query_rank: Annotated[int, Field(ge=0, le=10_000_000)] = 0
    key_rank: Count
    plain: Count
    rotary: Count
    value_dim: Count

    @property
    def scored(self) -> int:
        """Of a head's queries and keys."""
        return self.plain + self.rotary

    def matrices(self, hidden: int, heads: int) -> int:
        """Parameters of the products; `query_rank` 0: queries are not compressed."""
        queries = heads * self.scored
        low = self.query_rank
        asked = low * (hidden + queries) if low else hidden * queries
        down = hidden * (self.key_rank + self.rotary)
        up = self.key_rank * heads * (self.plain + self.value_dim)
        return asked + down + up + heads * self.value_dim * hidden


class MambaMixer(Record):
    """A Mamba-2 mixer (arXiv 2405.21060): heads x head_dim wide, a state a head."""

    heads: Count
    head_dim: Count
    state: Count
    groups: Count = 1
    convolution: Count = 4

    @property
    def inner(self) -> int:
        """Width between the projections."""
        return self.heads * self.head_dim

    @property
    def convolved(self) -> int:
        """Width that passes through the convolution."""
        return self.inner + 2 * self.groups * self.state

    def matrices(self, hidden: int) -> int:
        """Parameters of the projections before and after."""
        joint = self.inner + self.convolved + self.heads
        return hidden * (joint + self.inner)

    @property
    def vectors(self) -> int:
        """Convolution and its bias, three numbers a head, the norm of the output."""
        return self.convolved * (self.convolution + 1) + 3 * self.heads + self.inner


class Vectors(Record):
    """Parameters of a part that are in none of its matrices: norms, biases, sinks.

    Where a part is absent, what follows from the other fields: its norms, the biases
    that `attention_bias` names, norms of queries and keys. `expert` are those of each
    routed expert, beside those of `experts`.
    """

    attention: _Some | None = None
    mamba: _Some | None = None
    dense: _Some | None = None
    experts: _Some | None = None
    expert: _Some = 0
