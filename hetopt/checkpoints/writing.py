"""A shard's file, written and forced to disk."""

import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from math import prod
from pathlib import Path

from .copying import Saved, portion
from .layout import Portion, Unit
from .tensor_files import ITEM_BYTES, header_bytes

Pieces = Callable[[str], Sequence[tuple[Portion, Saved]]]


def write_shard(
    path: Path, unit: Unit, degree: int, metadata: Mapping[str, str], pieces: Pieces
) -> Iterator[int]:
    """Write a shard of a unit; yields bytes as they are done.

    `pieces` says of a tensor's name where its parts are, in the order of the parts.
    """
    tensors = {tensor.name: tensor for tensor in unit.tensors}
    shapes = {n: (t.dtype, t.shard_shape(degree)) for n, t in tensors.items()}
    header, order = header_bytes(shapes, metadata)
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("xb") as file:
        file.write(header)
        for name in order:
            for view in portion(tensors[name], pieces(name)):
                file.write(view)
                yield len(view)
        file.flush()
        os.fsync(file.fileno())


def shard_size(unit: Unit, degree: int) -> int:
    """Return the bytes of the tensors of a shard; its header comes on top."""
    return sum(
        prod(tensor.shard_shape(degree)) * ITEM_BYTES[tensor.dtype]
        for tensor in unit.tensors
    )


def sync(folder: Path) -> None:
    """Force the names in a folder to disk."""
    number = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(number)
    finally:
        os.close(number)
