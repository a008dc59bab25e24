"""Portions of saved tensors, joined along the parallel axis as they are written.

A tensor is taken as `outer` rows of bytes. A row of the portion that is wanted is the
concatenation of segments of rows of the shards that have it, block by block. Memory is
bounded by `CHUNK`, whatever the size of a tensor.
"""

import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from ..errors import InstanceError
from .layout import Portion, Tensor

CHUNK = 4 * 2**20
# A piece of a row below this is read together with what lies between it and the next.
_PAGE = 4096


@dataclass(frozen=True, slots=True)
class Saved:
    """A tensor in a saved shard: an open file, where its bytes begin, and its part."""

    file: int
    path: str
    offset: int
    part: Portion


@dataclass(frozen=True, slots=True)
class _Segment:
    """`length` bytes at `start` of every row, rows being `stride` bytes apart."""

    saved: Saved
    start: int
    stride: int
    length: int


def portion(
    tensor: Tensor, pieces: Sequence[tuple[Portion, Saved]]
) -> Iterator[memoryview]:
    """Return the bytes of a tensor's portion, in order; each view lasts until the next.

    `pieces` are parts that follow one another, each with a shard that holds it. Of a
    tensor that every rank holds whole the first shard's is taken.
    """
    segments = _segments(tensor, pieces)
    width = sum(segment.length for segment in segments)
    widest = max(width, *(segment.stride for segment in segments))
    if tensor.outer == 1 or widest > CHUNK:
        return _row_by_row(segments, tensor.outer)
    return _rows_together(segments, tensor.outer, width, CHUNK // widest)


def _segments(
    tensor: Tensor, pieces: Sequence[tuple[Portion, Saved]]
) -> list[_Segment]:
    if tensor.axis is None:
        return [_Segment(pieces[0][1], 0, tensor.inner, tensor.inner)]
    found: list[list[_Segment]] = []
    for part, saved in pieces:
        wanted, there = tensor.spans(part), tensor.spans(saved.part)
        stride = sum(map(len, there)) * tensor.inner
        before, row = 0, []
        for want, have in zip(wanted, there, strict=True):
            start = (before + want.start - have.start) * tensor.inner
            row.append(_Segment(saved, start, stride, len(want) * tensor.inner))
            before += len(have)
        found.append(row)
    # Block by block, and in a block piece by piece.
    joined = [segment for block in zip(*found, strict=True) for segment in block]
    return [segment for segment in joined if segment.length]


def _row_by_row(segments: list[_Segment], rows: int) -> Iterator[memoryview]:
    buffer = np.empty(CHUNK, np.uint8)
    for row in range(rows):
        for segment in segments:
            first = segment.start + row * segment.stride
            for start in range(0, segment.length, CHUNK):
                part = buffer[: min(CHUNK, segment.length - start)]
                _fill(segment.saved, first + start, part)
                yield part.data


def _rows_together(
    segments: list[_Segment], rows: int, width: int, most: int
) -> Iterator[memoryview]:
    buffer = np.empty((min(rows, most), width), np.uint8)
    for first in range(0, rows, most):
        part = buffer[: rows - first]
        column = 0
        for segment in segments:
            into = part[:, column : column + segment.length]
            _read_rows(segment, first, into)
            column += segment.length
        yield part.data.cast("B")


def _read_rows(segment: _Segment, first: int, into: Any) -> None:
    """Fill the rows of `into` with the segment's, from row `first` on."""
    count, stride, length = len(into), segment.stride, segment.length
    start = segment.start + first * stride
    if _PAGE <= length < stride:
        line = np.empty(length, np.uint8)
        for row in range(count):
            _fill(segment.saved, start + row * stride, line)
            into[row] = line
        return
    # The last row ends where the segment does: what follows may be another file's end.
    span = np.empty(count * stride, np.uint8)
    _fill(segment.saved, start, span[: (count - 1) * stride + length])
    into[:] = span.reshape(count, stride)[:, :length]


def _fill(saved: Saved, start: int, into: Any) -> None:
    """Fill `into` with the bytes from `start`, counted from the tensor's first."""
    view = memoryview(into)
    done = 0
    while done < len(view):
        got = os.preadv(saved.file, [view[done:]], saved.offset + start + done)
        if not got:
            raise InstanceError(
                f"{saved.path}: found its end while it was read, expected "
                f"{len(view) - done} more bytes: it was cut short meanwhile; keep the "
                "checkpoint as it is until the recovery is done"
            )
        done += got
