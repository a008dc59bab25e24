"""The command of saved states, `checkpoint`, registered by `hetopt.cli`."""

from collections.abc import Iterator
from pathlib import Path
from typing import Annotated

import typer

from ..text.documents import Document
from ..text.numbers import counted
from . import output
from .options import AsJson, arg, opt


def register(app: typer.Typer) -> None:
    """Add the command to the command line."""
    app.command()(checkpoint)


def checkpoint(
    folder: Annotated[Path, arg("The folder of states.", "DIR")],
    out: Annotated[
        Path | None,
        opt("DIR", "Write the weights to this folder, as a Hugging Face model."),
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Say what states of `hetopt run` a folder has, or write them as a released model.

    Exits with 3 where parts of the latest states are missing.

    Example: `hetopt checkpoint states --out trained`
    """
    from ..runtime import handover

    if out is not None:
        told = {"out": str(out), **handover.to_huggingface(folder, out)}
        words = f"{told['tensors']} tensors after step {told['step']} written to {out}"
        output.print_json(told) if as_json else output.tell(words)
        return
    found = handover.summary(folder)
    output.give(found, _shown(found), as_json=as_json)
    raise typer.Exit(output.PLAN if not found["incomplete"] else output.NO_PLAN)


def _shown(found: Document) -> Iterator[object]:
    from ..report import words

    size = f"{found['bytes'] / 2**30:.3f} GiB in {counted(found['files'], 'file')}"
    yield f"step {found['step']}: {found['parameters']:,} parameters, {size}"
    if found["incomplete"]:
        yield words.plain("not whole: " + ", ".join(found["incomplete"]))
