"""The model of a Hugging Face `config.json`.

That of any family is read by the names that the families share; a key that is missing
is an error that names it.
"""

from typing import Any

from ..errors import InstanceError
from ..schema import ModelSpec

Fields = dict[str, Any]

# Families whose MLP has no gate although its activation is silu or swish.
_UNGATED = {"phi", "mpt", "bloom", "falcon", "gpt_neox", "gptj"}
_GATED_ACTIVATIONS = ("silu", "swish", "swiglu", "geglu", "gated")
_GATED_FAMILIES = {"gemma", "gemma2", "gemma3", "gemma3_text", "phi3"}
# What a family does where its config.json is silent.
_TIED_UNLESS_SAID = {"gpt2", "opt", "bert", "bloom", "gemma", "gemma2", "gemma3_text"}
# Keys that published configurations leave out, by the defaults of the family's class in
# transformers (Gemma3TextConfig).
_SILENT: dict[str, Fields] = {
    "gemma3_text": {
        "vocab_size": 262_208,
        "num_attention_heads": 8,
        "num_key_value_heads": 4,
        "head_dim": 256,
    }
}


def from_config(config: Fields, name: str) -> ModelSpec:
    """The model of a Hugging Face `config.json`; `InstanceError` names what is missing.

    Multimodal configurations are read by their `text_config`. Total parameters are
    those of the layers' matrices and two norms; biases, further norms, the last norm
    and learned positions are left out (below 0.01 %, GPT-2's 0.7 %).
    """
    inner = config.get("text_config")
    if isinstance(inner, dict):
        config = {**config, **inner}
    family = str(config.get("model_type", ""))
    config = _SILENT.get(family, {}) | config
    fields: Fields = {
        "name": name,
        "layers": _need(config, "num_hidden_layers", "n_layer", "num_layers"),
        "hidden": _need(config, "hidden_size", "n_embd", "d_model"),
        "heads": _need(config, "num_attention_heads", "n_head", "n_heads"),
        "vocabulary": _need(config, "vocab_size"),
        "gated": _is_gated(config, family),
        "tied_embeddings": _is_tied(config, family),
    }
    fields["kv_heads"] = _kv_heads(config, fields["heads"])
    fields["intermediate"] = _intermediate(config, fields["hidden"])
    width = _whole(config, "v_head_dim", "head_dim")
    if width is not None:
        fields["head_dim"] = width
    fields |= _experts(config, fields["layers"])
    spec = _spec(fields)
    return _latent(config, fields, spec) if config.get("kv_lora_rank") else spec


def _spec(fields: Fields) -> ModelSpec:
    from ..text.complaints import validated

    return validated(ModelSpec, fields, "config", file="")


def _latent(config: Fields, fields: Fields, grouped: ModelSpec) -> ModelSpec:
    """The same model with multi-head latent attention (DeepSeek-V2, section 2.1).

    The rest of a layer is as in `grouped`, which has ordinary attention as wide as the
    values; the difference is added layer by layer.
    """
    hidden, heads = fields["hidden"], fields["heads"]
    plain, rope = _need(config, "qk_nope_head_dim"), _need(config, "qk_rope_head_dim")
    value, rank = _need(config, "v_head_dim"), _need(config, "kv_lora_rank")
    low = _whole(config, "q_lora_rank")
    query = heads * (plain + rope)
    attention = hidden * (rank + rope) + rank * heads * (plain + value)
    attention += heads * value * hidden
    attention += low * (hidden + query) if low else hidden * query
    kv = grouped.kv_heads or heads
    ordinary = 2 * hidden * grouped.attention_width * (heads + kv) // heads
    more = attention - ordinary
    drop = ("kv_heads", "gated", "intermediate")
    return _spec(
        {key: fields[key] for key in fields if key not in drop and "expert" not in key}
        | {
            "dense_layers": 0,
            "layer_parameters": [p + more for p in grouped.parameters],
            "active_layer_parameters": [p + more for p in grouped.active_parameters],
            # 4 b S^2 W counts the scores and the values: W is the mean of both widths.
            "head_dim": (plain + rope + value) // 2,
        }
    )


def _whole(config: Fields, *keys: str) -> int | None:
    """The value of the first of `keys` that is given, None where none is."""
    for key in keys:
        value = config.get(key)
        if value is None:
            continue
        if isinstance(value, bool) or not isinstance(value, int):
            raise InstanceError(
                f"{key}: found {value!r}, expected a whole number; correct the "
                "configuration"
            )
        return value
    return None


def _need(config: Fields, *keys: str) -> int:
    value = _whole(config, *keys)
    if value is None:
        raise InstanceError(
            f"missing key, expected one of {', '.join(keys)}; "
            "is this the config.json of a language model?"
        )
    return value


def _is_gated(config: Fields, family: str) -> bool:
    if family in _UNGATED:
        return False
    if family in _GATED_FAMILIES:
        return True
    activation = config.get("hidden_act") or config.get("hidden_activation")
    activation = activation or config.get("activation_function") or ""
    return str(activation).lower().startswith(_GATED_ACTIVATIONS)


def _is_tied(config: Fields, family: str) -> bool:
    said = config.get("tie_word_embeddings")
    return bool(said) if said is not None else family in _TIED_UNLESS_SAID


def _kv_heads(config: Fields, heads: int) -> int:
    if config.get("multi_query") is True and "num_kv_heads" not in config:
        return 1
    return _whole(config, "num_key_value_heads", "num_kv_heads") or heads


def _intermediate(config: Fields, hidden: int) -> int:
    keys = ("intermediate_size", "n_inner", "ffn_dim", "ffn_hidden_size")
    return _whole(config, *keys) or 4 * hidden


def _experts(config: Fields, layers: int) -> Fields:
    experts = _whole(config, "num_experts", "n_routed_experts", "num_local_experts")
    if not experts or experts == 1:
        return {}
    for key in ("decoder_sparse_step", "moe_layer_freq", "interleave_moe_layer_step"):
        if config.get(key, 1) != 1:
            raise InstanceError(
                f"{key}: found {config[key]!r}, expected 1 (experts in every layer "
                "after the dense ones); give layer_parameters instead"
            )
    fields: Fields = {
        "experts": experts,
        "active_experts": _need(
            config, "num_experts_per_tok", "num_experts_per_token", "moe_topk"
        ),
        "dense_layers": min(_whole(config, "first_k_dense_replace") or 0, layers),
        "shared_experts": _whole(config, "n_shared_experts") or 0,
    }
    each = _whole(config, "moe_intermediate_size")
    if each is not None:
        fields["expert_intermediate"] = each
    shared = _whole(config, "shared_expert_intermediate_size")
    if shared:
        whole, rest = divmod(shared, each or _intermediate(config, 0))
        if rest:
            raise InstanceError(
                f"shared_expert_intermediate_size: found {shared}, expected a multiple "
                f"of the experts' {each}; give layer_parameters instead"
            )
        fields["shared_experts"] = whole
    return fields
