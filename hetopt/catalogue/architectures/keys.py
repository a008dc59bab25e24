"""Keys of a `config.json`: the names that families share, and errors that name them."""

from collections.abc import Iterable
from functools import cache
from pathlib import Path
from typing import Any

from ...errors import InstanceError, cut
from ...text.documents import Document
from ...text.parsing import read_tree

Fields = Document
_WIDEST = 1_000_000
#: What to do about an architecture that hetopt has no words for.
ISSUE = (
    'give layer_parameters of an instance, or open an issue, "A model that hetopt does '
    'not support", with the file'
)
DEPTH = ("num_hidden_layers", "n_layer", "num_layers", "n_layers")


@cache
def words() -> Fields:
    """Return what `keys.yaml` says."""
    return read_tree(Path(__file__).parent.with_name("keys.yaml"))


def keys_of(what: str) -> tuple[str, ...]:
    """Return the names under which families tell of something."""
    return (*words()["read"][what].split(),)


class Reading:
    """A configuration that remembers which of its keys were read."""

    def __init__(self, fields: Fields) -> None:
        """Start with no key read."""
        self._fields = fields
        self._read: set[str] = set()
        #: The model's class, where hetopt does not know its family.
        self.unknown = ""

    def get(self, key: str, default: object = None) -> Any:
        """Return the value of `key`, which counts as read from now on."""
        self._read.add(key)
        return self._fields.get(key, default)

    def __contains__(self, key: str) -> bool:
        """Tell whether `key` is given, without reading it."""
        return key in self._fields

    def peek(self, key: str) -> object:
        """Return the value of `key` without reading it."""
        return self._fields.get(key)

    def replace(self, key: str, value: object) -> None:
        """Let `key` have another value from now on."""
        self._fields = {**self._fields, key: value}

    def skip(self, keys: Iterable[str]) -> None:
        """Count `keys` as read, as their values change nothing in this model."""
        self._read.update(keys)

    @property
    def unread(self) -> Fields:
        """Return the keys that were not read, with their values."""
        return {key: x for key, x in self._fields.items() if key not in self._read}


def unsupported(key: str, what: str) -> InstanceError:
    """Return the error for what of a layer hetopt has no words for."""
    return InstanceError(
        f"{key}: hetopt does not support {what}; give layer_parameters of an instance "
        "instead"
    )


def incorrect(key: str, found: object, expected: str) -> InstanceError:
    """Return the error for a value that no model has."""
    shown = cut(repr(found))
    return InstanceError(
        f"{key}: found {shown}, expected {expected}; correct the configuration"
    )


def check_known(key: str, other: set[object], expected: str) -> None:
    """Raise `InstanceError` for other words of layers than those that are known."""
    if other:
        shown = cut(", ".join(sorted(map(str, other))))
        raise unsupported(key, f"layers of {shown}; expected {expected}")


def whole(config: Reading, *keys: str) -> int | None:
    """Return the value of the first of `keys` that is given, None where none is.

    A list of one entry a layer is read where all entries are equal. A second key with
    the same value counts as read, one with another value does not.
    """
    for key in keys:
        value = _of_all_layers(config, key, config.get(key))
        if value is None:
            continue
        if isinstance(value, bool) or not isinstance(value, int):
            raise incorrect(key, value, "a whole number")
        unread = config.unread
        config.skip(x for x in keys if unread.get(x) == value)
        return value
    return None


def _of_all_layers(config: Reading, key: str, value: object) -> object:
    """Return the entry of a list that has it for each layer, else the value itself."""
    if not isinstance(value, list):
        return value
    depth = next((x for x in map(config.get, DEPTH) if isinstance(x, int)), None)
    if value and len(value) == depth and all(x == value[0] for x in value):
        return value[0]
    shown = ", ".join(map(str, dict.fromkeys(map(str, value))))
    raise unsupported(
        key,
        f"values that differ by layer; found {shown[:60] or 'an empty list'}, expected "
        f"one whole number, or a list of {depth or 'as many as layers'} equal ones",
    )


def number(value: Any, key: str) -> float:
    """Return a number of a list or of a key; raise where it is none, or no width."""
    fits = isinstance(value, int | float) and not isinstance(value, bool)
    if not fits or not 0 <= value <= _WIDEST:
        raise incorrect(key, value, f"a number from 0 to {_WIDEST}")
    return float(value)


def need(config: Reading, *keys: str) -> int:
    """Return the same; raise `InstanceError` where none is given."""
    value = whole(config, *keys)
    if value is None:
        missing = f"missing key, expected one of {', '.join(keys)}"
        if config.unknown:
            raise InstanceError(
                f"{missing}: hetopt does not know the architecture "
                f"{cut(config.unknown)!r}; {ISSUE}"
            )
        raise InstanceError(f"{missing}; is this the config.json of a language model?")
    return value


def listed(config: Reading, key: str, length: int) -> list[Any] | None:
    """Return a list with one entry a layer; None where it is not given."""
    value = config.get(key)
    if value is None:
        return None
    if not isinstance(value, list) or len(value) != length:
        found = f"{len(value)} entries" if isinstance(value, list) else cut(repr(value))
        raise InstanceError(
            f"{key}: found {found}, expected a list of {length}, one a layer; correct "
            "the configuration"
        )
    if any(isinstance(x, list | dict) for x in value):
        raise InstanceError(
            f"{key}: found lists or objects, expected a word or a number for each "
            "layer; correct the configuration"
        )
    return value


def places(config: Reading, key: str) -> list[int] | None:
    """Return a list of numbers of layers; None where it is not given."""
    value = config.get(key)
    if value is None:
        return None
    if not isinstance(value, list) or not all(type(x) is int for x in value):
        raise incorrect(key, value, "a list of numbers of layers")
    return value
