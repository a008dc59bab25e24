"""Files of tokens: one long row of whole numbers, read where they lie.

    NAME.npy             one axis of whole numbers
    NAME.bin + NAME.idx  documents of Megatron-LM (its `IndexedDataset`, version 1)
    a folder             a Dataset that Hugging Face's `datasets` saved, with a column
                         `input_ids`
    any other            raw little-endian numbers, two bytes each where the vocabulary
                         has at most 65,536 words, else four

Documents follow each other as they lie there.
"""

from bisect import bisect_right
from collections.abc import Sequence
from importlib import import_module
from itertools import accumulate
from pathlib import Path
from typing import Any, Protocol, TypeAlias

import numpy as np
from numpy.typing import NDArray

from ..errors import BackendMissing, InstanceError

Numbers: TypeAlias = NDArray[np.integer[Any]]

_MAGIC, _VERSION = b"MMIDIDX\x00\x00", 1
#: Numbers of kinds of tokens (Megatron-LM, core/datasets/indexed_dataset.py).
_KINDS: dict[int, type[np.integer[Any]]] = {
    1: np.uint8,
    2: np.int8,
    3: np.int16,
    4: np.int32,
    5: np.int64,
    8: np.uint16,
}
_COLUMN = "input_ids"


class Corpus(Protocol):
    """The tokens of a file, one after another."""

    def __len__(self) -> int: ...

    def __getitem__(self, place: slice, /) -> Numbers: ...


class _Joined:
    """Parts of a corpus, one after another."""

    def __init__(self, parts: Sequence[Numbers]) -> None:
        self._parts = [part for part in parts if len(part)]
        self._starts = list(accumulate(map(len, self._parts), initial=0))

    def __len__(self) -> int:
        return self._starts[-1]

    def __getitem__(self, place: slice, /) -> Numbers:
        first, stop, _ = place.indices(len(self))
        found, number = list[Numbers](), bisect_right(self._starts, first) - 1
        while first < stop:
            start = self._starts[number]
            part = self._parts[number][first - start : stop - start]
            found.append(part)
            first, number = first + len(part), number + 1
        return np.concatenate(found)


def opened(path: Path, vocabulary: int) -> Corpus:
    """Return the tokens of a file or folder, for a vocabulary of so many words."""
    kind = np.uint16 if vocabulary <= 2**16 else np.uint32
    index = path.with_suffix(".idx")
    try:
        if path.is_dir():
            return _dataset(path)
        if path.suffix in (".bin", ".idx", "") and index.is_file():
            return _indexed(index)
        if path.suffix == ".npy":
            found: Numbers = np.load(path, mmap_mode="r", allow_pickle=False)
        else:
            found = np.memmap(path, dtype=kind, mode="r")
    except (OSError, ValueError) as error:
        raise InstanceError.at(
            path,
            None,
            f"cannot be read: {error}; expected tokens as "
            f"{np.dtype(kind).itemsize}-byte numbers, as .npy, as .bin beside its "
            ".idx, as a folder of `datasets`, or 'synthetic'",
        ) from None
    if found.ndim != 1 or found.dtype.kind not in "iu":
        raise InstanceError.at(
            path,
            None,
            f"found {found.ndim} axes of {found.dtype}, expected one of whole numbers",
        )
    return found


def _indexed(index: Path) -> Corpus:
    """The tokens of a `.bin`, of whose kind and number its `.idx` tells."""
    with index.open("rb") as file:
        head = file.read(len(_MAGIC) + 8 + 1 + 8 + 8)
        magic, rest = head[: len(_MAGIC)], head[len(_MAGIC) :]
        if magic != _MAGIC or len(rest) < 25:
            raise InstanceError.at(
                index,
                None,
                f"found a file that begins with {magic!r}, expected an index of "
                "Megatron-LM; write it with its preprocess_data.py",
            )
        version = int.from_bytes(rest[:8], "little")
        if version != _VERSION:
            raise InstanceError.at(
                index, None, f"found version {version}, expected {_VERSION}"
            )
        kind = _KINDS.get(rest[8])
        if kind is None:
            raise InstanceError.at(
                index,
                None,
                f"found tokens of kind {rest[8]}, expected whole numbers: one of "
                f"{', '.join(map(str, _KINDS))}",
            )
        sequences = int.from_bytes(rest[9:17], "little")
        lengths = np.fromfile(file, dtype="<i4", count=sequences)
    data = index.with_suffix(".bin")
    found = np.memmap(data, dtype=np.dtype(kind).newbyteorder("<"), mode="r")
    told = int(lengths.sum())
    if len(lengths) != sequences or told != len(found):
        raise InstanceError.at(
            data,
            None,
            f"found {len(found)} tokens, expected the {told} of {sequences} sequences "
            f"that {index.name} lists; copy both files anew",
        )
    return found


def _dataset(folder: Path) -> Corpus:
    """The tokens of a dataset, in the order of its rows; they stay on disk."""
    try:
        datasets: Any = import_module("datasets")
    except ImportError:
        raise BackendMissing("datasets", "datasets") from None
    try:
        found = datasets.load_from_disk(str(folder))
    except FileNotFoundError as error:
        raise InstanceError.at(
            folder,
            None,
            f"cannot be read: {error}; expected a folder that `datasets` saved "
            "(Dataset.save_to_disk)",
        ) from None
    if isinstance(found, dict):
        splits = ", ".join(map(str, found))
        raise InstanceError.at(
            folder, None, f"found the splits {splits}, expected one of them; name it"
        )
    if _COLUMN not in found.column_names:
        raise InstanceError.at(
            folder,
            None,
            f"found the columns {', '.join(found.column_names)}, expected "
            f"{_COLUMN}: tokenise it first",
        )
    if found._indices is not None:
        raise InstanceError.at(
            folder,
            None,
            "found rows that were shuffled or selected, expected rows as they lie on "
            "disk; save it after flatten_indices()",
        )
    try:
        chunks = found.data.column(_COLUMN).chunks
        parts = [chunk.flatten().to_numpy() for chunk in chunks]
    except (AttributeError, ValueError) as error:
        raise InstanceError.at(
            folder, _COLUMN, f"expected lists of whole numbers: {error}"
        ) from None
    if any(part.dtype.kind not in "iu" for part in parts):
        raise InstanceError.at(
            folder,
            _COLUMN,
            f"found {parts[0].dtype}, expected lists of whole numbers",
        )
    return _Joined(parts)
