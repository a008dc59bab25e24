"""Kinds of random trials: each file here is one, and its name is the kind's name.

A kind draws an input and checks what hetopt says of it:

    draw(rng: random.Random) -> dict     anything that JSON can hold
    check(data: dict) -> str             the outcome, a word that is counted
    WEIGHT: int                          its share of a thousand trials, about

`check` raises `Contradiction` where what hetopt states and an independent computation
differ. Every other exception is a finding as well: hetopt answers, or refuses with an
error of its own, and a kind that expects a refusal returns "refused". `check` sees
nothing but the data, so that a file of `tests/found/` is a test for ever.
"""

import json
import pkgutil
from collections.abc import Callable
from importlib import import_module
from pathlib import Path
from random import Random
from types import ModuleType
from typing import Any

FOUND = Path(__file__).resolve().parent.parent / "found"


class Contradiction(AssertionError):
    """What hetopt states is not so."""


def kinds() -> tuple[str, ...]:
    """Every kind there is, by name; files whose names begin with `_` are none."""
    names = sorted(module.name for module in pkgutil.iter_modules(__path__))
    return tuple(name for name in names if not name.startswith("_"))


def kind(name: str) -> ModuleType:
    """The kind of that name."""
    return import_module(f"soaking.{name}")


def drawn(name: str, seed: int) -> dict[str, Any]:
    """Input number `seed` of a kind, as a file would give it back."""
    data = kind(name).draw(Random(f"{name}/{seed}"))
    return json.loads(json.dumps(data))


def changed(names: str, seed: int, change: Callable[[Any, Random], Any]) -> None:
    """A trial of each kind whose drawn instance is changed first."""
    for name in names.split():
        data = drawn(name, seed)
        change(data["instance"], Random(seed))
        kind(name).check(data)


def keep(name: str, seed: int, data: dict[str, Any], message: str) -> Path:
    """Write an input that found something; `tests/test_found.py` replays it."""
    FOUND.mkdir(exist_ok=True)
    path = FOUND / f"{name}-{seed}.json"
    tree = {"kind": name, "message": message, "data": data}
    path.write_text(json.dumps(tree, indent=1) + "\n")
    return path
