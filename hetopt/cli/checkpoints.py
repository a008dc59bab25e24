"""The command of saved states, `checkpoint`, registered by `hetopt.cli`."""

from collections.abc import Iterator
from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

from ..errors import Unsupported
from ..text.documents import Document
from ..text.numbers import counted
from . import output
from .options import AsJson


class Form(StrEnum):
    """Words of --to."""

    HF = "hf"
    DCP = "dcp"
    STATES = "states"


def register(app: typer.Typer) -> None:
    """Add the command to the command line."""
    app.command()(checkpoint)


def checkpoint(
    folder: Annotated[
        Path,
        typer.Argument(metavar="DIR", help="The folder of states."),
    ],
    to: Annotated[
        Form | None,
        typer.Option(
            help="Convert states of `hetopt run` for another tool (hf, dcp), "
            "or back (states)."
        ),
    ] = None,
    model: Annotated[
        Path | None,
        typer.Option(
            metavar="CONFIG", help="With --to states: the model's config.json."
        ),
    ] = None,
    out: Annotated[
        Path | None,
        typer.Option(metavar="DIR", help="With --to: write to this folder."),
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Say what states of `hetopt run` a folder has, and convert them.

    With --to, hf writes their weights as a released model; dcp writes weights and
    moments for torch.distributed.checkpoint, under Hugging Face's names; states turns
    such a folder into one that `hetopt run --checkpoint` resumes from. Exits with 3
    where parts of the latest states are missing.

    Example: `hetopt checkpoint states --to hf --out trained`
    """
    if to is not None and out is None:
        raise Unsupported("--to: expected --out DIR with it; name a folder")
    if out is not None and to is None:
        raise Unsupported("--out: expected --to hf, dcp or states with it; add it")
    if model is not None and to is not Form.STATES:
        raise Unsupported("--model: expected --to states with it; leave it out")
    if to is not None and out is not None:
        told = _handed_over(folder, to, out, model)
        words = f"{told['tensors']} tensors after step {told['step']} written to {out}"
        output.print_json(told) if as_json else output.tell(words)
        return
    from ..runtime import handover

    found = handover.summary(folder)
    output.give(found, _shown(found), as_json=as_json)
    raise typer.Exit(output.PLAN if not found["incomplete"] else output.NO_PLAN)


def _handed_over(
    folder: Path, to: Form, out: Path, model: Path | None
) -> dict[str, object]:
    from ..runtime import handover

    if to is Form.STATES:
        made = handover.from_dcp(folder, out, model)
    elif to is Form.HF:
        made = handover.to_huggingface(folder, out)
    else:
        made = handover.to_dcp(folder, out)
    return {"out": str(out), **made}


def _shown(found: Document) -> Iterator[object]:
    from ..report import words

    size = f"{found['bytes'] / 2**30:.3f} GiB in {counted(found['files'], 'file')}"
    yield f"step {found['step']}: {found['parameters']:,} parameters, {size}"
    if found["incomplete"]:
        yield words.plain("not whole: " + ", ".join(found["incomplete"]))
