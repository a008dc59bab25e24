"""Families whose `config.json` names common things in words of its own.

Each function returns the keys that the family's class makes of its own, in the words
that most families share; a value of None takes a key away.
"""

from collections.abc import Callable
from typing import Any

from ...errors import InstanceError, cut
from .keys import Fields, Reading, need, unsupported, whole


def _chatglm(config: Fields) -> Fields:
    """Return the keys of ChatGLM 2 and 3 and GLM-4: few keys where said, biases too."""
    reading = Reading(config)
    groups = None
    if config.get("multi_query_attention"):
        groups = whole(reading, "multi_query_group_num")
    told = {
        "vocab_size": whole(reading, "padded_vocab_size", "vocab_size"),
        "head_dim": whole(reading, "kv_channels"),
        "num_key_value_heads": groups,
        "qkv_bias": config.get("add_qkv_bias"),
        "use_bias": config.get("add_bias_linear"),
    }
    own = ("padded_vocab_size", "kv_channels", "multi_query_group_num")
    return {**_without(*own), "multi_query_attention": None, **told}


def _qwen(config: Fields) -> Fields:
    """Return the keys of the first Qwen, whose width is that of both halves."""
    reading = Reading(config)
    return {
        **_without("kv_channels", "no_bias"),
        "intermediate_size": need(reading, "intermediate_size") // 2,
        "head_dim": whole(reading, "kv_channels"),
        "use_bias": True if config.get("no_bias") is False else None,
    }


def _dbrx(config: Fields) -> Fields:
    """Return the keys of DBRX, all of whose layers have experts."""
    attention, mlp = _part(config, "attn_config"), _part(config, "ffn_config")
    width = need(mlp, "ffn_hidden_size")
    return {
        **_without("attn_config", "ffn_config"),
        "num_key_value_heads": whole(attention, "kv_n_heads"),
        "intermediate_size": width,
        "moe_intermediate_size": width,
        "num_experts": need(mlp, "moe_num_experts"),
        "num_experts_per_tok": need(mlp, "moe_top_k"),
    }


def _mpt(config: Fields) -> Fields:
    """Return the keys of MPT, whose attention is told by its slopes."""
    attention, reading = _part(config, "attn_config"), Reading(config)
    if attention.get("alibi") is not True or attention.get("qk_ln"):
        found = cut(repr(config.get("attn_config")))
        raise unsupported(
            "attn_config", f"MPT without alibi or with qk_ln; found {found}"
        )
    times = whole(reading, "expansion_ratio") or 4
    return {
        **_without("attn_config", "expansion_ratio", "embedding_fraction"),
        **_without("learned_pos_emb", "no_bias"),
        "num_key_value_heads": whole(attention, "kv_n_heads"),
        "intermediate_size": times * need(reading, "d_model"),
        "use_bias": True if config.get("no_bias") is False else None,
    }


def _minicpm3(config: Fields) -> Fields:
    """Return the width of values where the file is silent: that of plain heads."""
    reading = Reading(config)
    heads = need(reading, "num_attention_heads")
    wide = whole(reading, "v_head_dim") or need(reading, "hidden_size") // heads
    return {"v_head_dim": wide}


def _part(config: Fields, key: str) -> Reading:
    value: Any = config.get(key)
    if not isinstance(value, dict):
        raise InstanceError(
            f"{key}: found {cut(repr(value))}, expected an object; add it"
        )
    return Reading(value)


def _without(*keys: str) -> Fields:
    return dict.fromkeys(keys)


REWRITTEN: dict[str, Callable[[Fields], Fields]] = {
    "chatglm": _chatglm,
    "qwen": _qwen,
    "dbrx": _dbrx,
    "mpt": _mpt,
    "minicpm3": _minicpm3,
}
