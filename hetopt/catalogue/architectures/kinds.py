"""What each layer of a `config.json` is made of: windows, experts, Mamba mixers."""

from typing import Any

from ...errors import InstanceError
from .keys import Fields, listed, need, whole

Kinds = list[str]
_WINDOWS = ("sliding_attention", "chunked_attention")
_BLOCKS = {
    "M": "mamba",
    "*": "attention",
    "-": "dense",
    "E": "experts",
    "mamba": "mamba",
    "attention": "attention",
    "mlp": "dense",
    "moe": "experts",
    "linear_attention": "mamba",
    "full_attention": "attention",
}
#: Of each so many layers the last sees all tokens, by family.
_LAST_OF = {"gemma2": 2, "gemma3_text": 6, "gpt_oss": 2, "cohere2": 4, "llama4_text": 4}
_SEEN = {"llama4_text": 8192, "gemma2": 4096, "gemma3_text": 4096, "gpt_oss": 128}


def of_layers(config: Fields, family: str, layers: int, sparse: bool) -> Kinds:
    """The kind of each layer, in the words of `ModelSpec.layer_kinds`."""
    if family == "nemotron_h":
        return blocks(config, layers)
    mixers = _mixers(config, family, layers)
    with_experts = _experts(config, layers) if sparse else [False] * layers
    return [
        f"{mixer}+{'experts' if has else 'dense'}"
        for mixer, has in zip(mixers, with_experts, strict=True)
    ]


def window(config: Fields, family: str) -> int | None:
    """Tokens that a window sees; None where there are none."""
    key = "attention_chunk_size" if chunked(family) else "sliding_window"
    if key not in config:
        return _SEEN.get(family)
    if config.get("use_sliding_window") is False:
        return None
    return whole(config, key)


def chunked(family: str) -> bool:
    """Whether windows are chunks, which do not slide."""
    return family == "llama4_text"


def shortest(kinds: Kinds) -> Kinds:
    """The least number of kinds that repeat to all of them."""
    for period in range(1, len(kinds) // 2 + 1):
        if all(kind == kinds[i % period] for i, kind in enumerate(kinds)):
            return kinds[:period]
    return kinds


def _mixers(config: Fields, family: str, layers: int) -> Kinds:
    seen = window(config, family)
    if seen is None:
        _full(listed(config, "layer_types", layers))
        return ["attention"] * layers
    if (types := listed(config, "layer_types", layers)) is not None:
        _full([x for x in types if x not in _WINDOWS])
        return ["window" if x in _WINDOWS else "attention" for x in types]
    if (rotated := listed(config, "no_rope_layers", layers)) and chunked(family):
        return ["window" if x else "attention" for x in rotated]
    if family in ("qwen2", "qwen2_moe", "qwen3", "qwen3_moe"):
        first = whole(config, "max_window_layers") or 0
        return ["window" if x >= first else "attention" for x in range(layers)]
    every = whole(config, "sliding_window_pattern", "_sliding_window_pattern")
    every = every or whole(config, "no_rope_layer_interval") or _LAST_OF.get(family)
    if every is None:
        return ["window"] * layers
    return ["window" if (x + 1) % every else "attention" for x in range(layers)]


def _full(types: list[Any] | None) -> None:
    other = sorted({str(x) for x in types or ()} - {"full_attention"})
    if other:
        raise InstanceError(
            f"layer_types: found {', '.join(other)}, which is not modelled; expected "
            f"full_attention, {', '.join(_WINDOWS)}; give layer_parameters instead"
        )


def blocks(config: Fields, layers: int) -> Kinds:
    """Layers of one part each: `hybrid_override_pattern` or `layers_block_type`."""
    told = config.get("hybrid_override_pattern") or config.get("layers_block_type")
    if not isinstance(told, str | list) or len(told) != layers:
        raise InstanceError(
            f"hybrid_override_pattern: found {told!r}, expected a letter for each of "
            f"{layers} layers (M, *, -, E); add it"
        )
    if other := sorted({str(x) for x in told} - set(_BLOCKS)):
        raise InstanceError(
            f"hybrid_override_pattern: found {', '.join(other)}, expected M, *, - and "
            "E; correct the configuration"
        )
    return [_BLOCKS[x] for x in told]


def _experts(config: Fields, layers: int) -> list[bool]:
    """Which layers have experts in place of an MLP."""
    if isinstance(told := config.get("moe_layers"), list):
        return [x in told for x in range(layers)]
    if (dense := config.get("mlp_only_layers")) is None:
        dense = []
    first = whole(config, "first_k_dense_replace") or 0
    every = whole(config, "moe_layer_freq") or 1
    step = whole(config, "decoder_sparse_step", "interleave_moe_layer_step") or 1
    return [
        x >= first and x % every == 0 and (x + 1) % step == 0 and x not in dense
        for x in range(layers)
    ]


def mamba(config: Fields) -> Fields:
    """The mixer of layers of Mamba-2."""
    return {
        "heads": need(config, "mamba_num_heads"),
        "head_dim": need(config, "mamba_head_dim"),
        "state": need(config, "ssm_state_size", "mamba_d_state"),
        "groups": need(config, "n_groups", "mamba_n_groups"),
        "convolution": whole(config, "conv_kernel", "mamba_d_conv") or 4,
    }
