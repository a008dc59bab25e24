"""Each layer of a `config.json` has its kind: windows, experts, Mamba mixers."""

from typing import Any, TypeVar

from ...errors import InstanceError, cut
from . import mixers
from .families import table
from .keys import Reading, check_known, keys_of, listed, places, whole, words

Kinds = list[str]
_T = TypeVar("_T")
_WINDOWS = ("sliding_attention", "chunked_attention")
_FULL = ("full_attention", "attention", "indexed_attention")


def of_layers(config: Reading, family: str, layers: int, *, sparse: bool) -> Kinds:
    """Return the kind of each layer, in the words of `ModelSpec.layer_kinds`."""
    if family == "nemotron_h":
        return blocks(config, layers)
    if family in mixers.FAMILIES:
        mixing = mixers.of_layers(config, family, layers)
    else:
        mixing = _mixers(config, family, layers)
    with_experts = _experts(config, family, layers) if sparse else [False] * layers
    config.skip((*keys_of("windows"), *keys_of("every")))
    config.skip(keys_of("expert_places") if sparse else ())
    sparsely = "dense+experts" if family == "gemma4_text" else "experts"
    return [
        f"{mixer}+{sparsely if has else 'dense'}"
        for mixer, has in zip(mixing, with_experts, strict=True)
    ]


def window(config: Reading, family: str) -> int | None:
    """Return the tokens that a window sees; None where there are no windows."""
    keys: tuple[str, ...] = ("sliding_window", "sliding_window_size")
    if has_chunks(family):
        keys = ("attention_chunk_size",)
    if not any(key in config for key in keys):
        return _windows(family).get("tokens")
    if config.get("use_sliding_window") is False:
        return None
    found = whole(config, *keys)
    return found if found and found > 0 else None  # -1: none


def _windows(family: str) -> dict[str, int]:
    found: dict[str, int] = table()["windows"].get(family, {})
    return found


def has_chunks(family: str) -> bool:
    """Return whether windows are chunks, which do not slide."""
    return family == "llama4_text"


def shortest(kinds: list[_T]) -> list[_T]:
    """Return the least number of kinds that repeat to all of them."""
    for period in range(1, len(kinds) // 2 + 1):
        if all(kind == kinds[i % period] for i, kind in enumerate(kinds)):
            return kinds[:period]
    return kinds


def _mixers(config: Reading, family: str, layers: int) -> Kinds:
    types = listed(config, "layer_types", layers)
    seen = window(config, family)
    if types is not None:
        return _from_types(types, seen)
    if (linear := listed(config, "attn_type_list", layers)) is not None:
        check_known(
            "attn_type_list", {x for x in linear if x != 1}, "1 (full attention)"
        )
    if seen is None:
        return ["attention"] * layers
    if (rotated := listed(config, "no_rope_layers", layers)) and has_chunks(family):
        return ["window" if x else "attention" for x in rotated]
    if family in ("qwen2", "qwen2_moe", "qwen3", "qwen3_moe"):
        first = whole(config, "max_window_layers") or 0
        return ["window" if x >= first else "attention" for x in range(layers)]
    every = whole(config, *keys_of("every"))
    every = every or whole(config, "no_rope_layer_interval")
    every = every or _windows(family).get("last_of")
    if every is None:
        return ["window"] * layers
    return ["window" if (x + 1) % every else "attention" for x in range(layers)]


def _from_types(types: list[Any], seen: int | None) -> Kinds:
    check_known(
        "layer_types", {*types} - {*_FULL, *_WINDOWS}, ", ".join(_FULL + _WINDOWS)
    )
    if seen is None and (windows := sorted({*types} & {*_WINDOWS})):
        key = "attention_chunk_size" if _WINDOWS[1] in windows else _WINDOWS[0]
        raise InstanceError(
            f"layer_types: found {', '.join(windows)} without the tokens that a window "
            f"sees; add {key.replace('_attention', '_window')}"
        )
    return ["window" if x in _WINDOWS else "attention" for x in types]


def blocks(config: Reading, layers: int) -> Kinds:
    """Layers of one part each: `hybrid_override_pattern` or `layers_block_type`."""
    told = config.get("hybrid_override_pattern") or config.get("layers_block_type")
    are_words = isinstance(told, str | list) and all(isinstance(x, str) for x in told)
    if not are_words or len(told) != layers:
        raise InstanceError(
            f"hybrid_override_pattern: found {cut(repr(told))}, expected a letter for "
            f"each of {layers} layers (M, *, -, E); add it"
        )
    parts: dict[str, str] = words()["blocks"]
    check_known("hybrid_override_pattern", {*told} - {*parts}, "M, *, - and E")
    return [parts[x] for x in told]


def _experts(config: Reading, family: str, layers: int) -> list[bool]:
    if (types := listed(config, "mlp_layer_types", layers)) is not None:
        check_known("mlp_layer_types", {*types} - {"dense", "sparse"}, "dense, sparse")
        return [x == "sparse" for x in types]
    if (told := places(config, "moe_layers")) is not None:
        return [x in told for x in range(layers)]
    if isinstance(config.get("moe_layer_freq"), list):
        return [bool(x) for x in listed(config, "moe_layer_freq", layers) or ()]
    dense = places(config, "mlp_only_layers") or ()
    first = whole(config, *keys_of("first_dense")) or 0
    every = whole(config, "moe_layer_freq") or 1
    step = whole(config, "decoder_sparse_step", "interleave_moe_layer_step") or 1
    step *= whole(config, "moe_layer_interval") or 1
    first = max(first, whole(config, "moe_layer_start_index") or 0)
    last = whole(config, "moe_layer_end_index")
    last = layers if last in (None, -1) else last
    return [
        first <= x <= last and x % every == 0 and (x + 1) % step == 0 and x not in dense
        for x in range(layers)
    ]
