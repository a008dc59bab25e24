"""Layers of a `config.json` that are wider or narrower than others.

A width may be told by a list with an entry for each layer; an entry of 0 says that a
layer lacks the part.
"""

from collections import Counter

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
    if family == "gemma4_text":
        shared = whole(config, "num_kv_shared_layers") or 0
        for x in range(layers - shared, layers):
            told[x]["kv_products"] = 0
        _gemma4(config, told, windows)


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
