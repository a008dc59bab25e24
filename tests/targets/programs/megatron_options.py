"""Megatron-LM's own parser: kinds, defaults and choices of its options, as JSON."""

import argparse
import json
import sys
import typing
from typing import Any

import typing_extensions

typing.override = typing_extensions.override  # type: ignore[attr-defined]  # 3.12's

from megatron.training.arguments import add_megatron_arguments  # noqa: E402

_KINDS = {int: "int", float: "float", str: "str"}


def kind(option: argparse.Action) -> str:
    """Return the kind of an option, as tables have it."""
    if option.nargs == 0:
        return "flag"
    return _KINDS.get(option.type or str, "other")  # type: ignore[call-overload]


def plain(value: Any) -> Any:
    """Return a value, or the name of a member of an enumeration."""
    return getattr(value, "name", value)


parser = add_megatron_arguments(argparse.ArgumentParser(allow_abbrev=False))
found = {
    name.removeprefix("--"): [
        kind(option),
        False if option.nargs == 0 else plain(option.default),
        *([[*map(plain, option.choices)]] if option.choices else []),
    ]
    for option in parser._actions
    for name in option.option_strings
}
sys.stdout.write(json.dumps(found, default=str) + "\n")
