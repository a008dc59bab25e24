"""A transformer: its shape, and the parameters of its layers."""

from functools import cached_property
from typing import Annotated, Literal, Self

from pydantic import Field, model_validator

from .record import Count, Name, Record


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

    @cached_property
    def routed_parameters(self) -> tuple[int, ...]:
        """Those of `parameters` that are of experts to which tokens are sent."""
        if not self.experts:
            return (0,) * self.layers
        matrices = 3 if self.gated else 2
        width = self.expert_intermediate or self.mlp_width
        routed = self.experts * matrices * self.hidden * width
        return tuple(
            0 if layer < self.dense_layers else min(routed, whole)
            for layer, whole in enumerate(self.parameters)
        )

    @property
    def embedding_parameters(self) -> int:
        """V H, of the embedding and of the head alike."""
        return self.vocabulary * self.hidden

    def _derived(self, experts: int | None) -> tuple[int, ...]:
        h = self.hidden
        given = (self.kv_heads, self.head_dim, self.intermediate, self.experts)
        if not any(given) and not self.gated:
            return (12 * h * h,) * self.layers
        attention = 2 * h * (self.attention_width + self.kv_width)
        matrices = 3 if self.gated else 2
        dense = matrices * h * self.mlp_width
        norms = 2 * h
        if not self.experts:
            return (attention + dense + norms,) * self.layers
        assert experts is not None
        expert = matrices * h * (self.expert_intermediate or self.mlp_width)
        router = h * self.experts
        sparse = expert * (experts + self.shared_experts) + router
        return tuple(
            attention + norms + (dense if layer < self.dense_layers else sparse)
            for layer in range(self.layers)
        )
