"""Every command, its arguments and options, read off the application itself."""

from collections.abc import Iterator, Sequence
from enum import Enum
from pathlib import Path
from typing import Any

import typer

from ..text.documents import Document

Row = Document


def rows(app: typer.Typer) -> list[Row]:
    """A row a command, sorted by name.

    Each has `name`, `description` (the first line), `details` (the other lines, as
    Markdown), and `arguments` and `options`: objects with `name`, `words` (how it is
    written), `value` (what stands for its value, None for a flag), `description`,
    `default` and `required`; absent is None.
    """
    commands: dict[str, object] = typer.main.get_command(app).commands  # type: ignore[attr-defined]
    return [_row(name, commands[name]) for name in sorted(commands)]


def _row(name: str, command: Any) -> Row:
    first, _, rest = (command.help or "").partition("\n")
    shown = [one for one in command.params if not getattr(one, "hidden", False)]
    return {
        "name": name,
        "description": first,
        "details": rest.strip(),
        "arguments": list(_param_rows(shown, "argument")),
        "options": list(_param_rows(shown, "option")),
    }


def _param_rows(params: Sequence[Any], kind: str) -> Iterator[Row]:
    for param in params:
        if param.param_type_name != kind:
            continue
        value = param.metavar
        if kind == "argument":
            value = value or param.name.upper()
            words = [value if param.required or "[" in value else f"[{value}]"]
        else:
            words = [*param.opts, *param.secondary_opts]
            value = None if param.is_flag else value or param.name.upper()
        yield {
            "name": param.name,
            "words": words,
            "value": value,
            "description": param.help or "",
            "default": _default(param.default),
            "required": param.required,
        }


def _default(value: object) -> str | int | float | None:
    """A default as it would be typed; None where there is none to be told."""
    if isinstance(value, Enum):
        return str(value.value)
    if isinstance(value, bool) or not isinstance(value, int | float | str | Path):
        return None
    return str(value) if isinstance(value, Path) else value
