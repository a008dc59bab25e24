"""A transformer: its shape, and the parameters of its layers."""

from collections.abc import Sequence
from functools import cached_property
from typing import Annotated, Literal, Self

from pydantic import Field, model_validator

from .layers import (
    ATTENDING,
    ATTENTION,
    DENSE,
    EXPERTS,
    FURTHER,
    MIXERS,
    MODULE_OF,
    WINDOW,
    Indexer,
    Kind,
    LatentAttention,
    LayerKind,
    LayerShape,
    LinearAttention,
    MambaMixer,
    Mixer,
    Parts,
    SelectiveMixer,
    ShortConvolution,
    Vectors,
    shape_of,
)
from .record import Count, Name, Record

MOST_LAYERS = 10_000
Share = Annotated[float, Field(ge=0, le=1)]
Above = Annotated[float, Field(gt=0)]


class RopeScaling(Record):
    """Rotary positions are scaled beyond the length that they were made for.

    `linear` divides positions by `factor`; `llama3` does so for slow frequencies alone,
    between two wavelengths that the other three fields tell.
    """

    kind: Literal["linear", "llama3"]
    factor: Above
    low_freq_factor: Above | None = None
    high_freq_factor: Above | None = None
    original_length: Count | None = None

    @model_validator(mode="after")
    def _whole(self) -> Self:
        rest = (self.low_freq_factor, self.high_freq_factor, self.original_length)
        if self.kind == "llama3" and None in rest:
            raise ValueError(
                "rope scaling llama3 needs low_freq_factor, high_freq_factor and "
                "original_length: give all three"
            )
        return self


class Router(Record):
    """A router chooses experts; `normalised` weights of the chosen sum to one."""

    normalised: bool
    auxiliary_loss: Annotated[float, Field(ge=0)] = 0.0


class Architecture(Record):
    """A model as its own trainers know it: norms, positions, biases, dropout.

    No cost depends on it: it travels from the model's configuration to the trainer
    that runs the plan.
    """

    family: Name
    normalization: Literal["layer", "rms"]
    norm_epsilon: Above
    activation: Literal["gelu", "gelu_tanh", "relu", "silu"]
    positions: Literal["rope", "learned"]
    longest: Count
    rope_base: Above | None = None
    rope_scaling: RopeScaling | None = None
    bias: bool = False
    qkv_bias: bool = False
    query_key_norm: bool = False
    dropout: Share = 0.0
    attention_dropout: Share = 0.0
    router: Router | None = None

    def positions_for(self, length: int) -> int:
        """Return the most positions that a trainer on sequences of `length` is told.

        Rotary ones are computed for any length, learned ones are parameters.
        """
        return max(self.longest, length) if self.positions == "rope" else self.longest

    @model_validator(mode="after")
    def _rotates(self) -> Self:
        if (self.positions == "rope") != (self.rope_base is not None):
            raise ValueError("rope_base goes with positions rope: give both or neither")
        return self


