"""The capability matrix: which method carries which setting of an instance.

Methods ask it, and refuse by `require` alone. `settings` says how a setting is seen on
an instance, `methods` how each method carries it.
"""

from collections.abc import Iterator
from typing import Any, NamedTuple

from ..errors import Unsupported
from ..schema import Instance
from .methods import METHODS, Carried, Cell, row
from .settings import MOST_TABLED, SETTINGS

__all__ = [
    "MOST_TABLED",
    "Carried",
    "carries",
    "carries_exactly",
    "gaps",
    "reason",
    "require",
    "rows",
]


class Gap(NamedTuple):
    """A setting of an instance that a method does not carry exactly."""

    setting: str
    value: object
    cell: Cell


def gaps(method: str, instance: Instance) -> Iterator[Gap]:
    """Yield what a method does not carry exactly of an instance, refused or in part."""
    for name, cell in row(method).cells.items():
        if (value := SETTINGS[name].found(instance)) is not None:
            yield Gap(name, value, cell)


def _refused(method: str, instance: Instance) -> list[Gap]:
    return [x for x in gaps(method, instance) if x.cell.carried is Carried.NOT]


def carries(method: str, instance: Instance) -> bool:
    """Tell whether a method carries all settings of an instance, in part at least."""
    return not _refused(method, instance)


def carries_exactly(method: str, instance: Instance) -> bool:
    """Tell whether a method carries all settings of an instance exactly."""
    return next(gaps(method, instance), None) is None


def reason(method: str, instance: Instance) -> str | None:
    """Return why a method refuses an instance, and what to do; None if it does not."""
    return _message(method, _refused(method, instance))


def require(method: str, instance: Instance) -> None:
    """Raise `Unsupported` where a method does not carry a setting of an instance."""
    refused = _refused(method, instance)
    if (why := _message(method, refused)) is not None:
        raise Unsupported(why, field=SETTINGS[refused[0].setting].field)


def _message(method: str, refused: list[Gap]) -> str | None:
    if not refused:
        return None
    told = []
    for name, value, cell in refused:
        words, field, _ = SETTINGS[name]
        told.append(f"{words} ({field}: {value}): {cell.reason}")
    parts = filter(None, [*told, row(method).instead])
    return f"not supported by the {method}: {'; '.join(parts)}"


def rows() -> list[dict[str, Any]]:
    """Return the matrix: a row a method, with how it carries each setting, and why."""
    return [
        {
            "name": name,
            "description": method.does,
            "carries": {
                setting: method.cells.get(setting, Cell(Carried.EXACTLY, ""))._asdict()
                for setting in SETTINGS
            },
        }
        for name, method in METHODS.items()
    ]
