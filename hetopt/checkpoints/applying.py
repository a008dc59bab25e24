"""A recovery plan, carried out: shards are cut, joined and written for the new ranks.

The old checkpoint is only read, and verified before anything is written. The new folder
appears whole or not at all: its shards are forced to disk in a draft beside it, which
takes its name at the end. What is left of a run that was killed is such a draft.
"""

import secrets
import shutil
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

from ..errors import InstanceError, InternalError
from ..plans import Recovery
from ..text.writing import write_json
from .copying import Saved
from .layout import MANIFEST, Manifest, Portion, Shard, read_manifest
from .moves import Move, moves
from .sources import Source, difference, verify
from .tensor_files import read_header
from .writing import shard_size, sync, write_shard

DOCUMENT = "recovery.json"
Report = Callable[[int, int], None]


@dataclass(frozen=True, slots=True)
class Applied:
    """A recovery did this: shards and bytes written."""

    folder: Path
    written: int
    bytes_written: int


@dataclass(frozen=True, slots=True)
class _Job:
    """One recovery: where to, and what is read."""

    out: Path
    manifest: Manifest
    sources: dict[Shard, Source]


def apply(
    recovery: Recovery,
    checkpoint: str | Path,
    out: str | Path,
    report: Report | None = None,
    document: Mapping[str, object] | None = None,
) -> Applied:
    """Write to `out` the shards that the new ranks need, each beside its node's others.

    `report` is called with the bytes done and all bytes; `document` is written into
    `recovery.json` as it is. Raises `InstanceError` where the plan does not fit the
    checkpoint, a saved shard is missing or damaged, `out` holds anything, or the disk
    has no room: before anything is written.
    """
    folder, out = Path(checkpoint), Path(out)
    manifest = read_manifest(folder)
    made = moves(recovery, manifest)
    saved = {source for one in made for _, source in one.pieces}
    _check_cuts(manifest, {one.shard for one in made} | saved)
    sources = verify(folder, manifest, saved)
    _check_apart(folder, out)
    place = out.resolve()
    draft = place.with_name(f".{place.name}.{secrets.token_hex(6)}.tmp")
    try:
        draft.mkdir(parents=True)
        written = _carried_out(_Job(draft, manifest, sources), made, report)
        if document is not None:
            write_json(draft / DOCUMENT, document)
        sync(draft)
        draft.replace(place)
        sync(place.parent)
    except OSError as error:
        raise InstanceError(
            f"{error.filename or out}: {error.strerror}; make room or name another "
            "folder"
        ) from None
    finally:
        shutil.rmtree(draft, ignore_errors=True)
    return Applied(out, len(made), written)


def _carried_out(job: _Job, made: list[Move], report: Report | None) -> int:
    """Write all shards, then the manifest; the bytes that were written."""
    units = ((job.manifest.unit(one.shard.unit), one.shard.degree) for one in made)
    total, done = sum(shard_size(*unit) for unit in units), 0
    _check_room(job.out, total)
    for one in made:
        for count in _write(job, one):
            done += count
            if report is not None:
                report(done, total)
    for folder in {(job.out / one.shard.path).parent for one in made}:
        sync(folder)
    write_json(job.out / MANIFEST, job.manifest.model_dump(mode="json"))
    return done


# --- before anything is written --------------------------------------------------


def _check_apart(folder: Path, out: Path) -> None:
    """Raise `InstanceError` where the new folder is taken, or in the old one."""
    if out.resolve().is_relative_to(folder.resolve()):
        raise InstanceError(
            f"{out}: found the checkpoint that is read, or a folder in it, expected "
            "another place: the old checkpoint stays as it is; name another folder"
        )
    if out.exists() and (not out.is_dir() or any(out.iterdir())):
        raise InstanceError(
            f"{out}: found it in use, expected an empty folder or none; name another"
        )


def _check_cuts(manifest: Manifest, shards: set[Shard]) -> None:
    """Every degree cuts the tensors between two indices, or `InstanceError`."""
    for shard in sorted(shards):
        for tensor in manifest.unit(shard.unit).tensors:
            try:
                tensor.shard_shape(shard.degree)
            except InstanceError as error:
                raise InstanceError(f"{shard.path}: {error}") from None


def _check_room(out: Path, needed: int) -> None:
    free = shutil.disk_usage(out).free
    if free < needed:
        raise InstanceError(
            f"{out}: found {free} bytes free, expected {needed} for the shards to be "
            "written; make room or name another folder"
        )


# --- writing ---------------------------------------------------------------------


def _write(job: _Job, move: Move) -> Iterator[int]:
    """Write a shard; yields bytes as they are done."""
    shard = move.shard
    with ExitStack() as stack:
        files = {
            source: job.sources[source].open(stack)
            for source in {source for _, source in move.pieces}
        }

        def pieces(name: str) -> list[tuple[Portion, Saved]]:
            return [
                (part, job.sources[source].saved(name, source, files[source]))
                for part, source in move.pieces
            ]

        unit, path = job.manifest.unit(shard.unit), job.out / shard.path
        metadata = {"format": job.manifest.format}
        yield from write_shard(path, unit, shard.degree, metadata, pieces)
    if why := difference(read_header(path), unit, shard.degree):
        raise InternalError(f"{path}: written, and {why}")
