"""Keys of a `config.json`: the names that families share, and errors that name them."""

from typing import Any

from ...errors import InstanceError

Fields = dict[str, Any]


def whole(config: Fields, *keys: str) -> int | None:
    """The value of the first of `keys` that is given, None where none is."""
    for key in keys:
        value = config.get(key)
        if value is None:
            continue
        if isinstance(value, bool) or not isinstance(value, int):
            raise InstanceError(
                f"{key}: found {value!r}, expected a whole number; correct the "
                "configuration"
            )
        return value
    return None


def need(config: Fields, *keys: str) -> int:
    """The same; `InstanceError` where none is given."""
    value = whole(config, *keys)
    if value is None:
        raise InstanceError(
            f"missing key, expected one of {', '.join(keys)}; "
            "is this the config.json of a language model?"
        )
    return value


def listed(config: Fields, key: str, length: int) -> list[Any] | None:
    """A list with one entry a layer; None where it is not given."""
    value = config.get(key)
    if value is None:
        return None
    if not isinstance(value, list) or len(value) != length:
        found = f"{len(value)} entries" if isinstance(value, list) else repr(value)
        raise InstanceError(
            f"{key}: found {found}, expected a list of {length}, one a layer; correct "
            "the configuration"
        )
    return value
