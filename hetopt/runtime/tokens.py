"""Tokens of the global batch, by the step and the sample: the same under every plan.

A file is raw little-endian numbers, two bytes each where the vocabulary has at most
65,536 words and four otherwise, or a one-dimensional `.npy`. Its windows of a sequence
are read once each in a random order, epoch by epoch.
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


class Tokens:
    """Samples of a run; each has one token more than a sequence, the last target."""

    def __init__(self, job: Job, global_batch: int) -> None:
        self._seed, self._batch = job.settings.seed, global_batch
        self._vocabulary, self._length = job.decoder.vocabulary, job.sequence_length
        self._tokens: Numbers | None = None
        if job.settings.data != SYNTHETIC:
            self._tokens = read = _open(Path(job.settings.data), self._vocabulary)
            self._windows = (len(read) - 1) // self._length
            if self._windows < 1:
                raise InstanceError.at(
                    job.settings.data,
                    None,
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
        rng = np.random.default_rng([self._seed, step, sample])
        first, by = rng.integers(self._vocabulary), rng.integers(1, 5)
        return (first + by * np.arange(self._length + 1)) % self._vocabulary


def _open(path: Path, vocabulary: int) -> Numbers:
    kind = np.uint16 if vocabulary <= 2**16 else np.uint32
    try:
        if path.suffix == ".npy":
            found: Numbers = np.load(path, mmap_mode="r", allow_pickle=False)
        else:
            found = np.memmap(path, dtype=kind, mode="r")
    except (OSError, ValueError) as error:
        raise InstanceError.at(
            path,
            None,
            f"cannot be read: {error}; expected tokens as "
            f"{np.dtype(kind).itemsize}-byte numbers, or 'synthetic'",
        ) from None
    if found.ndim != 1 or found.dtype.kind not in "iu":
        raise InstanceError.at(
            path,
            None,
            f"found {found.ndim} axes of {found.dtype}, expected one of whole numbers",
        )
    return found


@lru_cache(maxsize=2)
def _shuffle(seed: int, epoch: int, windows: int) -> Numbers:
    return np.random.default_rng([seed, epoch]).permutation(windows)
