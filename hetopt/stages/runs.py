"""Runs of consecutive layers, by number.

Where all layers are equal, runs of one length differ only in whether they hold the
first layer and the last: such runs share a number, which leaves a few dozen of them.
"""

from dataclasses import dataclass

import numpy as np

from .classes import Whole


@dataclass(frozen=True)
class Runs:
    """The runs of a model.

    `number[first, last]` is the number of the run of layers first to last - 1, or -1;
    `spans[run]` is the first layer and one past the last of one run of that number.
    """

    layers: int
    equal: bool
    number: Whole
    spans: Whole

    @classmethod
    def of(cls, layers: int, *, equal: bool) -> "Runs":
        """Number the runs of so many layers, `equal` ones by length and ends."""
        number = np.full((layers + 1, layers + 1), -1, np.int64)
        spans: list[tuple[int, int]] = []
        known: dict[tuple[int, ...], int] = {}
        for first in range(layers):
            for last in range(first + 1, layers + 1):
                key = (first, last)
                if equal:
                    key = (last - first, 2 * (first == 0) + (last == layers))
                if key not in known:
                    known[key] = len(spans)
                    spans.append((first, last))
                number[first, last] = known[key]
        found = np.array(spans, np.int64)
        number.flags.writeable = found.flags.writeable = False
        return cls(layers, equal, number, found)

    def __len__(self) -> int:
        return len(self.spans)

    @property
    def ends(self) -> np.ndarray[tuple[int, ...], np.dtype[np.bool_]]:
        """Tell which runs hold the last layer."""
        found: np.ndarray[tuple[int, ...], np.dtype[np.bool_]]
        found = self.spans[:, 1] == self.layers
        return found

    @property
    def lengths(self) -> Whole:
        """Return how many layers runs have."""
        found: Whole = self.spans[:, 1] - self.spans[:, 0]
        return found

    def longer(self, layers: int) -> tuple[Whole, Whole]:
        """Return runs before the last layer that have fewer layers, and longer ones.

        These begin alike and have so many, where there are such.
        """
        short = np.flatnonzero((self.lengths < layers) & ~self.ends)
        first = self.spans[short, 0]
        there = first + layers < self.layers
        long = self.number[first[there], first[there] + layers]
        return short[there], long
