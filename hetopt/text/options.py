"""Options of an entry of the registry, or of a format: from words to values.

Of an entry, its function's own signature says which options there are, of what type,
and what they are by default; there is no list beside it that could differ. A format
lists its options by their types; a word is read as what its type says.
"""

import json
from collections.abc import Callable, Iterable, Mapping
from inspect import signature
from pathlib import Path
from typing import Any, get_type_hints

from pydantic import BaseModel, ConfigDict, create_model

from ..errors import Unsupported
from .complaints import validated
from .documents import Document
from .parsing import read_tree


def pairs(words: Iterable[str]) -> dict[str, str]:
    """`NAME=VALUE` words; a dash in a name is an underscore."""
    texts = {}
    for word in words:
        name, equals, text = word.partition("=")
        if not name or not equals:
            raise Unsupported(f"--option {word!r}: expected NAME=VALUE")
        texts[name.replace("-", "_")] = text
    return texts


def values(words: Iterable[str] | None) -> Document:
    """Return options with values as JSON has them; what is no JSON is text."""
    return {name: _value(text) for name, text in pairs(words or ()).items()}


def _value(text: str) -> object:
    try:
        return json.loads(text)
    except ValueError:
        return text


def record(
    name: str, function: Callable[..., object], besides: Iterable[str]
) -> type[BaseModel]:
    """A record of a function's options; arguments `besides` them are no options."""
    hints = get_type_hints(function, include_extras=True)
    fields: Document = {
        option: (hints.get(option, Any), parameter.default)
        for option, parameter in signature(function).parameters.items()
        if option not in besides
    }
    config = ConfigDict(extra="forbid", strict=True)
    return create_model(name, __config__=config, **fields)


def listed(name: str, types: Mapping[str, object]) -> type[BaseModel]:
    """A record of options by their types, whose values are written as text."""
    fields: Document = {option: (kind, ...) for option, kind in types.items()}
    return create_model(name, __config__=ConfigDict(extra="forbid"), **fields)


def checked(kind: str, known: type[BaseModel], given: Mapping[str, object]) -> Document:
    """Return the options that were given, as an entry of that kind takes them.

    One that is a record may be given as a record, as its fields, or as the name of a
    file that holds these. Raises `InstanceError` where an option is wrong, and
    `Unsupported` where the entry has none.
    """
    if given and not known.model_fields:
        raise Unsupported(f"{kind} {known.__name__} has no options: leave them out")
    tree = {
        name: _fields(known.model_fields[name].annotation, value)
        if name in known.model_fields
        else value
        for name, value in given.items()
    }
    options = validated(known, tree, f"options of {known.__name__}", file="")
    return {name: getattr(options, name) for name in given}


def _fields(kind: Any, value: Any) -> object:
    """Return the fields of an option that is a record; other values as they are."""
    if isinstance(value, BaseModel):
        return value.model_dump(mode="json")
    is_record = isinstance(kind, type) and issubclass(kind, BaseModel)
    if is_record and isinstance(value, str | Path):
        value = validated(kind, read_tree(Path(value)), str(value))
        return value.model_dump(mode="json")
    return value
