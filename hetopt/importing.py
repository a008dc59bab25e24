"""Foreign files read by an importer, and written as a file of ours."""

import json
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import yaml

from . import files, registry
from .complaints import validated
from .errors import InstanceError, UnknownName, Unsupported
from .schema import Instance

_SUFFIXES = (".yaml", ".yml", ".json")
_TRUTH = {"true": True, "yes": True, "false": False, "no": False}


def check(out: Path) -> None:
    """`Unsupported` where the suffix is not that of YAML or JSON."""
    if out.suffix.lower() not in _SUFFIXES:
        raise Unsupported(
            f"{out}: found suffix {out.suffix!r}, expected one of "
            f"{', '.join(_SUFFIXES)}"
        )


def document(
    format: str, paths: Sequence[Path], options: Iterable[str], instance: str | None
) -> dict[str, Any]:
    """What an importer reads; with `instance`, that instance with it put in.

    `options` are `name=value`. Raises `UnknownName` for a format or an option,
    `InstanceError` for files that cannot be used.
    """
    importer: Any = registry.entry("importers", format)
    read: dict[str, Any] = importer.read(paths, **_typed(importer.OPTIONS, options))
    if instance is None:
        return read
    base = files.load_instance(instance).model_dump(mode="json", exclude_unset=True)
    if "offers" in read:
        base.pop("cluster", None)
    whole = {**base, **read}
    whole["source"] = f"{read.get('source', format)}; model of {instance}"
    validated(Instance, whole, "the imported instance")
    return whole


def write(out: Path, content: dict[str, Any]) -> None:
    """Write a document as YAML or JSON, by the suffix."""
    if out.suffix.lower() == ".json":
        files.write_json(out, content)
        return
    plain = json.loads(json.dumps(content, allow_nan=False))
    text = yaml.safe_dump(plain, sort_keys=False, allow_unicode=True, width=100)
    files.write_text(out, text)


def _typed(known: dict[str, type], options: Iterable[str]) -> dict[str, Any]:
    typed: dict[str, Any] = {}
    for option in options:
        name, _, value = option.partition("=")
        if name not in known:
            raise UnknownName("option", name, list(known))
        try:
            typed[name] = _value(known[name], value)
        except (ValueError, KeyError):
            kind = known[name].__name__
            raise InstanceError(
                f"--option {option}: found {value!r}, expected "
                f"{name}=VALUE of type {kind}; correct it"
            ) from None
    return typed


def _value(kind: type, text: str) -> Any:
    if kind is bool:
        return _TRUTH[text.lower()]
    return kind(text)
