"""A Hugging Face `config.json` tells a trainer more than the model's shape.

Where a configuration is silent, its family's class in transformers says what holds
(transformers 4 and 5; the latter writes rope into `rope_parameters`).
"""

from ...errors import InstanceError, Unsupported
from ...schema.model import Architecture
from .families import table
from .keys import Fields, Reading

_ROPE: Fields = {"normalization": "rms", "positions": "rope", "activation": "silu"}
_GATED = ("qwen2_moe",)  # experts that are shared, of which the record has no word
_ACTIVATIONS = {"silu": "silu", "swish": "silu", "gelu": "gelu", "relu": "relu"}
_ACTIVATIONS |= dict.fromkeys(("gelu_new", "gelu_pytorch_tanh"), "gelu_tanh")


def architecture(config: Reading) -> Architecture | None:
    """The record of a configuration; None where the family has more than it tells.

    Raises `InstanceError` for values that no model of the family has.
    """
    family = str(config.get("model_type", ""))
    if family not in table()["trained"] or family in _GATED:
        return None
    try:
        return computed(config, family)
    except Unsupported:
        config.skip(("rope_scaling", "hidden_act", "attention_bias", "mlp_bias"))
        return None


def computed(config: Reading, family: str) -> Architecture:
    """The record of how a model of these families computes, but for gates of experts.

    Raises `Unsupported`, which names the key, for what the record has no word for.
    """
    if family not in (told := table()["trained"]):
        known = ", ".join(told)
        raise Unsupported(f"model_type: found {family!r}, expected one of {known}")
    fields = _gpt2(config) if family == "gpt2" else _decoder(config, family)
    from ...text.complaints import validated

    return validated(Architecture, {"family": family, **fields}, "config", file="")


def _activation(config: Reading, key: str, silent: str) -> str:
    word = str(config.get(key, silent))
    if word not in _ACTIVATIONS:
        known = ", ".join(_ACTIVATIONS)
        raise Unsupported(f"{key}: found {word!r}, expected one of {known}")
    return _ACTIVATIONS[word]


def _gpt2(config: Reading) -> Fields:
    return {
        "normalization": "layer",
        "norm_epsilon": config.get("layer_norm_epsilon", 1e-5),
        "activation": _activation(config, "activation_function", "gelu_new"),
        "positions": "learned",
        "longest": config.get("n_positions", 1024),
        "bias": True,
        "qkv_bias": True,
        "dropout": config.get("resid_pdrop", 0.1),
        "attention_dropout": config.get("attn_pdrop", 0.1),
    }


def _decoder(config: Reading, family: str) -> Fields:
    silent = table()["trained"][family]
    rope = _object(config, "rope_parameters")
    share = config.get("partial_rotary_factor", rope.get("partial_rotary_factor", 1))
    if share != 1:
        raise Unsupported(f"partial_rotary_factor: found {share!r}, expected 1")
    for key in ("attention_bias", "mlp_bias"):
        if config.get(key, False):
            raise Unsupported(f"{key}: found true, expected false")
    return {
        **_ROPE,
        "activation": _activation(config, "hidden_act", "silu"),
        "norm_epsilon": config.get("rms_norm_eps", silent["rms_norm_eps"]),
        "longest": config.get("max_position_embeddings", silent["longest"]),
        "rope_base": config.get(
            "rope_theta", rope.get("rope_theta", silent["rope_theta"])
        ),
        "rope_scaling": _rope_scaling(_object(config, "rope_scaling") or rope),
        "qkv_bias": family == "qwen2"
        or (family in _GATED and config.get("qkv_bias", True) is not False),
        "query_key_norm": family.startswith("qwen3"),
        "attention_dropout": config.get("attention_dropout", 0.0),
        "router": _router(config, family),
    }


def _object(config: Reading, key: str) -> Fields:
    value = config.get(key) or {}
    if not isinstance(value, dict):
        raise InstanceError(f"{key}: expected an object; correct it")
    return value


def _rope_scaling(told: Fields) -> Fields | None:
    kind = told.get("rope_type", told.get("type", "default"))
    if kind == "default":
        return None
    if kind not in ("linear", "llama3"):
        raise Unsupported(f"rope_scaling: found {kind!r}, expected linear or llama3")
    fields = {"kind": kind, "factor": told.get("factor")}
    if kind == "llama3":
        for name in ("low_freq_factor", "high_freq_factor"):
            fields[name] = told.get(name)
        fields["original_length"] = told.get("original_max_position_embeddings")
    return fields


def _router(config: Reading, family: str) -> Fields | None:
    if family not in ("mixtral", "qwen2_moe", "qwen3_moe"):
        return None
    is_normalised = family == "mixtral" or config.get("norm_topk_prob", False)
    if not isinstance(is_normalised, bool):
        raise InstanceError(
            f"norm_topk_prob: found {is_normalised!r}, expected a boolean; correct it"
        )
    auxiliary = config.get("router_aux_loss_coef", 0.001)
    return {"normalised": is_normalised, "auxiliary_loss": auxiliary}
