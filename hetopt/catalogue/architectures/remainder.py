"""Keys of a `config.json` that the reader does not know: refused, told, or harmless.

A configuration of a family that hetopt does not know may have keys that change its
layers. What was not read falls into three groups, by its name and by its value.

    harmless  generation, tokeniser, initial values, dropout, rotary positions, scaling
              of activations, routing losses, quantisation, bookkeeping, other inputs
              than text; and any key that is off: null, false, 0, empty
    refused   keys whose name says that they change a layer, and any other whole number
              above 1, list or object
    told      the rest: words, fractions and switches that have no such name

`keys.yaml` has the names.
"""

import re
from functools import cache
from typing import Any

from ...errors import InstanceError, cut
from .keys import Fields, unsupported, words

#: Layers that predict further tokens, under names that hetopt does not read.
_FURTHER = re.compile("(^|_)(mtp|nextn|eagle|medusa)(_|$)")
#: Counts that leave a layer as it is where they are 1.
_EVERY = re.compile("interval|freq|period|every|step|stride|factor")
_MOST = 6  # keys that a message names
_LONGEST = 100  # letters of a name that is looked up; a longer one is not harmless


def refuse_family(family: str) -> None:
    """Raise `InstanceError` for a family whose layers hetopt has no words for."""
    layers = words()["unsupported_families"].get(family)
    if layers is not None:
        raise unsupported("model_type", f"{family!r}, which has {layers}")


def unused_keys(fields: Fields, family: str) -> set[str]:
    """Return the keys of what is switched off, and those that the family has unused."""
    off = tuple(
        f"{key.removeprefix('use_')}_"
        for key, value in fields.items()
        if key.startswith("use_") and value is False
    )
    found = {key for key in fields if key.startswith(off)}
    return found | {*words()["unused"].get(family, ())}


def refuse(unread: Fields, family: str, depth: int) -> None:
    """Raise `InstanceError` with the keys that were not read and can change a layer."""
    found = [key for key, x in unread.items() if _changes(key, _entry(x, depth))]
    if not found:
        return
    more = f" and {len(found) - _MOST} more" if len(found) > _MOST else ""
    shown = ", ".join(f"{cut(key)} {_show(unread[key])}" for key in found[:_MOST])
    raise InstanceError(
        f"hetopt does not support {shown}{more} of the family "
        f"{cut(family or 'that model_type should name')!r}, which can change its "
        "layers; give layer_parameters of an instance, or remove what changes no layer "
        "from a copy of the file"
    )


def unread_keys(unread: Fields, depth: int) -> tuple[str, ...]:
    """Return the keys that were not read, and are neither refused nor harmless."""
    entries = {key: _entry(value, depth) for key, value in unread.items()}
    return tuple(
        key
        for key, x in entries.items()
        if not (_off(key, x) or _harmless(key) or _changes(key, x))
    )


def _show(value: object) -> str:
    if isinstance(value, list):
        return f"[{len(value)} entries]"
    return "{...}" if isinstance(value, dict) else cut(repr(value))


def _entry(value: Any, depth: int) -> Any:
    """Return the value of a layer, where a list has the same one for each."""
    same = isinstance(value, list) and len(value) == depth and depth > 0
    return value[0] if same and all(x == value[0] for x in value) else value


@cache
def _harmless_names() -> re.Pattern[str]:
    names = " ".join(words()["harmless"].values()).split()
    return re.compile("|".join((*names, *words()["harmless_patterns"])))


@cache
def _shaping() -> re.Pattern[str]:
    told = "|".join(words()["shaping"].split())
    return re.compile(rf"(^|_)({told})(_|$)", re.IGNORECASE)


def _harmless(key: str) -> bool:
    return len(key) <= _LONGEST and _harmless_names().fullmatch(key) is not None


def _off(key: str, value: object) -> bool:
    """Tell whether a value says that what its key names is not there."""
    if isinstance(value, list):
        return all(x is None or x == 0 or x == [] for x in value)
    every = isinstance(value, int | float) and value == 1 and _EVERY.search(key)
    return not value or bool(every)


def _changes(key: str, value: object) -> bool:
    """Tell whether a key that was not read can change a layer."""
    if _off(key, value) or _harmless(key) or _FURTHER.search(key):
        return False
    if isinstance(value, list | dict):
        return True
    if isinstance(value, int) and not isinstance(value, bool) and value not in (1, -1):
        return True
    return _shaping().search(key) is not None and not key.endswith("_bias")
