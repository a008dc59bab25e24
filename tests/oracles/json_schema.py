"""Checks a value against a JSON Schema, as far as our schemas go.

A few dozen lines in place of a library: an unknown word of a schema is an error, so
that nothing of it passes unread.
"""

import re
from collections.abc import Iterator
from functools import partial
from typing import Any

KINDS: dict[str, Any] = {
    **{"object": dict, "array": list, "string": str, "boolean": bool},
    **{"null": type(None), "integer": int, "number": (int, float)},
}
TELLING = {
    *("$schema", "$defs", "title", "description", "default", "examples"),
    "deprecated",
}
#: Words about the size of a value: the kind that they are about, and what must hold.
SIZES: dict[str, Any] = {
    "minimum": ((int, float), lambda value, wanted: value >= wanted),
    "maximum": ((int, float), lambda value, wanted: value <= wanted),
    "exclusiveMinimum": ((int, float), lambda value, wanted: value > wanted),
    "exclusiveMaximum": ((int, float), lambda value, wanted: value < wanted),
    "minLength": (str, lambda value, wanted: len(value) >= wanted),
    "maxLength": (str, lambda value, wanted: len(value) <= wanted),
    "minItems": (list, lambda value, wanted: len(value) >= wanted),
    "maxItems": (list, lambda value, wanted: len(value) <= wanted),
    "pattern": (str, lambda value, wanted: re.search(wanted, value)),
    "enum": (object, lambda value, wanted: value in wanted),
    "const": (object, lambda value, wanted: value == wanted),
}


def faults(value: Any, schema: dict[str, Any], root: dict[str, Any]) -> list[str]:
    """What of `value` breaks `schema`; `root` holds the definitions."""
    words = ((word, wanted) for word, wanted in schema.items() if word not in TELLING)
    return [x for word in words for x in _broken(value, *word, schema, root)]


def _broken(
    value: Any, word: str, wanted: Any, schema: dict[str, Any], root: dict[str, Any]
) -> Iterator[str]:
    inner = partial(faults, root=root)
    fields = value if isinstance(value, dict) else {}
    items = value if isinstance(value, list) else []
    match word:
        case "$ref":
            yield from inner(value, root["$defs"][wanted.rpartition("/")[2]])
        case "type":
            truth = isinstance(value, bool) and wanted in ("integer", "number")
            if truth or not isinstance(value, KINDS[wanted]):
                yield f"{value!r} is no {wanted}"
        case "anyOf":
            told = [inner(value, one) for one in wanted]
            if [] not in told:
                yield f"no branch: {min(told, key=len)}"
        case "properties":
            for name in wanted.keys() & fields.keys():
                yield from (f"{name}: {x}" for x in inner(fields[name], wanted[name]))
        case "required":
            yield from (f"no {x}" for x in wanted if value is fields and x not in value)
        case "additionalProperties":
            for name in sorted(fields.keys() - schema.get("properties", {}).keys()):
                if wanted is False:
                    yield f"unknown {name}"
                elif wanted is not True:
                    yield from inner(fields[name], wanted)
        case "propertyNames":
            yield from (x for name in fields for x in inner(name, wanted))
        case "prefixItems":
            for item, one in zip(items, wanted, strict=False):
                yield from inner(item, one)
        case "items":
            for item in items[len(schema.get("prefixItems", ())) :]:
                yield from inner(item, wanted)
        case _ if word in SIZES:
            kind, fits = SIZES[word]
            if isinstance(value, kind) and not fits(value, wanted):
                yield f"{value!r} breaks {word} {wanted!r}"
        case _:
            raise NotImplementedError(word)
