"""Some layers of a `config.json` mix tokens without scores, each of some width.

Layers are told by `layer_types`, or in the words of a family: every so many layers
(Qwen3-Next, Jamba), places of attention (LFM2, Kimi Linear), a number for each layer
(MiniMax-Text-01).
"""

from typing import Any

from ...errors import InstanceError, cut
from .keys import (
    Fields,
    Reading,
    check_known,
    incorrect,
    listed,
    need,
    places,
    unsupported,
    whole,
)

_FULL = ("full_attention", "attention")
#: Families of Mamba-2 mixers and attention, each with an MLP or experts behind it.
MAMBA_2 = ("granitemoehybrid", "bamba")
_DELTA = ("qwen3_next", "qwen3_5_text", "qwen3_5_moe_text", "olmo_hybrid")
_LIGHTNING = ("minimax", "minimax_text_01", "minimax_m1")
_CONVOLUTIONS = ("lfm2", "lfm2_moe", "lfm3")
_CHANNELS = ("kimi_linear", "bailing_hybrid")
_EVERY = 4  # the interval of Qwen's classes where their files are silent
#: The families whose layers this module tells.
FAMILIES = (
    *(*_DELTA, *_LIGHTNING, *_CONVOLUTIONS, *MAMBA_2),
    *(*_CHANNELS, "falcon_h1", "jamba"),
)


def of_layers(config: Reading, family: str, layers: int) -> list[str]:
    """Return what mixes tokens in each layer of one of `FAMILIES`."""
    if family == "falcon_h1":
        return ["attention+mamba"] * layers
    if family == "jamba":
        every = _positive(config, "attn_layer_period", 8)
        first = whole(config, "attn_layer_offset")
        first = 4 if first is None else first
        return ["attention" if x % every == first else "mamba1" for x in range(layers)]
    types = listed(config, "layer_types", layers)
    if types is None:
        types = _types_of(config, family, layers)
    config.skip(("full_attention_interval", "full_attn_idxs", "attn_type_list"))
    config.skip(("layer_group_size",) if family == "bailing_hybrid" else ())
    config.skip(("conv_L_cache",) if family in _CONVOLUTIONS else ())
    word, part = "linear_attention", "linear"
    if family in _CONVOLUTIONS:
        word, part = "conv", "convolution"
    if family in MAMBA_2:  # its class has the common word since transformers 5
        types = ["mamba" if x == word else x for x in types]
        word = part = "mamba"
    parts = {**dict.fromkeys(_FULL, "attention"), word: part}
    if family == "lfm3":
        parts["sliding_attention"] = "window"
    check_known("layer_types", {*types} - {*parts}, f"attention, {word}")
    return [parts[x] for x in types]


def _types_of(config: Reading, family: str, layers: int) -> list[Any]:
    """Return the types of layers in the words of a family."""
    if family in MAMBA_2:
        told = listed(config, "layers_block_type", layers)
        attending = places(config, "attn_layer_indices")
        if told is None and attending is not None:
            told = [_FULL[0] if x in attending else "mamba" for x in range(layers)]
        return ["mamba"] * layers if told is None else told
    if family in _LIGHTNING:
        told = listed(config, "attn_type_list", layers)
        if told is None or {*told} - {0, 1}:
            raise InstanceError(
                f"attn_type_list: found {cut(repr(told))}, expected 0 (linear "
                f"attention) or 1 (full attention) for each of {layers} layers; add it"
            )
        return [_FULL[0] if x else "linear_attention" for x in told]
    if family in _CONVOLUTIONS:
        attending = places(config, "full_attn_idxs")
        if attending is None:
            attending = list(range(layers))
        return [_FULL[0] if x in attending else "conv" for x in range(layers)]
    if family == "kimi_linear":
        return _kimi(config, layers)
    key = "full_attention_interval"
    key = "layer_group_size" if family == "bailing_hybrid" else key
    every = _positive(config, key, _EVERY)
    return ["linear_attention" if (x + 1) % every else _FULL[0] for x in range(layers)]


def _positive(config: Reading, key: str, usual: int) -> int:
    found = whole(config, key)
    if found is not None and found < 1:
        raise incorrect(key, found, "every how many layers there is attention")
    return found or usual


