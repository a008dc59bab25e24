"""The parameters of a decoder: names, shapes, and how tensor parallelism cuts them.

A parameter that is cut is cut along one axis, between `grains` equal parts that stay
whole: attention between groups of heads that share a key and a value, the MLP and the
vocabulary anywhere. Of `t` GPUs, GPU `j` has the parts from floor(grains j / t) up to
floor(grains (j + 1) / t), so that any degree up to `grains` can be run.
"""

from collections.abc import Iterator
from fractions import Fraction
from typing import Literal, NamedTuple

from .decoder import Decoder, Experts

EMBEDDING, HEAD = "embedding", "head"
TABLE = "embedding.weight"
Start = Literal["normal", "small", "zeros", "ones"]


class Parameter(NamedTuple):
    """A whole parameter.

    `units` are the places that use it: a layer's number, embedding, head; tied
    embeddings are used in two. `summed` says when each GPU of a tensor-parallel group
    has a part of its gradient only: where the sequence is cut, always, or never.
    `expert` is the share of a layer's experts that lie before the one it is of.
    """

    name: str
    units: tuple[str, ...]
    shape: tuple[int, ...]
    axis: int | None = None
    grains: int = 1
    start: Start = "normal"
    summed: Literal["never", "sequence", "always"] = "never"
    expert: Fraction | None = None

    @property
    def decays(self) -> bool:
        """Return whether weight decay is for it: for matrices alone."""
        return len(self.shape) > 1

    def edge(self, share: Fraction) -> int:
        """Return where a share of the parameter ends along its axis."""
        if self.axis is None:
            return 0
        return self.shape[self.axis] // self.grains * int(self.grains * share)

    def span(self, rank: int, degree: int) -> tuple[int, int]:
        """First and one past the last index along the axis that GPU `rank` has."""
        return self.edge(Fraction(rank, degree)), self.edge(Fraction(rank + 1, degree))


def parameters(shape: Decoder) -> Iterator[Parameter]:
    """Every parameter of a decoder, in the order of its layers."""
    h, v = shape.hidden, shape.vocabulary
    users = (EMBEDDING, HEAD) if shape.tied else (EMBEDDING,)
    yield Parameter(TABLE, users, (v, h), 0, v)
    if shape.positions == "learned":
        name, size = "embedding.positions", (shape.max_positions, h)
        yield Parameter(name, (EMBEDDING,), size, summed="sequence")
    for number in range(shape.layers):
        for part in _layer(shape, str(number)):
            yield part._replace(name=f"layers.{number}.{part.name}")
    yield from _norm(shape, "head.norm", HEAD)
    if not shape.tied:
        yield Parameter("head.weight", (HEAD,), (v, h), 0, v)


def _layer(shape: Decoder, unit: str) -> Iterator[Parameter]:
    h = shape.hidden
    inner, kv = shape.heads * shape.head_dim, shape.kv_heads * shape.head_dim
    groups = shape.kv_heads
    yield from _norm(shape, "norm_1", unit)
    for name, size in (("q", inner), ("k", kv), ("v", kv)):
        yield from _columns(
            f"attention.{name}", unit, (size, h), groups, biased=shape.qkv_biased
        )
    if shape.qk_norm:
        for name in ("q_norm", "k_norm"):
            yield Parameter(
                f"attention.{name}.weight",
                (unit,),
                (shape.head_dim,),
                start="ones",
                summed="always",
            )
    yield from _rows("attention.out", unit, (h, inner), groups, biased=shape.biased)
    yield from _norm(shape, "norm_2", unit)
    if shape.experts is not None and shape.has_experts(int(unit)):
        yield from _mixture(shape, shape.experts, unit)
    else:
        yield from _mlp("mlp", shape, unit, shape.intermediate, biased=shape.biased)


def _mlp(
    name: str, shape: Decoder, unit: str, wide: int, *, biased: bool
) -> Iterator[Parameter]:
    h = shape.hidden
    for part in ("gate", "up") if shape.gated else ("up",):
        yield from _columns(f"{name}.{part}", unit, (wide, h), wide, biased=biased)
    yield from _rows(f"{name}.down", unit, (h, wide), wide, biased=biased)


def _mixture(shape: Decoder, experts: Experts, unit: str) -> Iterator[Parameter]:
    """Router and experts; each GPU of a group sees a part of what the router does."""
    h = shape.hidden
    size = (experts.count, h)
    yield Parameter("experts.router.weight", (unit,), size, summed="always")
    for number in range(experts.count):
        for part in _mlp(f"experts.{number}", shape, unit, experts.width, biased=False):
            yield part._replace(expert=Fraction(number, experts.count))
    if experts.shared:
        yield from _mlp("shared", shape, unit, experts.shared, biased=False)
    if experts.shared_gated:
        yield Parameter("shared_gate.weight", (unit,), (1, h), summed="sequence")


def _norm(shape: Decoder, name: str, unit: str) -> Iterator[Parameter]:
    size = (shape.hidden,)
    yield Parameter(f"{name}.weight", (unit,), size, start="ones", summed="sequence")
    if shape.norm == "layer":
        yield Parameter(f"{name}.bias", (unit,), size, start="zeros", summed="sequence")


def _columns(
    name: str, unit: str, size: tuple[int, int], grains: int, *, biased: bool
) -> Iterator[Parameter]:
    """A matrix whose outputs are cut, and its bias, cut alike."""
    yield Parameter(f"{name}.weight", (unit,), size, 0, grains)
    if biased:
        yield Parameter(f"{name}.bias", (unit,), size[:1], 0, grains, "zeros")


def _rows(
    name: str, unit: str, size: tuple[int, int], grains: int, *, biased: bool
) -> Iterator[Parameter]:
    """A matrix whose inputs are cut; its bias is added once, to the sum."""
    yield Parameter(f"{name}.weight", (unit,), size, 1, grains, "small")
    if biased:
        yield Parameter(
            f"{name}.bias", (unit,), size[:1], start="zeros", summed="sequence"
        )
