"""The commands that rewrite files, registered by `hetopt.cli`."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from ..errors import Unsupported
from . import output
from .assumed import tell_assumed
from .options import OutTree, arg, flag, opt, pairs

if TYPE_CHECKING:
    from ..formats.importing import Imported

_OWN = ("out", "instance", "option", "json", "help")


def register(app: typer.Typer) -> None:
    """Add the commands to the command line."""
    # What is no option of the command is one of the format: it comes with the paths.
    app.command("import", context_settings={"ignore_unknown_options": True})(
        import_file
    )


def import_file(
    format: Annotated[str, arg("One of `hetopt list formats`.", "FORMAT")],
    paths: Annotated[
        list[str] | None,
        arg("Files to read, and options of the format.", "[PATH]... [--NAME VALUE]..."),
    ] = None,
    out: OutTree = None,
    instance: Annotated[
        str | None,
        opt(
            "INSTANCE",
            "Write this instance with what was read; plans are read against it.",
        ),
    ] = None,
    option: Annotated[
        list[str] | None,
        pairs("An option of the format, like --NAME VALUE."),
    ] = None,
    as_json: Annotated[
        bool,
        flag(
            "Print one JSON document on stdout: what was written and assumed.", "--json"
        ),
    ] = False,
) -> None:
    """Convert another tool's file, such as a price list, to hetopt's format.

    Examples: `hetopt import skypilot vms.csv --region us-east-1
    --instance espresso/llama-7b --out market.yaml`;
    `hetopt import metis-plan search.log --instance i.yaml --rank 2 --out plan.json`
    """
    from ..formats import importing

    files, given = importing.split(format, paths or [], _OWN)
    options = [*given, *(option or [])]
    if out is None:
        raise Unsupported("expected --out FILE; add it")
    output.check_writable(out)
    importing.check(out)
    found = importing.imported(format, files, options, instance)
    importing.write(out, found.document)
    tell_imported(found, out, as_json=as_json)


def tell_imported(found: "Imported", out: Path, *, as_json: bool) -> None:
    """Say where a document was written, and what was assumed in it."""
    if as_json:
        output.print_json({"written": str(out), **found.to_json()})
        return
    output.tell(f"written to {out}")
    tell_assumed(found.assumed)
