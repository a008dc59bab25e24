"""The commands `list` and `doctor`, and what the command line says of itself."""

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Annotated, Any

import typer

import hetopt

from ..bench.kinds import KINDS
from ..errors import Unsupported
from ..findings import Entries
from ..text.documents import Document
from . import output
from .options import AsJson, arg, flag, opt


def rows(app: typer.Typer) -> list[Document]:
    """A row a command, sorted by name.

    Each has `name`, `description` (the first line), `details` (the other lines, as
    Markdown), and `arguments` and `options`: objects with `name`, `words` (how it is
    written), `value` (what stands for its value, None for a flag), `description`,
    `default` and `required`; absent is None.
    """
    commands: dict[str, object] = typer.main.get_command(app).commands  # type: ignore[attr-defined]
    return [_row(name, commands[name]) for name in sorted(commands)]


def _row(name: str, command: Any) -> Document:
    first, _, rest = (command.help or "").partition("\n")
    shown = [one for one in command.params if not getattr(one, "hidden", False)]
    return {
        "name": name,
        "description": first,
        "details": rest.strip(),
        "arguments": list(_param_rows(shown, "argument")),
        "options": list(_param_rows(shown, "option")),
    }


def _param_rows(params: Sequence[Any], kind: str) -> Iterator[Document]:
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
    if isinstance(value, bool) or not isinstance(value, int | float | str | Path):
        return None
    return str(value) if isinstance(value, Path) else value


def list_entries(
    kind: Annotated[
        str | None,
        arg(f"One of {', '.join(KINDS)}; none: these.", "KIND"),
    ] = None,
    problem: Annotated[
        str | None,
        opt(
            "NAME", "With formulations, methods, planners: only those of this problem."
        ),
    ] = None,
    markdown: Annotated[
        bool,
        flag(
            "With fields, commands or capabilities: the page REFERENCE.md.",
            "--markdown",
        ),
    ] = False,
    as_json: AsJson = False,
) -> None:
    """List what is available, by name.

    Examples: `hetopt list planners --problem recovery`; `hetopt list fields`
    """
    if markdown and kind not in ("fields", "commands", "capabilities"):
        expected = "expected `list fields`, `list commands` or `list capabilities`"
        raise Unsupported(f"--markdown with {kind}: {expected}")
    if kind == "commands" and problem is None:
        from . import app

        found = Entries(kind, tuple(rows(app)))
    else:
        found = hetopt.list_entries(kind, problem)
    if markdown and not as_json:
        from ..report import listing

        output.print_text(listing.page(found.kind, found.rows))
    else:
        output.present(found, as_json=as_json)


def doctor(as_json: AsJson = False) -> None:
    """Find the installed solvers, and try each on a small problem.

    Example: `hetopt doctor`
    """
    found = hetopt.doctor()
    output.present(found, as_json=as_json)
    if not all(one.healthy for one in found.backends):
        raise typer.Exit(output.BAD_INPUT)
