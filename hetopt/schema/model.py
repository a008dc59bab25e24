"""A transformer: its shape, and the parameters of its layers."""

from functools import cached_property
from typing import Annotated, Literal, Self

from pydantic import Field, model_validator

from .architecture import Architecture
from .layers import (
    ATTENTION,
    DENSE,
    EXPERTS,
    FURTHER,
    MAMBA,
    WINDOW,
    LatentAttention,
    LayerKind,
    MambaMixer,
    Parts,
    Vectors,
)
from .record import Count, Name, Record

MOST_LAYERS = 10_000


class ModelSpec(Record):
    """A transformer: layers of equal width, parameters per layer equal or listed.

    Parameters of a layer are, in this order: `layer_parameters`, else
    `parameters_per_layer`, else derived from the architecture where any of
    `kv_heads, head_dim, intermediate, gated, experts` or of the fields of layers that
    differ is given, else 12 H^2.
    `active_parameters` are the ones that a token uses (fewer than all for MoE):
    memory and synchronisation count all, FLOPs count the active ones.

    `activation, norm, dropout, attention_dropout` decide which tensors a layer keeps
    for its backward pass under `costs.activations: architecture`, and what its
    memory-bound kernels move. `norm: layer_from_output` is the layer norm that keeps
    its output in place of its input; `rms_unfused` one made of single operators.

    `layer_kinds` say what each layer is made of, repeated as often as it takes; without
    them all are attention and an MLP, of experts behind the first `dense_layers`. The
    last `mtp_layers` of `layers` predict further tokens: each has a product of 2 H x H,
    three norms and one more pass through the head, whose weights it shares.
    `architecture` is for the trainer alone; absent where no configuration told it.
    """

    name: Name
    layers: Annotated[int, Field(ge=1, le=MOST_LAYERS)]
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
    layer_kinds: tuple[LayerKind, ...] | None = None
    window: Count | None = None
    chunked: bool = False
    latent: LatentAttention | None = None
    mamba: MambaMixer | None = None
    mtp_layers: Annotated[int, Field(ge=0)] = 0
    qk_norm: bool = False
    post_norm: bool = False
    attention_bias: Literal["none", "qkv", "all"] = "none"
    vectors: Vectors | None = None
    other_parameters: Annotated[int, Field(ge=0, le=10**12)] = 0
    architecture: Architecture | None = None

    _of_layers = (
        "layer_kinds",
        "window",
        "chunked",
        "latent",
        "mamba",
        "mtp_layers",
        "qk_norm",
        "post_norm",
        "attention_bias",
        "vectors",
    )
    _later = frozenset(
        {"activation", "norm", "dropout", "attention_dropout", "other_parameters"}
        | {"architecture", *_of_layers}
    )

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
        if self.head_dim is None and not self.latent and self.hidden % self.heads:
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
        self._consistent_layers()
        return self

    def _consistent_layers(self) -> None:
        kinds, used = self.layer_kinds, {part for kind in self.kinds for part in kind}
        if kinds is not None and not 0 < len(kinds) <= self.layers:
            raise ValueError(
                f"layer_kinds lists {len(kinds)} layers, layers is {self.layers}: list "
                "one kind a layer, or the fewer that repeat"
            )
        if self.mtp_layers >= self.layers:
            raise ValueError(
                f"mtp_layers {self.mtp_layers} are among layers {self.layers}: "
                "expected fewer, correct one of them"
            )
        for part in (WINDOW, MAMBA, EXPERTS):
            if part in used and not getattr(self, part):
                raise ValueError(
                    f"layer_kinds has {part!r} without the field {part}: add it"
                )
        sparse = [EXPERTS in kind for kind in self.kinds]
        first = sparse.index(True) if True in sparse else self.dense_layers
        if kinds is not None and self.dense_layers not in (0, first):
            raise ValueError(
                f"layer_kinds has experts from layer {first}, dense_layers is "
                f"{self.dense_layers}: remove dense_layers"
            )

    @cached_property
    def kinds(self) -> tuple[Parts, ...]:
        """The parts that each layer is made of."""
        if self.layer_kinds is None:
            first = self.dense_layers if self.experts else self.layers
            made: list[Parts] = [
                (ATTENTION, DENSE if x < first else EXPERTS) for x in range(self.layers)
            ]
        else:
            each = [tuple(kind.split("+")) for kind in self.layer_kinds] or [()]
            made = [each[x % len(each)] for x in range(self.layers)]
        plain = self.layers - self.mtp_layers
        return tuple(
            kind if x < plain else (*kind, FURTHER) for x, kind in enumerate(made)
        )

    @cached_property
    def even(self) -> bool:
        """Whether all layers are of one kind, with as many parameters."""
        rows = (self.kinds, self.parameters, self.active_parameters)
        return all(len(set(row)) == 1 for row in rows)

    @cached_property
    def attention_width(self) -> int:
        """heads x head_dim, the width in the 4 b S^2 H term; H unless head_dim.

        With latent attention the mean of the widths of scores and of values.
        """
        if self.latent:
            return self.heads * (self.latent.scored + self.latent.value_dim) // 2
        return self.heads * self.head_dim if self.head_dim else self.hidden

    @property
    def mlp_width(self) -> int:
        """Width between the matrices of a dense MLP; 4 H unless `intermediate`."""
        return self.intermediate or 4 * self.hidden

    @property
    def expert_width(self) -> int:
        """Width between the matrices of the experts that a token uses, all together."""
        each = self.expert_intermediate or self.mlp_width
        return each * ((self.active_experts or 0) + self.shared_experts)

    @property
    def kv_width(self) -> int:
        """Width of the keys, and of the values."""
        if self.latent:
            return self.attention_width
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

    @cached_property
    def routed_parameters(self) -> tuple[int, ...]:
        """Those of `parameters` that are of experts to which tokens are sent."""
        if not self.experts:
            return (0,) * self.layers
        matrices = 3 if self.gated else 2
        width = self.expert_intermediate or self.mlp_width
        routed = self.experts * matrices * self.hidden * width
        return tuple(
            min(routed, whole) if EXPERTS in kind else 0
            for kind, whole in zip(self.kinds, self.parameters, strict=True)
        )

    @property
    def embedding_parameters(self) -> int:
        """V H, of the embedding and of the head alike."""
        return self.vocabulary * self.hidden

    @property
    def total_parameters(self) -> int:
        """All parameters: layers, embedding, head, and what is beside them.

        Those of `mtp_layers` are among them, as published counts have them apart.
        """
        ends = self.embedding_parameters * (1 if self.tied_embeddings else 2)
        return sum(self.parameters) + ends + self.other_parameters

    def _derived(self, experts: int | None) -> tuple[int, ...]:
        h = self.hidden
        given = (self.kv_heads, self.head_dim, self.intermediate, self.experts)
        fields = type(self).model_fields
        own = (getattr(self, x) != fields[x].default for x in self._of_layers)
        if not any(given) and not self.gated and not any(own):
            return (12 * h * h,) * self.layers
        sizes = {
            part: self._matrices(part, experts or 0) + self._beside(part, experts or 0)
            for part in {part for kind in self.kinds for part in kind}
        }
        return tuple(sum(sizes[part] for part in kind) for kind in self.kinds)

    def _matrices(self, part: str, experts: int) -> int:
        """Parameters of the products of a part, with so many of its routed experts."""
        h, matrices = self.hidden, 3 if self.gated else 2
        if part == FURTHER:
            return 2 * h * h
        if part == MAMBA:
            assert self.mamba is not None
            return self.mamba.matrices(h)
        if part == DENSE:
            return matrices * h * self.mlp_width
        if part == EXPERTS:
            expert = matrices * h * (self.expert_intermediate or self.mlp_width)
            return expert * (experts + self.shared_experts) + h * (self.experts or 0)
        if self.latent:
            return self.latent.matrices(h, self.heads)
        return 2 * h * (self.attention_width + self.kv_width)

    def _beside(self, part: str, experts: int) -> int:
        """Parameters of a part that are in no matrix."""
        told = self.vectors or Vectors()
        if part == FURTHER:
            return 3 * self.hidden
        name = ATTENTION if part == WINDOW else part
        own: int | None = getattr(told, name)
        if own is None:
            own = (1 + self.post_norm) * self.hidden
            own += self._of_attention() if name == ATTENTION else 0
            own += self.mamba.vectors if name == MAMBA and self.mamba else 0
        return own + (told.expert * experts if part == EXPERTS else 0)

    def _of_attention(self) -> int:
        """Norms of latents, or of queries and keys, and biases."""
        if self.latent:
            return self.latent.query_rank + self.latent.key_rank
        width = self.attention_width
        bias = {"none": 0, "qkv": width + 2 * self.kv_width}
        bias["all"] = bias["qkv"] + self.hidden
        norms = 2 * (width // self.heads) if self.qk_norm else 0
        return norms + bias[self.attention_bias]
