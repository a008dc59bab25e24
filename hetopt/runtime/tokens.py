"""Tokens of the global batch, by the step and the sample: the same under every plan.

The windows of a sequence that a corpus has are read once each in a random order, epoch
by epoch; documents lie packed in them, without a gap.
"""

from collections.abc import Iterable
from functools import lru_cache
from pathlib import Path

import numpy as np

from ..errors import InstanceError
from .corpora import Numbers, opened
from .jobs import Job

SYNTHETIC = "synthetic"


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
                raise InstanceError.at(
                    data,
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
        rng = np.random.default_rng([self._seed, step, sample, *self._stream])
        first, by = rng.integers(self._vocabulary), rng.integers(1, 5)
        return (first + by * np.arange(self._length + 1)) % self._vocabulary


@lru_cache(maxsize=2)
def _shuffle(seed: int, epoch: int, windows: int) -> Numbers:
    return np.random.default_rng([seed, epoch]).permutation(windows)
