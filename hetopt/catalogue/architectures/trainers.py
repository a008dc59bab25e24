"""A Hugging Face `config.json` tells a trainer more than the model's shape.

Where a configuration is silent, its family's class in transformers says what holds
(transformers 4 and 5; the latter writes rope into `rope_parameters`).
"""

from ...errors import InstanceError
from ...schema.model import Architecture
from .families import table
from .keys import Fields, Reading

_ROPE: Fields = {"normalization": "rms", "positions": "rope", "activation": "silu"}
_ACTIVATIONS = {"silu": "silu", "swish": "silu", "gelu": "gelu", "relu": "relu"}
_ACTIVATIONS |= dict.fromkeys(("gelu_new", "gelu_pytorch_tanh"), "gelu_tanh")


def architecture(config: Reading) -> Architecture | None:
    """The record of a configuration; None where the family has more than it tells.

    Raises `InstanceError` for values that no model of the family has.
    """
    family = str(config.get("model_type", ""))
    if family not in table()["trained"]:
        return None
    fields = _gpt2(config) if family == "gpt2" else _decoder(config, family)
    if fields is None:
        return None
    from ...text.complaints import validated

    return validated(Architecture, {"family": family, **fields}, "config", file="")


def _gpt2(config: Reading) -> Fields | None:
    activation = _ACTIVATIONS.get(str(config.get("activation_function", "gelu_new")))
    if activation is None:
        return None
    return {
        "normalization": "layer",
        "norm_epsilon": config.get("layer_norm_epsilon", 1e-5),
        "activation": activation,
        "positions": "learned",
        "longest": config.get("n_positions", 1024),
        "bias": True,
        "qkv_bias": True,
        "dropout": config.get("resid_pdrop", 0.1),
        "attention_dropout": config.get("attn_pdrop", 0.1),
    }


def _decoder(config: Reading, family: str) -> Fields | None:
    silent = table()["trained"][family]
    rope = _object(config, "rope_parameters")
    scaling, known = _rope_scaling(_object(config, "rope_scaling") or rope)
    activation = _ACTIVATIONS.get(str(config.get("hidden_act", "silu")))
    share = config.get("partial_rotary_factor", rope.get("partial_rotary_factor", 1))
    biased = config.get("attention_bias", False) or config.get("mlp_bias", False)
    if not known or activation is None or share != 1 or biased:
        return None
    return {
        **_ROPE,
        "activation": activation,
        "norm_epsilon": config.get("rms_norm_eps", silent["rms_norm_eps"]),
        "longest": config.get("max_position_embeddings", silent["longest"]),
        "rope_base": config.get(
            "rope_theta", rope.get("rope_theta", silent["rope_theta"])
        ),
        "rope_scaling": scaling,
        "qkv_bias": family == "qwen2",
        "query_key_norm": family.startswith("qwen3"),
        "attention_dropout": config.get("attention_dropout", 0.0),
        "router": _router(config, family),
    }


def _object(config: Reading, key: str) -> Fields:
    value = config.get(key) or {}
    if not isinstance(value, dict):
        raise InstanceError(f"{key}: expected an object; correct it")
    return value


def _rope_scaling(told: Fields) -> tuple[Fields | None, bool]:
    """Return the scaling, and whether the record has a word for it."""
    kind = told.get("rope_type", told.get("type", "default"))
    if kind == "default":
        return None, True
    if kind not in ("linear", "llama3"):
        return None, False
    fields = {"kind": kind, "factor": told.get("factor")}
    if kind == "llama3":
        for name in ("low_freq_factor", "high_freq_factor"):
            fields[name] = told.get(name)
        fields["original_length"] = told.get("original_max_position_embeddings")
    return fields, True


def _router(config: Reading, family: str) -> Fields | None:
    if family not in ("mixtral", "qwen3_moe"):
        return None
    mixtral = family == "mixtral"
    return {
        "normalised": mixtral or config.get("norm_topk_prob", False),
        "auxiliary_loss": config.get("router_aux_loss_coef", 0.001),
    }
