"""Tokens of the global batch, by the step and the sample: the same under every plan.

The windows of a sequence that a corpus has are read once each in a random order, epoch
by epoch; documents lie packed in them, without a gap.

Files have one long row of whole numbers, read where they lie:

    NAME.npy             one axis of whole numbers
    NAME.bin + NAME.idx  documents of Megatron-LM (its `IndexedDataset`, version 1)
    any other            raw little-endian numbers, two bytes each where the vocabulary
                         has at most 65,536 words, else four

Documents follow each other as they lie there.
"""

from collections.abc import Iterable
from functools import lru_cache
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from ..errors import InstanceError
from .jobs import Job

SYNTHETIC = "synthetic"
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


class Tokens:
    """Samples of a run; each has one token more than a sequence, the last target.

    They are those of `--data`, or the ones `held_out` from training, of `--eval-data`.
    """

    def __init__(self, job: Job, global_batch: int, *, held_out: bool = False) -> None:
        settings = job.settings
        data = (settings.eval_data or SYNTHETIC) if held_out else settings.data
        self._seed, self._batch = settings.seed, global_batch
        self._vocabulary, self._length = job.decoder.vocabulary, job.sequence_length
        # Synthetic samples of both kinds are drawn from streams of their own.
        self._stream = (1,) if held_out else ()
        self._tokens: Numbers | None = None
        if data != SYNTHETIC:
            self._tokens = read = opened(Path(data), self._vocabulary)
            self._windows = (len(read) - 1) // self._length
            if self._windows < 1:
                raise InstanceError.of(
                    data,
                    f"found {len(read)} tokens, expected more than the "
                    f"sequence length of {self._length}; give more",
                )

    def rows(self, step: int, samples: Iterable[int]) -> Numbers:
        """Return whole numbers (samples, length + 1) of a step counted from 1."""
        return np.stack([self._row(step, sample) for sample in samples])

    def _row(self, step: int, sample: int) -> Numbers:
        if self._tokens is None:
            return self._counting(step, sample)
        epoch, place = divmod((step - 1) * self._batch + sample, self._windows)
        first = int(_shuffle(self._seed, epoch, self._windows)[place]) * self._length
        row = self._tokens[first : first + self._length + 1].astype(np.int64)
        if (largest := int(row.max())) >= self._vocabulary:
            raise InstanceError(
                f"data: found token {largest}, expected numbers below the vocabulary "
                f"of {self._vocabulary}; is it of another tokeniser, or of another "
                "width?"
            )
        return row

    def _counting(self, step: int, sample: int) -> Numbers:
        """Return counts in steps of 1 to 4 from a random start: easily learnt."""
        rng = np.random.default_rng([self._seed, step, sample, *self._stream])
        first, by = rng.integers(self._vocabulary), rng.integers(1, 5)
        return (first + by * np.arange(self._length + 1)) % self._vocabulary


@lru_cache(maxsize=2)
def _shuffle(seed: int, epoch: int, windows: int) -> Numbers:
    return np.random.default_rng([seed, epoch]).permutation(windows)


def opened(path: Path, vocabulary: int) -> Numbers:
    """Return the tokens of a file, for a vocabulary of so many words."""
    kind = np.uint16 if vocabulary <= 2**16 else np.uint32
    index = path.with_suffix(".idx")
    try:
        if path.suffix in (".bin", ".idx", "") and index.is_file():
            return _indexed(index)
        if path.suffix == ".npy":
            found: Numbers = np.load(path, mmap_mode="r", allow_pickle=False)
        else:
            found = np.memmap(path, dtype=kind, mode="r")
    except (OSError, ValueError) as error:
        raise InstanceError.of(
            path,
            f"cannot be read: {error}; expected tokens as "
            f"{np.dtype(kind).itemsize}-byte numbers, as .npy, as .bin beside its "
            ".idx, or 'synthetic'",
        ) from None
    if found.ndim != 1 or found.dtype.kind not in "iu":
        raise InstanceError.of(
            path,
            f"found {found.ndim} axes of {found.dtype}, expected one of whole numbers",
        )
    return found


def _indexed(index: Path) -> Numbers:
    """The tokens of a `.bin`, of whose kind and number its `.idx` tells."""
    with index.open("rb") as file:
        head = file.read(len(_MAGIC) + 8 + 1 + 8 + 8)
        magic, rest = head[: len(_MAGIC)], head[len(_MAGIC) :]
        if magic != _MAGIC or len(rest) < 25:
            raise InstanceError.of(
                index,
                f"found a file that begins with {magic!r}, expected an index of "
                "Megatron-LM; write it with its preprocess_data.py",
            )
        version = int.from_bytes(rest[:8], "little")
        if version != _VERSION:
            raise InstanceError.of(
                index, f"found version {version}, expected {_VERSION}"
            )
        kind = _KINDS.get(rest[8])
        if kind is None:
            raise InstanceError.of(
                index,
                f"found tokens of kind {rest[8]}, expected whole numbers: one of "
                f"{', '.join(map(str, _KINDS))}",
            )
        sequences = int.from_bytes(rest[9:17], "little")
        lengths = np.fromfile(file, dtype="<i4", count=sequences)
    data = index.with_suffix(".bin")
    found = np.memmap(data, dtype=np.dtype(kind).newbyteorder("<"), mode="r")
    told = int(lengths.sum())
    if len(lengths) != sequences or told != len(found):
        raise InstanceError.of(
            data,
            f"found {len(found)} tokens, expected the {told} of {sequences} sequences "
            f"that {index.name} lists; copy both files anew",
        )
    return found
