"""Checks a value against a JSON Schema, as far as our schemas go.

A few dozen lines in place of a library: an unknown word of a schema is an error, so
that nothing of it passes unread.
"""

import re
from typing import Any

KINDS: dict[str, Any] = {
    "object": dict,
    "array": list,
    "string": str,
    "boolean": bool,
    "null": type(None),
}
TELLING = {
    *("$schema", "$defs", "title", "description", "default", "examples"),
    "deprecated",
}


def faults(value: Any, schema: dict[str, Any], root: dict[str, Any]) -> list[str]:
    """What of `value` breaks `schema`; `root` holds the definitions."""
    found: list[str] = []
    for word, wanted in schema.items():
        if word in TELLING:
            continue
        check = globals().get("_" + word.replace("$", ""))
        if check is None:
            raise NotImplementedError(word)
        found += check(value, wanted, schema, root)
    return found


def _ref(value: Any, wanted: str, _: Any, root: dict[str, Any]) -> list[str]:
    return faults(value, root["$defs"][wanted.rpartition("/")[2]], root)


def _type(value: Any, wanted: str, *_: Any) -> list[str]:
    number = isinstance(value, int | float) and not isinstance(value, bool)
    if wanted in ("number", "integer"):
        fits = number and (wanted == "number" or isinstance(value, int))
    else:
        fits = isinstance(value, KINDS[wanted])
    return [] if fits else [f"{value!r} is no {wanted}"]


def _anyOf(value: Any, wanted: list[Any], _: Any, root: dict[str, Any]) -> list[str]:
    told = [faults(value, one, root) for one in wanted]
    return [] if [] in told else [f"no branch: {min(told, key=len)}"]


def _enum(value: Any, wanted: list[Any], *_: Any) -> list[str]:
    return [] if value in wanted else [f"{value!r} is none of {wanted}"]


def _const(value: Any, wanted: Any, *_: Any) -> list[str]:
    return [] if value == wanted else [f"{value!r} is not {wanted!r}"]


def _pattern(value: Any, wanted: str, *_: Any) -> list[str]:
    fits = not isinstance(value, str) or re.search(wanted, value)
    return [] if fits else [f"{value!r} does not match {wanted}"]


def _properties(
    value: Any, wanted: dict[str, Any], _: Any, root: dict[str, Any]
) -> list[str]:
    if not isinstance(value, dict):
        return []
    return [
        f"{name}: {fault}"
        for name, one in wanted.items()
        if name in value
        for fault in faults(value[name], one, root)
    ]


def _required(value: Any, wanted: list[str], *_: Any) -> list[str]:
    return [f"no {n}" for n in wanted if isinstance(value, dict) and n not in value]


def _additionalProperties(
    value: Any, wanted: Any, schema: dict[str, Any], root: dict[str, Any]
) -> list[str]:
    if not isinstance(value, dict) or wanted is True:
        return []
    others = set(value) - set(schema.get("properties", {}))
    if wanted is False:
        return [f"unknown {name}" for name in sorted(others)]
    return [f for name in others for f in faults(value[name], wanted, root)]


def _propertyNames(value: Any, wanted: Any, _: Any, root: dict[str, Any]) -> list[str]:
    if not isinstance(value, dict):
        return []
    return [f for name in value for f in faults(name, wanted, root)]


def _prefixItems(
    value: Any, wanted: list[Any], _: Any, root: dict[str, Any]
) -> list[str]:
    if not isinstance(value, list):
        return []
    pairs = zip(value, wanted, strict=False)
    return [f for item, one in pairs for f in faults(item, one, root)]


def _items(
    value: Any, wanted: Any, schema: dict[str, Any], root: dict[str, Any]
) -> list[str]:
    if not isinstance(value, list):
        return []
    rest = value[len(schema.get("prefixItems", ())) :]
    return [f for item in rest for f in faults(item, wanted, root)]


def _bound(fits: Any) -> Any:
    def check(value: Any, wanted: float, *_: Any) -> list[str]:
        if not isinstance(value, int | float) or fits(value, wanted):
            return []
        return [f"{value} is out of {wanted}"]

    return check


def _length(kind: type, fits: Any) -> Any:
    def check(value: Any, wanted: int, *_: Any) -> list[str]:
        if not isinstance(value, kind) or fits(len(value), wanted):
            return []
        return [f"{len(value)} is no length for {wanted}"]

    return check


_minimum = _bound(lambda value, wanted: value >= wanted)
_maximum = _bound(lambda value, wanted: value <= wanted)
_exclusiveMinimum = _bound(lambda value, wanted: value > wanted)
_exclusiveMaximum = _bound(lambda value, wanted: value < wanted)
_minLength = _length(str, lambda length, wanted: length >= wanted)
_maxLength = _length(str, lambda length, wanted: length <= wanted)
_minItems = _length(list, lambda length, wanted: length >= wanted)
_maxItems = _length(list, lambda length, wanted: length <= wanted)
