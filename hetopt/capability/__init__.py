"""The capability matrix: which method carries which setting of an instance.

Methods ask it, and refuse by `require` alone. `settings` says how a setting is seen on
an instance, `methods` how each method carries it.
"""

from collections.abc import Iterator, Mapping
from typing import NamedTuple

from ..errors import Unsupported
from ..schema import Instance
from ..schema.targets import TARGETS, Feature
from ..text.documents import Document
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


def _refusals(method: str, instance: Instance) -> list[Gap]:
    return [x for x in gaps(method, instance) if x.cell.carried is Carried.NOT]


def carries(method: str, instance: Instance) -> bool:
    """Tell whether a method carries all settings of an instance, in part at least."""
    return not _refusals(method, instance)


def carries_exactly(method: str, instance: Instance) -> bool:
    """Tell whether a method carries all settings of an instance exactly."""
    return next(gaps(method, instance), None) is None


def reason(method: str, instance: Instance) -> str | None:
    """Return why a method refuses an instance, and what to do; None if it does not."""
    return _message(method, _refusals(method, instance))


def require(method: str, instance: Instance) -> None:
    """Raise `Unsupported` where a method does not carry a setting of an instance."""
    refused = _refusals(method, instance)
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


def rows(instance: Instance | None = None) -> list[Document]:
    """Return the matrix: a row a method, with how it carries each setting, and why.

    Of an `instance` it has the settings alone for which the instance asks. The last
    rows are programs that run plans, with the features of plans that they have.
    """
    asked = [
        name
        for name, setting in SETTINGS.items()
        if instance is None or setting.found(instance) is not None
    ]
    found = []
    for method, (does, cells, _) in METHODS.items():
        kind, _, name = method.rpartition(" ")
        told = {setting: cells.get(setting, _PLAIN) for setting in asked}
        found.append(_row(name if kind else "others", kind or method, does, told))
    return found if instance else [*found, *_programs()]


_PLAIN = Cell(Carried.EXACTLY, "")


def _row(name: str, kind: str, does: str, cells: Mapping[str, Cell]) -> Document:
    carries = {
        setting: {"carried": cell.carried.value, "reason": cell.reason}
        for setting, cell in cells.items()
    }
    return {"name": name, "kind": kind, "description": does, "carries": carries}


def _programs() -> Iterator[dict[str, object]]:
    for name, (supports, rules, _, program) in TARGETS.items():
        cells = {
            one.name.lower(): _PLAIN
            if one in supports
            else Cell(Carried.NOT, f"{program} does not run {one.value}")
            for one in Feature
        }
        further = f", and expects {'; '.join(sorted(rules))}" if rules else ""
        yield _row(name, "program", program + further, cells)
