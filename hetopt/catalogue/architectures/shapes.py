"""Layers of a `config.json` that are wider or narrower than others.

A width may be told by a list with an entry for each layer; an entry of 0 says that a
layer lacks the part.
"""

from collections import Counter

from ...errors import cut
from .keys import Fields, Reading, need, unsupported, whole

#: Lists that are read, by the field that they are of.
LISTED = {
    "heads": ("num_attention_heads",),
    "kv_heads": ("num_key_value_heads", "num_kv_heads"),
    "intermediate": ("intermediate_size",),
}
_WIDE = 512  # heads of full attention in Gemma 4, where its files are silent
Shapes = list[Fields]


def take(config: Reading, layers: int) -> Shapes:
    """Return the widths of each layer that lists tell.

    In the configuration the most frequent width then stands for the list.
    """
    found: Shapes = [{} for _ in range(layers)]
    for field, names in LISTED.items():
        for key in names:
            values = config.peek(key)
            if not isinstance(values, list) or len(values) != layers:
                continue
            if not all(type(x) is int and x >= 0 for x in values):
                continue
            common = Counter(x for x in values if x).most_common(1)
            if not common:
                continue
            config.replace(key, common[0][0])
            for shape, value in zip(found, values, strict=True):
                if value != common[0][0]:
                    shape[field] = value
    return found


def lacking(kinds: list[str], told: Shapes) -> list[str]:
    """Return the kinds without parts whose width is 0, which the shapes then lack."""
    made = []
    for kind, shape in zip(kinds, told, strict=True):
        parts = kind.split("+")
        for field, part in (("kv_heads", "attention"), ("intermediate", "dense")):
            if shape.get(field) == 0 and part in parts:
                parts.remove(part)
                shape.pop(field)
        if not parts:
            raise unsupported("layers", "layers that are neither attention nor an MLP")
        made.append("+".join(parts))
    return made


def of_family(config: Reading, family: str, told: Shapes, kinds: list[str]) -> None:
    """Add what a family does to widths by the number or the kind of a layer."""
    layers = len(kinds)
    windows = ["window" in kind.split("+") for kind in kinds]
    if family in ("hunyuan", "hunyuan_v1_moe") and config.get("use_cla") is True:
        every = whole(config, "cla_share_factor") or 2
        for x in range(layers):
            if x % every:
                told[x]["kv_products"] = 0
    if family == "gemma4_text":
        shared = whole(config, "num_kv_shared_layers") or 0
        for x in range(layers - shared, layers):
            told[x]["kv_products"] = 0
        _gemma4(config, told, windows)
        _of_single_layers(config, told)
    if family == "mimo_v2_flash":
        keys = whole(config, "swa_num_key_value_heads")
        keys = keys or 2 * need(config, "num_key_value_heads")
        for x in range(layers):
            if windows[x]:
                told[x]["kv_heads"] = keys


#: Widths that windows of MiMo-V2-Flash have of their own, and those of other layers.
_OF_WINDOWS = {
    "swa_head_dim": "head_dim",
    "swa_v_head_dim": "v_head_dim",
    "swa_num_attention_heads": "num_attention_heads",
}


def refuse_other_widths(config: Reading) -> None:
    """Raise `InstanceError` where windows have heads that other layers have not."""
    for key, usual in _OF_WINDOWS.items():
        if (found := whole(config, key)) not in (None, whole(config, usual)):
            raise unsupported(
                key,
                f"windows of other heads than full attention's; found {found}, "
                f"expected {usual}'s {whole(config, usual)}",
            )


_SINGLE = {"head_dim": "head_dim", "num_key_value_heads": "kv_heads"}


def _of_single_layers(config: Reading, told: Shapes) -> None:
    """Add the widths that transformers 5 saves by the number of a layer."""
    by_number = config.get("per_layer_config") or {}
    known = isinstance(by_number, dict) and all(
        isinstance(own, dict) and {*own} <= {*_SINGLE} and layer.isdecimal()
        and len(layer) < 6 and int(layer) < len(told)
        for layer, own in by_number.items()
    )  # fmt: skip
    if not known:
        what = f"{cut(repr(by_number))}; expected {', '.join(_SINGLE)} by numbers of "
        raise unsupported("per_layer_config", f"{what}layers")
    for layer, own in by_number.items():
        reading, shape = Reading(own), told[int(layer)]
        for key, field in _SINGLE.items():
            if (width := whole(reading, key)) is not None:
                shape[field] = width


def _gemma4(config: Reading, told: Shapes, windows: list[bool]) -> None:
    width = whole(config, "global_head_dim") or _WIDE
    keys = whole(config, "num_global_key_value_heads")
    same = config.get("attention_k_eq_v") is True
    double = 2 * need(config, "intermediate_size")
    if config.get("use_double_wide_mlp") is not True:
        double = 0
    for shape, window in zip(told, windows, strict=True):
        if shape.get("kv_products") == 0 and double:
            shape["intermediate"] = double
        if window:
            continue
        shape["head_dim"] = width
        if same:
            shape.setdefault("kv_products", 1)
            shape |= {"kv_heads": keys} if keys else {}
