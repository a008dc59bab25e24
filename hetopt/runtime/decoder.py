"""The decoder that is trained: its shape, from an instance or from a `config.json`."""

from pathlib import Path
from typing import Literal

from pydantic import Field

from ..catalogue import architectures
from ..catalogue.architectures import trainers
from ..catalogue.architectures.keys import Reading
from ..errors import Unsupported, naming
from ..problems.training_plan.shapes import of_layers
from ..schema import ModelSpec, Record
from ..schema.layers import EXPERTS
from ..schema.model import RopeScaling
from ..schema.targets import TARGETS, Feature
from ..text.documents import Fields
from ..text.parsing import read_tree

CONFIG = "config.json"
Activation = Literal["gelu", "gelu_tanh", "relu", "silu"]


class Experts(Record):
    """The experts of some layers, of which each token uses `active`.

    A softmax over all of `count` chooses, and weighs those that are chosen: as it is,
    or `normalised` to a sum of one, which is the softmax over these alone. `shared` is
    the width of what every token uses beside them, 0 for nothing; `shared_gated` where
    a token weighs it by a sigmoid (Qwen2-MoE). `auxiliary` times the imbalance is added
    to the loss.
    """

    count: int = Field(ge=2)
    active: int = Field(ge=1)
    width: int = Field(ge=1)
    layers: tuple[int, ...]
    normalised: bool = True
    auxiliary: float = Field(default=0.0, ge=0)
    shared: int = Field(default=0, ge=0)
    shared_gated: bool = False


class Decoder(Record):
    """A decoder-only transformer, as far as its parameters and its passes need it.

    Positions are rotary (`rope`) or a learned table of `max_positions` rows. `biased`
    is of the output and MLP matrices, `qkv_biased` of query, key and value; `qk_norm`
    norms each head's query and key (Qwen3). Experts have no biases.
    """

    layers: int = Field(ge=1)
    hidden: int = Field(ge=1)
    heads: int = Field(ge=1)
    kv_heads: int = Field(ge=1)
    head_dim: int = Field(ge=1)
    intermediate: int = Field(ge=1)
    vocabulary: int = Field(ge=2)
    gated: bool
    activation: Activation
    norm: Literal["layer", "rms"]
    norm_eps: float = 1e-5
    positions: Literal["rope", "learned"]
    max_positions: int = Field(ge=1)
    rope_theta: float = 10_000.0
    stretch: RopeScaling | None = None
    qkv_biased: bool = False
    biased: bool = False
    qk_norm: bool = False
    tied: bool = False
    experts: Experts | None = None

    def has_experts(self, layer: int) -> bool:
        """Return whether experts are in place of a layer's MLP."""
        return self.experts is not None and layer in self.experts.layers


def of_spec(model: ModelSpec, sequence_length: int) -> Decoder:
    """The decoder that an instance's model stands for.

    A gated model is a Llama (RMS norm, SiLU, rotary positions, no biases); another a
    GPT-2, with the instance's norm and activation. Raises `Unsupported` for a model
    without a vocabulary, and for layers of kinds that are not run, by their names.
    """
    lacks = of_layers(model, sequence_length) - TARGETS["executor"].supports
    if kinds := [str(x.value) for x in Feature if x in lacks]:
        raise Unsupported(
            f"model {model.name!r} has {', '.join(kinds)}: not run; expected layers of "
            "full attention and an MLP or experts"
        )
    if model.vocabulary < 2:
        raise Unsupported(
            f"model {model.name!r} has a vocabulary of {model.vocabulary}: give "
            "model.vocabulary, or --model config.json"
        )
    rms = model.gated or model.norm.startswith("rms")
    return Decoder(
        layers=model.layers,
        hidden=model.hidden,
        heads=model.heads,
        kv_heads=model.kv_heads or model.heads,
        head_dim=model.attention_width // model.heads,
        intermediate=model.mlp_width,
        vocabulary=model.vocabulary,
        gated=model.gated,
        activation="silu" if model.gated else model.activation,
        norm="rms" if rms else "layer",
        positions="rope" if rms else "learned",
        max_positions=sequence_length,
        qkv_biased=not rms or model.attention_bias == "qkv",
        biased=not rms,
        qk_norm=rms and model.qk_norm,
        tied=model.tied_embeddings,
        experts=_experts(model),
    )


def _experts(model: ModelSpec) -> Experts | None:
    """Return the instance's router; as Mixtral's where no configuration has one."""
    sparse = tuple(x for x, kind in enumerate(model.kinds) if EXPERTS in kind)
    if not model.experts or not sparse:
        return None
    width = model.expert_intermediate or model.mlp_width
    router = model.architecture.router if model.architecture else None
    return Experts(
        count=model.experts,
        active=model.active_experts or 1,
        width=width,
        layers=sparse,
        normalised=router.normalised if router else True,
        auxiliary=router.auxiliary_loss if router else 0.0,
        shared=model.shared_experts * width,
    )


def of_config(path: Path, sequence_length: int) -> Decoder:
    """The decoder of a Hugging Face `config.json`, or of the folder that has one.

    Raises `InstanceError` for what is missing or wrong in it, `Unsupported` for a
    family or a setting that is not run, by its name.
    """
    file = path / CONFIG if path.is_dir() else path
    config = read_tree(file)
    with naming(file):
        return _of_config(config, sequence_length)


def _of_config(config: Fields, sequence_length: int) -> Decoder:
    family = str(config.get("model_type", ""))
    own = trainers.computed(Reading({**config}), family)
    spec = architectures.from_config({**config}, family)
    window = config.get("sliding_window")
    used = config.get("use_sliding_window", True)
    if used and isinstance(window, int) and window < sequence_length:
        raise Unsupported(
            f"sliding_window: found {window}, below the sequence length of "
            f"{sequence_length}: attention within a window is not run"
        )
    if own.rope_scaling is not None and own.rope_scaling.kind != "llama3":
        raise Unsupported("rope_scaling: found 'linear', expected 'llama3'")
    plain = of_spec(spec.model_copy(update={"architecture": own}), sequence_length)
    experts = plain.experts
    if experts is not None and family == "qwen2_moe":
        experts = experts.model_copy(update={"shared_gated": experts.shared > 0})
    return plain.model_copy(
        update={
            "activation": own.activation,
            "norm": own.normalization,
            "norm_eps": own.norm_epsilon,
            "positions": own.positions,
            "max_positions": own.longest,
            "rope_theta": own.rope_base or plain.rope_theta,
            "stretch": own.rope_scaling,
            "qkv_biased": own.qkv_bias,
            "biased": own.bias,
            "qk_norm": own.query_key_norm,
            "experts": experts,
        }
    )
