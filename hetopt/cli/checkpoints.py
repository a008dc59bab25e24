"""The command of saved states, `checkpoint`, registered by `hetopt.cli`."""

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from ..errors import Unsupported
from . import output
from .options import AsJson

if TYPE_CHECKING:
    from ..checkpoints import Applied
    from .progress import Moved


def register(app: typer.Typer) -> None:
    """Add the command to the command line."""
    app.command()(checkpoint)


def checkpoint(
    folder: Annotated[
        Path,
        typer.Argument(metavar="DIR", help="A checkpoint, or a released model's."),
    ],
    split: Annotated[
        str | None,
        typer.Option(metavar="PLAN", help="Cut whole units for this training plan."),
    ] = None,
    out: Annotated[
        Path | None, typer.Option(metavar="DIR", help="Write the checkpoint here.")
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Say which shards lie where, after a look into every file's header.

    With --out, a released model (safetensors) becomes a checkpoint of whole units;
    with --split too, whole units are cut for a plan. Both leave DIR as it is.

    Example: `hetopt checkpoint llama-2-7b --out whole` and
    `hetopt checkpoint whole --split plan.json --out shards`
    """
    from .. import api, checkpoints

    if split is not None and out is None:
        raise Unsupported("--split: expected --out DIR with it; name a folder")
    if out is None:
        found = _listed(folder)
        output.give(found, _shown(found), as_json)
        raise typer.Exit(output.PLAN if not found["incomplete"] else output.NO_PLAN)
    if split is None:
        manifest = checkpoints.from_huggingface(folder, out)
        told = {"out": str(out), "written": len(manifest.units)}
    else:
        manifest = checkpoints.read_manifest(folder)
        recovery = checkpoints.split(api.posed_training(split)[1], manifest)
        with moving() as bar:
            told = document(checkpoints.apply(recovery, folder, out, bar.report))
    if as_json:
        output.print_json(told)
    else:
        output.tell(f"{told['written']} shards written to {out}")


def moving() -> "Moved":
    """A bar of bytes on a terminal; silent elsewhere."""
    from .progress import Moved
    from .terminal import console

    return Moved(console(stderr=True), "moving states")


def document(done: "Applied") -> dict[str, Any]:
    """What a recovery on files did, as JSON."""
    return {
        "out": str(done.folder),
        "written": done.written,
        "kept": done.kept,
        "bytes_written": done.bytes_written,
    }


def _listed(folder: Path) -> dict[str, Any]:
    """Places and degrees, with what each has; units that no shards make whole."""
    from .. import checkpoints

    shards = checkpoints.verified_catalogue(folder)
    manifest = checkpoints.read_manifest(folder)
    rows: dict[tuple[str, int], dict[str, Any]] = {}
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


def _shown(found: dict[str, Any]) -> Iterator[Any]:
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
