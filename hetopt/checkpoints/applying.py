"""A recovery plan, carried out: shards are cut, joined and written for the new ranks.

The old checkpoint is only read, and verified before anything is written. In the new
folder `recovery.json` comes first and says which recovery it is; each shard is written
under another name, forced to disk and renamed; `manifest.json` comes last, so a folder
with a manifest is complete. A run that was killed is taken up again: complete shards
carry the recovery's digest in their header and are kept.
"""

import fcntl
import hashlib
import json
import os
import shutil
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path

from ..errors import InstanceError, InternalError
from ..plans import Recovery
from ..text.complaints import shown
from ..text.parsing import read_tree
from ..text.writing import write_json
from .copying import Saved
from .layout import MANIFEST, Manifest, Portion, Shard, read_manifest
from .moves import Move, moves
from .sources import Source, difference, verify
from .tensor_files import read_header
from .writing import DRAFT, shard_size, sync, write_shard

JOURNAL = "recovery.json"
Report = Callable[[int, int], None]


@dataclass(frozen=True, slots=True)
class Applied:
    """A recovery did this: shards written now, kept from before, and bytes written."""

    folder: Path
    written: int
    kept: int
    bytes_written: int


@dataclass(frozen=True, slots=True)
class _Job:
    """One recovery: where to, what is read, and the digest that tells it from others"""

    out: Path
    manifest: Manifest
    sources: dict[Shard, Source]
    digest: str


def apply(
    recovery: Recovery,
    checkpoint: str | Path,
    out: str | Path,
    report: Report | None = None,
    document: Mapping[str, object] | None = None,
) -> Applied:
    """Write to `out` the shards that the new ranks need, each beside its node's others.

    `report` is called with the bytes done and all bytes; `document` is written into
    `recovery.json` as it is, for `begun` to read. Does nothing where `out` holds
    the finished recovery, goes on where it holds a part of it. Raises `InstanceError`
    where the plan does not fit the checkpoint, a saved shard is missing or damaged,
    `out` holds anything else, or the disk has no room: before anything is written.
    """
    folder, out = Path(checkpoint), Path(out)
    manifest = read_manifest(folder)
    made = moves(recovery, manifest)
    saved = {source for one in made for _, source in one.pieces}
    _check_cuts(manifest, {one.shard for one in made} | saved)
    sources = verify(folder, manifest, saved)
    _check_apart(folder, out)
    job = _Job(out, manifest, sources, _digest(recovery, manifest, sources))
    try:
        return _carried_out(job, made, report, document or {})
    except OSError as error:
        raise InstanceError(
            f"{error.filename or out}: {error.strerror}; make room or name another "
            "folder, then run again: what is complete is kept"
        ) from None


def begun(out: str | Path) -> dict[str, object] | None:
    """Return the `recovery.json` of a recovery that a folder holds in part."""
    path = Path(out) / JOURNAL
    return read_tree(path) if path.is_file() else None


def _carried_out(
    job: _Job, made: list[Move], report: Report | None, document: Mapping[str, object]
) -> Applied:
    _check_out(job)
    job.out.mkdir(parents=True, exist_ok=True)
    with _alone(job.out):
        # Again: another run may have come and gone before the folder was ours.
        fresh = _check_out(job)
        _sweep(job.out, made)
        kept = {one.shard for one in made if _complete(job, one.shard)}
        todo = [one for one in made if one.shard not in kept]
        sizes = {
            one.shard: shard_size(job.manifest.unit(one.shard.unit), one.shard.degree)
            for one in made
        }
        total, done = sum(sizes.values()), sum(sizes[shard] for shard in kept)
        _check_room(job.out, total - done)
        if fresh:
            write_json(job.out / JOURNAL, {**document, "recovery": job.digest})
        for one in todo:
            for count in _write(job, one):
                done += count
                if report is not None:
                    report(done, total)
        if todo or not (job.out / MANIFEST).is_file():
            _finish(job, made)
    written = sum(sizes[one.shard] for one in todo)
    return Applied(job.out, len(todo), len(kept), written)


# --- before anything is written --------------------------------------------------


