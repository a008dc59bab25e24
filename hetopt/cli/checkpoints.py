"""The command of saved states, `checkpoint`, registered by `hetopt.cli`."""

from collections.abc import Iterator
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from ..errors import Unsupported
from ..text.documents import Document
from . import output
from .options import AsJson

if TYPE_CHECKING:
    from ..checkpoints import Applied
    from .progress import Moved


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
        typer.Argument(metavar="DIR", help="The folder of a checkpoint, or of states."),
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
    """Say which shards a checkpoint has and where, from every file's header.

    With --to, DIR has states of `hetopt run`: hf writes their weights as a released
    model; dcp writes weights and moments for torch.distributed.checkpoint, under
    Hugging Face's names; states turns such a folder into one that `hetopt run
    --checkpoint` resumes from.

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
    found = _unit_rows(folder)
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


def moving() -> "Moved":
    """A bar of bytes on a terminal; silent elsewhere."""
    from .progress import Moved
    from .terminal import console

    return Moved(console(stderr=True), "moving states")


def document(done: "Applied") -> Document:
    """Return what a recovery on files did, as JSON."""
    return {
        "out": str(done.folder),
        "written": done.written,
        "bytes_written": done.bytes_written,
    }


def _unit_rows(folder: Path) -> Document:
    """Places and degrees, with what each has; units that no shards make whole."""
    from .. import checkpoints

    shards = checkpoints.verified_catalogue(folder)
    manifest = checkpoints.read_manifest(folder)
    rows: dict[tuple[str, int], Document] = {}
    for shard in sorted(shards, key=lambda s: (s.place, s.degree)):
        row = rows.setdefault(
            (shard.place, shard.degree),
            {
                "place": shard.place,
                "degree": shard.degree,
                "shards": 0,
                "units": set(),
                "bytes": 0,
            },
        )
        row["shards"] += 1
        row["units"].add(shard.unit)
        row["bytes"] += (folder / shard.path).stat().st_size
    for row in rows.values():
        row["units"] = [u.name for u in manifest.units if u.name in row["units"]]
    return {
        "model": manifest.model,
        "step": manifest.step,
        "places": list(rows.values()),
        "incomplete": checkpoints.incomplete(manifest, shards),
    }


def _shown(found: Document) -> Iterator[object]:
    from ..report import words

    rows = [
        (
            row["place"],
            *map(str, (row["degree"], len(row["units"]), row["shards"])),
            f"{row['bytes'] / 2**30:.3f}",
        )
        for row in found["places"]
    ]
    yield words.plain(found["model"])
    yield output.table(("place", "degree", "units", "shards", "GiB"), rows)
    if found["incomplete"]:
        yield words.plain("not whole anywhere: " + ", ".join(found["incomplete"]))
