"""A checkpoint holds a manifest and shards, each with rows of tensors.

Degrees cut each block of a tensor's parallel axis into equal parts. So a portion of a
unit is named by `(first, last, of)`: the parts `first` to `last`, the latter left out,
of `of` equal parts.
"""

import os
import re
from collections import Counter
from collections.abc import Iterator
from math import prod
from pathlib import Path
from typing import Annotated, Literal, NamedTuple, Self

from pydantic import AfterValidator, Field, model_validator

from ..errors import InstanceError
from ..schema import Name, Record, name_fault, printable
from ..text.complaints import shown, validated
from ..text.parsing import read_tree
from .tensor_files import ITEM_BYTES, DataType

MANIFEST = "manifest.json"
CLOUD = "cloud"
UNIT = r"[A-Za-z0-9][A-Za-z0-9_-]{0,63}"
_NODE = r"[A-Za-z0-9_][^/\\\x00-\x1f]{0,199}"
_FILE = re.compile(rf"({UNIT})\.tp(\d{{1,5}})of(\d{{1,5}})\.safetensors")
# The largest degree that a file's name may tell.
MAX_DEGREE = 4096
Length = Annotated[int, Field(ge=1, le=2**40)]
Portion = tuple[int, int, int]


class Tensor(Record):
    """One tensor of a unit, whole; moments and master weights are tensors too.

    `axis` is the one that tensor parallelism cuts: 0 for a matrix that is parallel by
    column (its rows are the outputs), 1 for one parallel by row, null for a tensor that
    every rank holds whole. `blocks` are the lengths along the axis that are cut each by
    itself: query, key and value of a fused matrix, or gate and up.
    """

    name: Annotated[str, Field(min_length=1, max_length=500), AfterValidator(printable)]
    dtype: DataType
    shape: Annotated[tuple[Length, ...], Field(max_length=8)]
    axis: Annotated[int, Field(ge=0, le=7)] | None = None
    blocks: Annotated[tuple[Length, ...], Field(min_length=1)] | None = None

    @model_validator(mode="after")
    def _axis_and_blocks_fit(self) -> Self:
        if self.name == "__metadata__":
            raise ValueError(
                "found the name '__metadata__', which the file format keeps for "
                "itself: rename the tensor"
            )
        if self.axis is not None and self.axis >= len(self.shape):
            raise ValueError(
                f"tensor {self.name!r} has {len(self.shape)} axes, counted from 0: "
                f"found axis {self.axis}; name one of them"
            )
        if self.blocks is not None:
            length = None if self.axis is None else self.shape[self.axis]
            if sum(self.blocks) != length:
                raise ValueError(
                    f"tensor {self.name!r} has blocks of {sum(self.blocks)} in all, "
                    f"expected {length}, the length of axis {self.axis}: correct them"
                )
        return self

    @property
    def size(self) -> int:
        """Return the bytes of the whole tensor."""
        return prod(self.shape) * ITEM_BYTES[self.dtype]

    @property
    def outer(self) -> int:
        """Return the repetitions of the axis: the product of the axes before it."""
        return 1 if self.axis is None else prod(self.shape[: self.axis])

    @property
    def inner(self) -> int:
        """Bytes of one step along the axis; of everything if every rank holds it."""
        if self.axis is None:
            return self.size
        return prod(self.shape[self.axis + 1 :]) * ITEM_BYTES[self.dtype]

    def spans(self, part: Portion) -> list[range]:
        """Indices of a portion along the axis, one range a block.

        An edge within an index is rounded down, so that portions that follow one
        another have every index once; the edges of shards are on whole indices.
        """
        if self.axis is None:
            return [range(1)]
        first, last, of = part
        found, start = [], 0
        for length in self.blocks or (self.shape[self.axis],):
            found.append(
                range(start + length * first // of, start + length * last // of)
            )
            start += length
        return found

    def shard_shape(self, degree: int) -> tuple[int, ...]:
        """Shape of the tensor in a shard of a degree, the same for every rank.

        Raises `InstanceError` where the degree would cut an index in two.
        """
        if self.axis is None:
            return self.shape
        length = self.shape[self.axis]
        for block in self.blocks or (length,):
            if block % degree:
                raise InstanceError(
                    f"tensor {self.name!r}: found {block} along axis {self.axis}"
                    f"{' in a block' if self.blocks else ''}, expected a number that "
                    f"is cut into {degree} equal parts; choose another tensor-parallel "
                    "degree or pad the tensor"
                )
        return (
            *self.shape[: self.axis],
            length // degree,
            *self.shape[self.axis + 1 :],
        )


class Unit(Record):
    """A unit moves together: the embedding, a layer, or the head."""

    name: Annotated[str, Field(pattern=rf"^{UNIT}$", description="a file's name")]
    tensors: Annotated[tuple[Tensor, ...], Field(min_length=1)]

    @model_validator(mode="after")
    def _names_differ(self) -> Self:
        _no_twins([tensor.name for tensor in self.tensors], f"unit {self.name!r}")
        return self


class Manifest(Record):
    """`manifest.json`: every unit and its whole tensors, wherever the shards lie."""

    format: Literal["hetopt-checkpoint"] = "hetopt-checkpoint"
    version: Literal[1] = 1
    model: Name
    step: Annotated[int, Field(ge=0)] | None = None
    units: Annotated[tuple[Unit, ...], Field(min_length=1, max_length=20_000)]

    @model_validator(mode="after")
    def _names_differ(self) -> Self:
        _no_twins([unit.name for unit in self.units], "the checkpoint")
        return self

    @property
    def tied(self) -> bool:
        """Return whether the last stage uses the embedding: no head matrix to cut."""
        heads = [unit for unit in self.units if unit.name == "head"]
        return not any(t.axis is not None for unit in heads for t in unit.tensors)

    def unit(self, name: str) -> Unit:
        """Return the unit of a name; `InstanceError` where there is none."""
        for unit in self.units:
            if unit.name == name:
                return unit
        raise InstanceError(
            f"unit: found {shown(name)}, expected one that {MANIFEST} lists, "
            f"{self.units[0].name} to {self.units[-1].name}; is it the checkpoint of "
            "another model?"
        )


class Shard(NamedTuple):
    """A saved part of a unit, and the node (or the cloud) that has it."""

    unit: str
    rank: int
    degree: int
    place: str

    @property
    def path(self) -> str:
        """Return its file below the folder of the checkpoint."""
        name = f"{self.unit}.tp{self.rank}of{self.degree}.safetensors"
        return f"{folder_of(self.place)}/{name}"


def folder_of(place: str) -> str:
    """Return the folder of a node or of the cloud: its name, where that can be one."""
    if not _names_folder(place):
        raise InstanceError(
            f"node: found the name {shown(place)}, expected one that can name a folder "
            "(no slash, no leading dot); rename the node"
        )
    return place


def _names_folder(place: str) -> bool:
    return re.fullmatch(_NODE, place) is not None and name_fault(place) is None


def read_manifest(folder: Path) -> Manifest:
    """The manifest of a checkpoint; `InstanceError` where it is absent or wrong."""
    if not os.path.isdir(folder):
        raise InstanceError.at(
            folder,
            None,
            f"found no such folder, expected a checkpoint with {MANIFEST}; check the "
            "path",
        )
    path = folder / MANIFEST
    return validated(Manifest, read_tree(path), str(path))


def catalogue(folder: Path) -> tuple[Shard, ...]:
    """The shards that lie in a checkpoint's folder, sorted; their files are not read.

    Files of other names and of units that the manifest lacks are passed over.
    """
    units = {unit.name for unit in read_manifest(folder).units}
    return tuple(sorted(shard for shard in _shards(folder) if shard.unit in units))


def _shards(folder: Path) -> Iterator[Shard]:
    for place in folder.iterdir():
        if not place.is_dir() or not _names_folder(place.name):
            continue
        for path in place.iterdir():
            found = _FILE.fullmatch(path.name)
            if found is None or not path.is_file():
                continue
            shard = Shard(found[1], int(found[2]), int(found[3]), place.name)
            # `tp00of2` names no shard: its path would be another file's.
            known = path.name == Path(shard.path).name
            if known and shard.rank < shard.degree <= MAX_DEGREE:
                yield shard


def _no_twins(names: list[str], where: str) -> None:
    if twins := sorted(name for name, count in Counter(names).items() if count > 1):
        raise ValueError(
            f"{where} has the name {', '.join(map(repr, twins[:5]))} more than once: "
            "rename all but one"
        )