class ModelSpec(Record):
    """A transformer: layers of equal width, parameters per layer equal or listed.

    Parameters of a layer are, in this order: `layer_parameters`, else
    `parameters_per_layer`, else derived from the architecture where any of
    `kv_heads, head_dim, intermediate, gated, experts` or of the fields of layers that
    differ is given, else 12 H^2.
    `active_parameters` are the ones that a token uses (fewer than all for MoE):
    memory and synchronisation count all, FLOPs count the active ones.

    `layer_kinds` say what each layer is made of, repeated as often as it takes; without
    them all are attention and an MLP, of experts behind the first `dense_layers`.
    `layer_shapes` are repeated likewise: what of a layer is wider or narrower than the
    model's fields say. `layer_table` are parameters of each layer that tokens look up:
    they are weighed, and no product is counted. The
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
    norm: Literal["layer", "rms"] = "layer"
    dropout: bool = True
    layer_kinds: tuple[LayerKind, ...] | None = None
    window: Count | None = None
    chunked: bool = False
    latent: LatentAttention | None = None
    mamba: MambaMixer | None = None
    mamba1: SelectiveMixer | None = None
    linear: LinearAttention | None = None
    convolution: ShortConvolution | None = None
    indexer: Indexer | None = None
    value_dim: Count | None = None
    gated_attention: bool = False
    kv_products: Annotated[int, Field(ge=0, le=2)] = 2
    expert_hidden: Count | None = None
    layer_shapes: tuple[LayerShape, ...] | None = None
    layer_table: Annotated[int, Field(ge=0, le=10**12)] = 0
    mtp_layers: Annotated[int, Field(ge=0)] = 0
    qk_norm: bool = False
    post_norm: bool = False
    attention_bias: Literal["none", "qkv", "all"] = "none"
    vectors: Vectors | None = None
    other_parameters: Annotated[int, Field(ge=0, le=10**12)] = 0
    architecture: Architecture | None = None

    _of_layers = (
        *("layer_kinds", "window", "chunked", "latent", *MIXERS, "indexer"),
        *("value_dim", "gated_attention", "kv_products", "expert_hidden"),
        *("layer_shapes", "layer_table", "mtp_layers"),
        *("qk_norm", "post_norm", "attention_bias", "vectors"),
    )

    @model_validator(mode="after")
    def _consistent(self) -> Self:
        for field in ("layer_parameters", "active_layer_parameters"):
            listed = getattr(self, field)
            if listed is not None and len(listed) != self.layers:
                raise ValueError(
                    f"{field} lists {len(listed)} layers, layers is {self.layers}: "
                    "list one number per layer"
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
        self._consistent_shapes()
        return self

    def _consistent_shapes(self) -> None:
        for shape, own in self._by_shape.items():
            keys = own.kv_heads or own.heads
            if own.heads % keys or (own.head_dim is None and own.hidden % own.heads):
                raise ValueError(
                    f"layer_shapes has {own.heads} heads of {own.head_dim or 'no'} "
                    f"width and {keys} key-value heads, hidden is {own.hidden}: give "
                    "heads that kv_heads divides, and head_dim"
                )
            if self.latent and (shape.head_dim or shape.kv_heads or shape.kv_products):
                raise ValueError(
                    "layer_shapes has widths of keys beside latent attention: remove "
                    "head_dim, kv_heads and kv_products"
                )

    def _consistent_layers(self) -> None:
        kinds, used = self.layer_kinds, {part for kind in self.kinds for part in kind}
        for field, word in (("layer_kinds", "kind"), ("layer_shapes", "shape")):
            listed = getattr(self, field)
            if listed is not None and not 0 < len(listed) <= self.layers:
                raise ValueError(
                    f"{field} lists {len(listed)} layers, layers is {self.layers}: "
                    f"list one {word} per layer, or the pattern that repeats"
                )
        if self.mtp_layers >= self.layers:
            raise ValueError(
                f"mtp_layers {self.mtp_layers} are among layers {self.layers}: "
                "expected fewer, correct one of them"
            )
        for part in (WINDOW, *MIXERS, EXPERTS):
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
    def kinds(self) -> tuple[Kind, ...]:
        """The parts that each layer is made of, and its shape where it has one."""
        first = self.dense_layers if self.experts else self.layers
        each = [tuple(kind.split("+")) for kind in self.layer_kinds or ()]
        shapes = self.layer_shapes or (None,)
        made = []
        for x in range(self.layers):
            parts: Parts = (ATTENTION, DENSE if x < first else EXPERTS)
            if self.layer_kinds is not None:
                parts = each[x % len(each)] if each else ()
            if x >= self.layers - self.mtp_layers:
                parts = (*parts, FURTHER)
            shape = shapes[x % len(shapes)]
            made.append(Kind(parts, None if shape == LayerShape() else shape))
        same = {kind: kind for kind in made}  # one object for each, which compare fast
        return tuple(same[kind] for kind in made)

    @cached_property
    def alike(self) -> bool:
        """Return whether all layers are of one kind."""
        return len({*self.kinds}) == 1

    def of(self, kind: Parts) -> "ModelSpec":
        """Return the model with the widths that a layer of `kind` has."""
        shape = shape_of(kind)
        return self if shape is None else self._by_shape[shape]

    @cached_property
    def _by_shape(self) -> dict[LayerShape, "ModelSpec"]:
        """Return the model by the shape of its layers, as if all were of that shape."""
        own = {name: getattr(self, name) for name in type(self).model_fields}
        own["layer_shapes"] = None
        return {
            shape: type(self).model_construct(
                **own | {x: y for x, y in shape if y is not None}
            )
            for shape in {kind.shape for kind in self.kinds}
            if shape is not None
        }

    def mixer(self, part: str) -> Mixer | None:
        """Return what mixes tokens in a part; None where it has scores or is an MLP."""
        found: Mixer | None = getattr(self, part) if part in MIXERS else None
        return found

    @cached_property
    def even(self) -> bool:
        """Return whether all layers are of one kind, with as many parameters."""
        rows = (self.kinds, self.parameters, self.active_parameters)
        return all(len(set(row)) == 1 for row in rows)

    @cached_property
    def attention_width(self) -> int:
        """heads x head_dim, the width in the 4 b S^2 H term; H unless head_dim.

        With latent attention the mean of the widths of scores and of values.
        """
        if self.latent:
            return self.heads * (self.latent.scored + self.latent.value_dim) // 2
        if self.value_dim:
            return self.heads * (self.key_dim + self.value_dim) // 2
        return self.heads * self.head_dim if self.head_dim else self.hidden

    @property
    def key_dim(self) -> int:
        """Return the width of a head's keys, without latent attention."""
        return self.head_dim or self.hidden // self.heads

    @property
    def common_attention(self) -> bool:
        """Return whether attention has plain queries, keys and values of one width."""
        other = self.latent or self.indexer or self.value_dim or self.gated_attention
        return not other and self.kv_products == 2

    @property
    def gate_width(self) -> int:
        """Width of what attention's output is gated by; 0 where it is not."""
        values = self.value_dim or self.key_dim
        return self.heads * values if self.gated_attention else 0

    @property
    def mlp_width(self) -> int:
        """Width between the matrices of a dense MLP; 4 H unless `intermediate`."""
        return self.intermediate or 4 * self.hidden

    @property
    def kv_width(self) -> int:
        """Return the width of the keys, and of the values."""
        if self.latent:
            return self.attention_width
        return (self.kv_heads or self.heads) * self.attention_width // self.heads

    @cached_property
    def parameters(self) -> tuple[int, ...]:
        """Return the parameters of each layer, all experts counted."""
        if self.layer_parameters is not None:
            return self.layer_parameters
        if self.parameters_per_layer is not None:
            return (self.parameters_per_layer,) * self.layers
        return tuple(
            self.layer_table + x for x in self._parameters_by_shape(self.experts)
        )

    @cached_property
    def active_parameters(self) -> tuple[int, ...]:
        """Return the parameters of each layer that one token uses."""
        if self.active_layer_parameters is not None:
            return self.active_layer_parameters
        if self.layer_parameters is not None or self.parameters_per_layer is not None:
            return self.parameters
        return self._parameters_by_shape(self.active_experts)

    @cached_property
    def routed_parameters(self) -> tuple[int, ...]:
        """Return how many of `parameters` are of experts to which tokens are sent."""
        if not self.experts:
            return (0,) * self.layers
        matrices = 3 if self.gated else 2
        width = self.expert_intermediate or self.mlp_width
        routed = self.experts * matrices * (self.expert_hidden or self.hidden) * width
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

    def _parameters_by_shape(self, experts: int | None) -> tuple[int, ...]:
        h = self.hidden
        given = (self.kv_heads, self.head_dim, self.intermediate, self.experts)
        fields = type(self).model_fields
        own = (getattr(self, x) != fields[x].default for x in self._of_layers)
        if not any(given) and not self.gated and not any(own):
            return (12 * h * h,) * self.layers
        sizes = {
            kind: self.of(kind)._of_kind(kind, experts or 0) for kind in self.kinds
        }
        return tuple(sizes[kind] for kind in self.kinds)

    def _of_kind(self, kind: Kind, experts: int) -> int:
        return sum(self._matrices(x, experts) + self._beside(x, experts) for x in kind)

    def _matrices(self, part: str, experts: int) -> int:
        """Parameters of the products of a part, with so many of its routed experts."""
        h, matrices = self.hidden, 3 if self.gated else 2
        if part == FURTHER:
            return 2 * h * h
        if (mixer := self.mixer(part)) is not None:
            return mixer.matrices(h)
        if part == DENSE:
            return matrices * h * self.mlp_width
        if part == EXPERTS:
            expert = matrices * (self.expert_intermediate or self.mlp_width)
            routed = experts * (self.expert_hidden or h)
            beside = (self.experts or 0) + 2 * (self.expert_hidden or 0)
            return expert * (routed + self.shared_experts * h) + h * beside
        indexed = 0
        if self.indexer:
            low = self.latent.query_rank if self.latent else 0
            indexed = sum(x.n * x.k for x in self.indexer.products(h, low))
        if self.latent:
            return self.latent.matrices(h, self.heads) + indexed
        kept = self.kv_products * self.kv_width
        return h * (2 * self.attention_width + kept + self.gate_width) + indexed

    def repeated(self, part: str, modules: Sequence[str]) -> int:
        """Return the parameters of a part that modules by name multiply with again."""
        if MODULE_OF.get(part) in modules:
            return self._matrices(part, self.active_experts or 0)
        if part == EXPERTS and "shared_experts" in modules:
            width = self.expert_intermediate or self.mlp_width
            return (3 if self.gated else 2) * width * self.shared_experts * self.hidden
        if self.latent and part in ATTENDING and "mla_up_proj" in modules:
            return self.latent.raised(self.hidden, self.heads)
        return 0

    def _beside(self, part: str, experts: int) -> int:
        told = self.vectors or Vectors()
        more = told.expert * experts if part == EXPERTS else 0
        return self.beside(part, told) + more

    def beside(self, part: str, told: Vectors) -> int:
        """Return the parameters of a part in no matrix, without routed experts'.

        Where they are not `told`, they follow from the other fields.
        """
        if part == FURTHER:
            return 3 * self.hidden
        name = ATTENTION if part == WINDOW else part
        own: int | None = getattr(told, name)
        if own is None:
            own = (1 + self.post_norm) * self.hidden
            own += self._of_attention() if name == ATTENTION else 0
            mixer = self.mixer(part)
            own += mixer.sizes.vectors if mixer else 0
        return own

    def _of_attention(self) -> int:
        """Return attention's parameters beside products: norms, biases, an indexer."""
        indexed = self.indexer.vectors if self.indexer else 0
        if self.latent:
            return self.latent.query_rank + self.latent.key_rank + indexed
        width, kept = self.attention_width, self.kv_products * self.kv_width
        bias = {"none": 0, "qkv": width + kept}
        bias["all"] = bias["qkv"] + self.hidden
        norms = (1 + (self.kv_products > 0)) * self.key_dim if self.qk_norm else 0
        return norms + bias[self.attention_bias] + indexed
