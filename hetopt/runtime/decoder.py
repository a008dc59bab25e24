"""The decoder that is trained: its shape, from an instance or from a `config.json`."""

from collections.abc import Mapping
from pathlib import Path
from typing import Literal

from pydantic import Field

from ..catalogue import architectures
from ..errors import InstanceError, Unsupported, naming
from ..problems.training_plan.shapes import of_layers
from ..schema import ModelSpec, Record
from ..schema.layers import EXPERTS
from ..schema.targets import TARGETS, Feature
from ..text.documents import Fields
from ..text.parsing import read_tree

CONFIG = "config.json"
Activation = Literal["gelu", "gelu_tanh", "relu", "silu"]

# Keys of a config.json that say how a decoder computes, and the words of theirs that
# ours are.
_ACTIVATIONS: Mapping[str, Activation] = {
    "gelu": "gelu",
    "gelu_new": "gelu_tanh",
    "gelu_pytorch_tanh": "gelu_tanh",
    "relu": "relu",
    "silu": "silu",
    "swish": "silu",
}
_FAMILIES = (
    *("llama", "mistral", "qwen2", "qwen3", "gpt2"),
    *("mixtral", "qwen2_moe", "qwen3_moe"),
)


class Stretch(Record):
    """Rotary positions stretched as Llama 3.1 does."""

    factor: float = Field(gt=0)
    low: float = Field(gt=0, description="Turns in the old length that change whole.")
    high: float = Field(gt=0, description="Turns in the old length that stay.")
    old_length: int = Field(gt=0)


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
    stretch: Stretch | None = None
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


def _of_config(config: dict[str, object], sequence_length: int) -> Decoder:
    family = str(config.get("model_type", ""))
    if family not in _FAMILIES:
        raise Unsupported(
            f"model_type: found {family!r}, expected one of {', '.join(_FAMILIES)}"
        )
    spec = architectures.from_config(config, family)
    gpt2 = family == "gpt2"
    most = config.get("n_positions" if gpt2 else "max_position_embeddings")
    _refuse(config, sequence_length)
    plain = of_spec(spec, sequence_length)
    return plain.model_copy(
        update={
            "gated": not gpt2,
            "activation": _activation(config, gpt2=gpt2),
            "norm": "layer" if gpt2 else "rms",
            "norm_eps": _number(
                config, "layer_norm_epsilon" if gpt2 else "rms_norm_eps", 1e-5
            ),
            "positions": "learned" if gpt2 else "rope",
            "max_positions": most if isinstance(most, int) else sequence_length,
            "rope_theta": _theta(config, 1e6 if family == "mixtral" else 1e4),
            "stretch": _stretch(config),
            "qkv_biased": family in ("gpt2", "qwen2")
            or (family == "qwen2_moe" and config.get("qkv_bias", True) is not False),
            "biased": gpt2,
            "qk_norm": family in ("qwen3", "qwen3_moe"),
            "experts": _told_experts(config, family, plain.experts),
        }
    )


def _told_experts(
    config: Mapping[str, object], family: str, plain: Experts | None
) -> Experts | None:
    """With the router of a configuration; families differ in what is silent."""
    if plain is None:
        return None
    normalised = config.get("norm_topk_prob", False) if family != "mixtral" else True
    if not isinstance(normalised, bool):
        raise InstanceError(f"norm_topk_prob: found {normalised!r}, expected a boolean")
    told = config.get("router_aux_loss_coef", 0.001)
    auxiliary = 0.0 if told == 0 else _number(config, "router_aux_loss_coef", 0.001)
    return plain.model_copy(
        update={
            "normalised": normalised,
            "auxiliary": auxiliary,
            "shared_gated": family == "qwen2_moe" and plain.shared > 0,
        }
    )


def _activation(config: Fields, *, gpt2: bool) -> Activation:
    key = "activation_function" if gpt2 else "hidden_act"
    word = config.get(key, "gelu_new" if gpt2 else "silu")
    if word not in _ACTIVATIONS:
        known = ", ".join(_ACTIVATIONS)
        raise Unsupported(f"{key}: found {word!r}, expected one of {known}")
    return _ACTIVATIONS[word]


def _number(config: Mapping[str, object], key: str, default: float) -> float:
    value = config.get(key, default)
    if isinstance(value, bool) or not isinstance(value, int | float) or value <= 0:
        raise InstanceError(f"{key}: found {value!r}, expected a number above 0")
    return float(value)


def _rope(config: Mapping[str, object]) -> Mapping[str, object]:
    """Return what is said of rotary positions: `rope_parameters`, or `rope_scaling`."""
    told = config.get("rope_parameters") or config.get("rope_scaling")
    return told if isinstance(told, dict) else {}


def _theta(config: Mapping[str, object], silent: float) -> float:
    told = _rope(config)
    return _number(told if "rope_theta" in told else config, "rope_theta", silent)


def _stretch(config: Mapping[str, object]) -> Stretch | None:
    told = _rope(config)
    kind = told.get("rope_type", told.get("type", "default"))
    if kind == "default":
        return None
    if kind != "llama3":
        raise Unsupported(
            f"rope_scaling: found {kind!r}, expected 'default' or 'llama3'"
        )
    old = told.get("original_max_position_embeddings")
    if not isinstance(old, int) or old < 1:
        raise InstanceError(
            f"rope_scaling.original_max_position_embeddings: found {old!r}, expected "
            "a whole number"
        )
    return Stretch(
        factor=_number(told, "factor", 8.0),
        low=_number(told, "low_freq_factor", 1.0),
        high=_number(told, "high_freq_factor", 4.0),
        old_length=old,
    )


def _refuse(config: Mapping[str, object], sequence_length: int) -> None:
    for key in ("attention_bias", "mlp_bias"):
        if config.get(key) is True:
            raise Unsupported(f"{key}: found true, expected false: it is not run")
    window = config.get("sliding_window")
    used = config.get("use_sliding_window", True)
    if used and isinstance(window, int) and window < sequence_length:
        raise Unsupported(
            f"sliding_window: found {window}, below the sequence length of "
            f"{sequence_length}: attention within a window is not run"
        )
