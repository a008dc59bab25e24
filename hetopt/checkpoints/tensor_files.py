"""Files of tensors in the `safetensors` format, read and written as raw bytes.

A file is the length of its header (8 bytes, little endian), the header (JSON: name ->
dtype, shape, first and last byte), and the tensors one after the other. The library's
numpy interface knows no bfloat16, maps whole files, and writes only what is in memory
whole; here no value is ever looked at, so every dtype moves bit by bit, and what is
written streams. The tests hold both directions to the library.
"""

import json
import os
import struct
from collections.abc import Mapping
from dataclasses import dataclass
from itertools import pairwise
from math import prod
from pathlib import Path
from typing import Annotated, BinaryIO, Literal, get_args

from pydantic import Field

from ..errors import InstanceError
from ..schema import Record
from ..text.complaints import validated
from ..text.parsing import parse_tree, readable

# The dtypes of the format whose values are whole bytes.
# fmt: off
DataType = Literal[
    "BOOL", "U8", "I8", "F8_E4M3", "F8_E5M2", "U16", "I16", "F16", "BF16",
    "U32", "I32", "F32", "U64", "I64", "F64",
]
# fmt: on
_SIZES = (*(1,) * 5, *(2,) * 4, *(4,) * 3, *(8,) * 3)
ITEM_BYTES: dict[str, int] = dict(zip(get_args(DataType), _SIZES, strict=True))
# A header of this size tells of some sixty thousand tensors.
MAX_HEADER = 8 * 2**20
_LENGTH = struct.Struct("<Q")
_Whole = Annotated[int, Field(ge=0, le=2**60)]


class _Entry(Record):
    dtype: DataType
    shape: Annotated[tuple[_Whole, ...], Field(max_length=8)]
    data_offsets: tuple[_Whole, _Whole]


class _Header(Record):
    tensors: dict[str, _Entry]
    metadata: dict[str, str]


@dataclass(frozen=True, slots=True)
class Held:
    """A tensor in a file: `size` bytes from `offset`, counted from the file's start."""

    dtype: str
    shape: tuple[int, ...]
    offset: int
    size: int


@dataclass(frozen=True, slots=True)
class TensorFile:
    """A tensor file: its header, read after the length of the file was checked."""

    path: Path
    tensors: dict[str, Held]
    metadata: dict[str, str]


def read_header(path: Path) -> TensorFile:
    """Return the tensors of a file.

    Raises `InstanceError` where the file is absent, truncated or otherwise not whole,
    or where its header is not one of the format.
    """
    with readable(path, "a saved shard; check where it lies"), path.open("rb") as file:
        size = os.fstat(file.fileno()).st_size
        content, begin = _header(file, size, path)
    entries = content.tensors
    end = begin + _end_of_data(entries, path)
    if size != end:
        raise InstanceError(
            f"{path}: found {size} bytes, expected {end} by the file's header: it is "
            f"{'truncated' if size < end else 'longer than that'}; save it again or "
            "take another copy"
        )
    tensors = {
        name: Held(
            entry.dtype,
            entry.shape,
            begin + entry.data_offsets[0],
            entry.data_offsets[1] - entry.data_offsets[0],
        )
        for name, entry in entries.items()
    }
    return TensorFile(path, tensors, content.metadata)


def _header(file: BinaryIO, size: int, path: Path) -> tuple[_Header, int]:
    """Return the header at the start of a file, and the offset of the first tensor."""
    if size < _LENGTH.size:
        raise InstanceError(
            f"{path}: found {size} bytes, expected a safetensors file, which has more: "
            "it is truncated; save it again or take another copy"
        )
    (length,) = _LENGTH.unpack(file.read(_LENGTH.size))
    if length > MAX_HEADER:
        raise InstanceError(
            f"{path}: found a header of {length} bytes, expected at most {MAX_HEADER}; "
            "is it a safetensors file?"
        )
    begin = _LENGTH.size + length
    if size < begin:
        raise InstanceError(
            f"{path}: found {size} bytes, expected a header of {length} and more: it "
            "is truncated; save it again or take another copy"
        )
    try:
        text = file.read(length).decode()
    except UnicodeDecodeError:
        raise InstanceError(
            f"{path}: found a header that is not UTF-8, expected JSON; is it a "
            "safetensors file?"
        ) from None
    where = f"{path}: header"
    tree: dict[str, object] = parse_tree(text, where, is_json=True)
    metadata = tree.pop("__metadata__", {})
    made = {"tensors": tree, "metadata": metadata}
    return validated(_Header, made, where, file=path), begin


def _end_of_data(entries: Mapping[str, _Entry], path: Path) -> int:
    """Return bytes of all tensors, which must lie side by side from the first byte."""
    for name, entry in entries.items():
        first, last = entry.data_offsets
        expected = prod(entry.shape) * ITEM_BYTES[entry.dtype]
        if last - first != expected:
            raise InstanceError(
                f"{path}: header: tensor {name!r}: found data_offsets {first} to "
                f"{last}, expected {expected} bytes for its dtype and shape; save the "
                "file again"
            )
    offsets = sorted(entry.data_offsets for entry in entries.values())
    for (_, end), (start, _) in pairwise([(0, 0), *offsets]):
        if end != start:
            raise InstanceError(
                f"{path}: header: found a tensor from byte {start} where the one "
                f"before it ends at {end}, expected no gap and no overlap; save the "
                "file again"
            )
    return offsets[-1][1] if offsets else 0


def header_bytes(
    tensors: Mapping[str, tuple[str, tuple[int, ...]]], metadata: Mapping[str, str]
) -> tuple[bytes, list[str]]:
    """A header for tensors of these dtypes and shapes, and the order of their bytes.

    Wider items come first, so that every tensor starts at a multiple of its item.
    """
    order = sorted(tensors, key=lambda name: (-ITEM_BYTES[tensors[name][0]], name))
    entries: dict[str, object] = {"__metadata__": dict(metadata)}
    end = 0
    for name in order:
        dtype, shape = tensors[name]
        start, end = end, end + prod(shape) * ITEM_BYTES[dtype]
        entries[name] = {
            "dtype": dtype,
            "shape": list(shape),
            "data_offsets": [start, end],
        }
    text = json.dumps(entries, separators=(",", ":"), ensure_ascii=False).encode()
    text += b" " * (-len(text) % 8)
    return _LENGTH.pack(len(text)) + text, order