def _digest(
    recovery: Recovery, manifest: Manifest, sources: dict[Shard, Source]
) -> str:
    """Return the digest of a plan and its sources: a later save is another recovery."""
    stamps = [[shard.path, *sources[shard].stamp] for shard in sorted(sources)]
    text = json.dumps([recovery.digest, manifest.digest, stamps])
    return "sha256:" + hashlib.sha256(text.encode()).hexdigest()


def _check_apart(folder: Path, out: Path) -> None:
    if out.resolve().is_relative_to(folder.resolve()):
        raise InstanceError(
            f"{out}: found the checkpoint that is read, or a folder in it, expected "
            "another place: the old checkpoint stays as it is; name another folder"
        )


def _check_cuts(manifest: Manifest, shards: set[Shard]) -> None:
    """Every degree cuts the tensors between two indices, or `InstanceError`."""
    for shard in sorted(shards):
        for tensor in manifest.unit(shard.unit).tensors:
            try:
                tensor.shard_shape(shard.degree)
            except InstanceError as error:
                raise InstanceError(f"{shard.path}: {error}") from None


def _check_out(job: _Job) -> bool:
    """Check that the folder is new, empty or of this recovery; True if new.

    Drafts of ours that a killed run left behind do not count.
    """
    out = job.out
    if out.exists() and not out.is_dir():
        raise InstanceError(f"{out}: found a file, expected a folder; name another")
    if not out.exists() or all(DRAFT.fullmatch(path.name) for path in out.iterdir()):
        return True
    journal, said = out / JOURNAL, begun(out)
    if said is None:
        raise InstanceError(
            f"{out}: found a folder with files and no {JOURNAL}, expected an empty one "
            "or a recovery to go on with; name another folder"
        )
    found = said.get("recovery")
    if found != job.digest:
        raise InstanceError(
            f"{journal}: found the recovery {shown(found)}, expected {job.digest}: the "
            "folder was made by another plan or from another state of the checkpoint; "
            "name another folder or remove this one"
        )
    return False


def _check_room(out: Path, needed: int) -> None:
    free = shutil.disk_usage(out).free
    if free < needed:
        raise InstanceError(
            f"{out}: found {free} bytes free, expected {needed} for the shards to be "
            "written; make room or name another folder"
        )


# --- writing ---------------------------------------------------------------------


@contextmanager
def _alone(out: Path) -> Iterator[None]:
    """Hold the folder, so that two runs do not sweep each other's drafts away."""
    number = os.open(out, os.O_RDONLY)
    try:
        fcntl.flock(number, fcntl.LOCK_EX | fcntl.LOCK_NB)
        yield
    except BlockingIOError:
        raise InstanceError(
            f"{out}: found another run at work on it, expected none; wait for it"
        ) from None
    finally:
        os.close(number)


def _sweep(out: Path, made: list[Move]) -> None:
    """Remove the drafts that a killed run left behind."""
    for folder in {out, *((out / one.shard.path).parent for one in made)}:
        if not folder.resolve().is_relative_to(out.resolve()):
            raise InstanceError(
                f"{folder}: found a link that leads out of {out}, expected a folder in "
                "it; name another folder"
            )
        for path in folder.iterdir() if folder.is_dir() else ():
            if DRAFT.fullmatch(path.name):
                path.unlink()


def _complete(job: _Job, shard: Shard) -> bool:
    """Return whether this recovery has written the shard, whole."""
    path = job.out / shard.path
    if not path.is_file():
        return False
    try:
        file = read_header(path)
    except InstanceError:  # damaged since: it is written again
        return False
    same = file.metadata.get("recovery") == job.digest
    return same and not difference(file, job.manifest.unit(shard.unit), shard.degree)


def _write(job: _Job, move: Move) -> Iterator[int]:
    """Write a shard under its name once it is whole; yields bytes as they are done."""
    shard = move.shard
    metadata = {"format": job.manifest.format, "recovery": job.digest}
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
        yield from write_shard(path, unit, shard.degree, metadata, pieces)


def _finish(job: _Job, made: list[Move]) -> None:
    """The manifest, after every shard and its name are safely on the disk."""
    for folder in {(job.out / one.shard.path).parent for one in made}:
        sync(folder)
    for one in made:
        if not _complete(job, one.shard):
            raise InternalError(f"{job.out / one.shard.path}: written, and not whole")
    write_json(job.out / MANIFEST, job.manifest.model_dump(mode="json"))
    sync(job.out)