def _kimi(config: Reading, layers: int) -> list[object]:
    """Return the types that lists of layers tell, which count from 1."""
    inner = config.get("linear_attn_config")
    reading = Reading(inner if isinstance(inner, dict) else {})
    linear = places(reading, "kda_layers")
    full = places(reading, "full_attn_layers")
    if linear is None or full is None or {*linear, *full} != {*range(1, layers + 1)}:
        raise InstanceError(
            "linear_attn_config: expected kda_layers and full_attn_layers, which "
            f"together list the layers 1 to {layers}; correct the configuration"
        )
    return ["linear_attention" if x + 1 in linear else _FULL[0] for x in range(layers)]


def fields(config: Reading, family: str, hidden: int, part: str) -> Fields:
    """Return the record of the mixers of a part."""
    read = {
        "mamba": _mamba,
        "mamba1": _selective,
        "linear": _linear,
        "convolution": _convolution,
    }[part]
    return read(config, family, hidden)


def _mamba(config: Reading, family: str, hidden: int) -> Fields:
    heads = need(config, "mamba_num_heads", "mamba_n_heads")
    inner = whole(config, "mamba_d_ssm") or (
        (whole(config, "mamba_expand") or 2) * hidden
    )
    width = None
    if config.get("mamba_d_head") != "auto":
        width = whole(config, "mamba_head_dim", "mamba_d_head")
    config.skip(("expand", "mamba_expand", "chunk_size", "mamba_chunk_size"))
    config.skip(("use_conv_bias", "mamba_conv_bias", "hybrid_override_pattern"))
    return {
        "heads": heads,
        "head_dim": width or inner // max(1, heads),
        "state": need(config, "ssm_state_size", "mamba_d_state"),
        "groups": need(config, "n_groups", "mamba_n_groups"),
        "convolution": whole(config, "conv_kernel", "mamba_d_conv") or 4,
    }


def _selective(config: Reading, family: str, hidden: int) -> Fields:
    config.skip(("mamba_conv_bias",))
    rank = config.get("mamba_dt_rank")
    return {
        "width": (whole(config, "mamba_expand") or 2) * hidden,
        "state": need(config, "mamba_d_state"),
        "rank": -(-hidden // 16) if rank == "auto" else need(config, "mamba_dt_rank"),
        "convolution": whole(config, "mamba_d_conv") or 4,
    }


def _linear(config: Reading, family: str, hidden: int) -> Fields:
    if family in _LIGHTNING:
        heads = need(config, "num_attention_heads")
        width = whole(config, "head_dim") or hidden // max(1, heads)
        return _heads(heads, width, decay="fixed")
    if family in _CHANNELS:
        inner = config.get("linear_attn_config")
        if isinstance(inner, dict):
            told = Reading(inner)
            width, heads = need(told, "head_dim"), need(told, "num_heads")
            taps = need(told, "short_conv_kernel_size")
        else:  # as transformers 5 saves it
            width = need(config, "linear_head_dim", "head_dim")
            heads = need(config, "linear_num_heads", "num_attention_heads")
            taps = need(config, "linear_conv_kernel_dim", "short_conv_kernel_size")
        rank = width if family == "kimi_linear" else 0
        return _heads(heads, width, decay="channel", rank=rank, convolution=taps)
    return {
        "key_heads": need(config, "linear_num_key_heads"),
        "value_heads": need(config, "linear_num_value_heads"),
        "key_dim": need(config, "linear_key_head_dim"),
        "value_dim": need(config, "linear_value_head_dim"),
        "decay": "head",
        "convolution": need(config, "linear_conv_kernel_dim"),
    }


def _heads(heads: int, width: int, **more: object) -> Fields:
    """Return the record of heads that are as wide in keys as in values."""
    sizes = {"key_heads": heads, "value_heads": heads}
    return {**sizes, "key_dim": width, "value_dim": width, **more}


def _convolution(config: Reading, family: str, hidden: int) -> Fields:
    for key in ("conv_dim", "conv_dim_out", "block_dim"):
        if config.get(key) not in (None, hidden):
            raise unsupported(
                key,
                "convolutions of another width than the layers; found "
                f"{cut(repr(config.get(key)))}, expected {hidden}",
            )
    return {"width": hidden, "convolution": need(config, "conv_L_cache")}


def indexer(config: Reading) -> Fields | None:
    """Return the record of what chooses the tokens that attention sees."""
    chosen = whole(config, "index_topk")
    if not chosen:
        return None
    kinds = config.get("indexer_types")
    if isinstance(kinds, list) and {*map(str, kinds)} != {"full"}:
        what = "layers that share an indexer; expected full for each"
        raise unsupported("indexer_types", what)
    return {
        "heads": need(config, "index_n_heads"),
        "head_dim": need(config, "index_head_dim"),
        "chosen": chosen,
    }
