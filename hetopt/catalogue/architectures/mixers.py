"""Some layers of a `config.json` mix tokens without scores, each of some width.

Layers are told by `layer_types`, or in the words of a family: every so many layers
(Qwen3-Next), or places of attention (LFM2).
"""

from typing import Any

from ...errors import cut
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
_CONVOLUTIONS = ("lfm2", "lfm2_moe")
_EVERY = 4  # the interval of Qwen's classes where their files are silent
#: The families whose layers this module tells.
FAMILIES = (*_DELTA, *_CONVOLUTIONS, *MAMBA_2)


def of_layers(config: Reading, family: str, layers: int) -> list[str]:
    """Return what mixes tokens in each layer of one of `FAMILIES`."""
    types = listed(config, "layer_types", layers)
    if types is None:
        types = _types_of(config, family, layers)
    config.skip(("full_attention_interval", "full_attn_idxs"))
    config.skip(("conv_L_cache",) if family in _CONVOLUTIONS else ())
    word, part = "linear_attention", "linear"
    if family in _CONVOLUTIONS:
        word, part = "conv", "convolution"
    if family in MAMBA_2:  # its class has the common word since transformers 5
        types = ["mamba" if x == word else x for x in types]
        word = part = "mamba"
    parts = {**dict.fromkeys(_FULL, "attention"), word: part}
    check_known("layer_types", {*types} - {*parts}, f"attention, {word}")
    return [parts[x] for x in types]


def _types_of(config: Reading, family: str, layers: int) -> list[Any]:
    if family in MAMBA_2:
        told = listed(config, "layers_block_type", layers)
        attending = places(config, "attn_layer_indices")
        if told is None and attending is not None:
            told = [_FULL[0] if x in attending else "mamba" for x in range(layers)]
        return ["mamba"] * layers if told is None else told
    if family in _CONVOLUTIONS:
        attending = places(config, "full_attn_idxs")
        if attending is None:
            attending = list(range(layers))
        return [_FULL[0] if x in attending else "conv" for x in range(layers)]
    every = whole(config, "full_attention_interval") or _EVERY
    if every < 1:
        expected = "every how many layers there is attention"
        raise incorrect("full_attention_interval", every, expected)
    return ["linear_attention" if (x + 1) % every else _FULL[0] for x in range(layers)]


def fields(config: Reading, hidden: int, part: str) -> Fields:
    """Return the record of the mixers of a part."""
    if part == "linear":
        return {
            "key_heads": need(config, "linear_num_key_heads"),
            "value_heads": need(config, "linear_num_value_heads"),
            "key_dim": need(config, "linear_key_head_dim"),
            "value_dim": need(config, "linear_value_head_dim"),
            "decay": "head",
            "convolution": need(config, "linear_conv_kernel_dim"),
        }
    return (_mamba if part == "mamba" else _convolution)(config, hidden)


def _mamba(config: Reading, hidden: int) -> Fields:
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


def _convolution(config: Reading, hidden: int) -> Fields:
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
