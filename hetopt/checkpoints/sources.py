"""Saved shards, held against the manifest before anything is written."""

import os
from collections.abc import Iterable
from contextlib import ExitStack
from pathlib import Path
from typing import NamedTuple

from ..errors import InstanceError
from ..text.complaints import MOST_LINES
from .copying import Saved
from .layout import MANIFEST, Manifest, Shard, Unit, catalogue, read_manifest
from .moves import held_to
from .tensor_files import TensorFile, read_header


class Stamp(NamedTuple):
    """A stamp tells that a file is still the one that was looked at."""

    size: int
    changed_ns: int


class Source(NamedTuple):
    """A verified shard: its header, and the stamp of the file that it was read from."""

    file: TensorFile
    stamp: Stamp

    def open(self, stack: ExitStack) -> int:
        """Return the file, open for reading until the stack closes.

        Raises `InstanceError` where it has changed since it was verified.
        """
        path = self.file.path
        number = os.open(path, os.O_RDONLY)
        stack.callback(os.close, number)
        if _stamp(os.fstat(number)) != self.stamp:
            raise InstanceError(
                f"{path}: found it changed since it was verified, expected the same "
                "file; keep the checkpoint as it is until the recovery is done"
            )
        return number

    def saved(self, name: str, shard: Shard, number: int) -> Saved:
        """Return a tensor of the shard, in the file that was opened as `number`."""
        held = self.file.tensors[name]
        part = (shard.rank, shard.rank + 1, shard.degree)
        return Saved(number, str(self.file.path), held.offset, part)


def verify(
    folder: Path, manifest: Manifest, shards: Iterable[Shard]
) -> dict[Shard, Source]:
    """Every shard's source; `InstanceError` names all that cannot be used, one a line.

    A shard is refused where its file is absent, truncated, outside the folder, or has
    other tensors, dtypes or shapes than the manifest says.
    """
    units = {unit.name: unit for unit in manifest.units}
    found, wrong = {}, []
    for shard in sorted(set(shards)):
        try:
            found[shard] = _verify(folder, units[shard.unit], shard)
        except InstanceError as error:
            wrong.append(str(error))
    if more := len(wrong) - MOST_LINES:
        wrong[MOST_LINES:] = [f"{folder}: and {more} more"] if more > 0 else []
    if wrong:
        raise InstanceError("\n".join(wrong))
    return found


def verified_catalogue(folder: Path) -> tuple[Shard, ...]:
    """Return the shards of a checkpoint's folder, after a look at each file's header.

    Raises `InstanceError` that names the damaged ones.
    """
    shards = catalogue(folder)
    verify(folder, read_manifest(folder), shards)
    return shards


def incomplete(manifest: Manifest, shards: Iterable[Shard]) -> list[str]:
    """Return the units that the shards together do not make whole."""
    by_unit: dict[str, list[Shard]] = {unit.name: [] for unit in manifest.units}
    for shard in shards:
        by_unit[shard.unit].append(shard)
    return [name for name, found in by_unit.items() if held_to(found) < 1]


def _verify(folder: Path, unit: Unit, shard: Shard) -> Source:
    path = folder / shard.path
    if not path.resolve().is_relative_to(folder.resolve()):
        raise InstanceError(
            f"{path}: found a link that leads out of {folder}, expected a file in the "
            "checkpoint's folder; copy the file there"
        )
    file = read_header(path)
    if why := difference(file, unit, shard.degree):
        raise InstanceError(
            f"{path}: {why}, as {MANIFEST} says; save the shard again or take another "
            "copy"
        )
    return Source(file, _stamp(path.stat()))


def difference(file: TensorFile, unit: Unit, degree: int) -> str:
    """Return how a shard's file differs from its unit and degree, or nothing."""
    expected = {tensor.name: tensor for tensor in unit.tensors}
    if lacking := sorted(set(expected) - set(file.tensors)):
        return f"found no tensor {lacking[0]!r}, expected {len(expected)} tensors"
    if unknown := sorted(set(file.tensors) - set(expected)):
        return f"found a tensor {unknown[0]!r}, expected none of this name"
    for name, held in sorted(file.tensors.items()):
        want = expected[name].dtype, expected[name].shard_shape(degree)
        if (held.dtype, held.shape) != want:
            return (
                f"tensor {name!r}: found {held.dtype} {list(held.shape)}, "
                f"expected {want[0]} {list(want[1])}"
            )
    return ""


def _stamp(status: os.stat_result) -> Stamp:
    return Stamp(status.st_size, status.st_mtime_ns)
