"""Runs of consecutive layers, by number.

Where all layers are equal, runs of one length differ only in whether they hold the
first layer and the last: such runs share a number, which leaves a few dozen of them.

Parts of a run that fits into memory do, too: less is held and less is kept. So for each
first layer there is a longest run, and it does not grow shorter as the first layer
moves on by one more than it does. The stage that ends a pipeline also holds the head,
and the one that begins it the embedding.
"""

from bisect import bisect_left
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from ..costs import CostTable, Position
from .classes import Whole

Flags = npt.NDArray[np.bool_]


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
    def ends(self) -> Flags:
        """Tell which runs hold the last layer."""
        return np.asarray(self.spans[:, 1] == self.layers)

    @property
    def lengths(self) -> Whole:
        """Return how many layers runs have."""
        found: Whole = self.spans[:, 1] - self.spans[:, 0]
        return found

    def anywhere(self, fits: Flags) -> Flags:
        """Return what fits, where a run in the middle stands for the first one, too.

        Methods that look at equal layers in any order ask for it. Interleaved, a stage
        between two others keeps more micro-batches than the first of two stages.
        """
        found = fits.copy()
        if self.equal:
            found[self.number[1, 2 : self.layers]] |= fits[
                self.number[0, 1 : self.layers - 1]
            ]
        return found

    def longer(self, layers: int) -> tuple[Whole, Whole]:
        """Return runs before the last layer that have fewer layers, and longer ones.

        These begin alike and have so many, where there are such.
        """
        short = np.flatnonzero((self.lengths < layers) & ~self.ends)
        first = self.spans[short, 0]
        there = first + layers < self.layers
        return short[there], self.number[first[there], first[there] + layers]


def fitting(
    table: CostTable,
    runs: Runs,
    node: str,
    group: tuple[int, int],
    flight: int,
    holders: Sequence[int] | int | None = None,
    check: Callable[[], None] = lambda: None,
) -> Flags:
    """Tell for every run whether it fits on GPUs of a node at the least.

    `group` is a tensor-parallel degree and the samples of a replica; a stage keeps
    `flight` micro-batches, the last one as well. ZeRO divides among `holders`, as for
    `stage_mib`. `check` is called now and then, and may raise.

    Interleaved, a pipeline has as many micro-batches as stages, or more, and a stage as
    many layers as it has runs: `flight - 1` stages follow, and it keeps what that says
    (`hetopt/exact/README.md` has why fewer stages never ask for more).
    """
    room = table.memory_mib(node)
    v = table.workload.costs.schedule.interleave

    def fits(first: int, last: int) -> bool:
        j = int(first > 0)
        behind = 1 if last == runs.layers else max(2, flight)
        place = Position(flight if v == 1 else behind + j, behind + j, j)
        need = table.stage_mib(node, range(first, last), group, place, holders)
        return sum(need.values()) <= room

    able = _equal(runs, fits) if runs.equal else _each(runs, fits, check)
    return able & (runs.lengths >= v)


def _equal(runs: Runs, fits: Callable[[int, int], bool]) -> Flags:
    """Look for the longest run of each sort: first, middle, last, all layers."""
    layers, found = runs.layers, np.zeros(len(runs), np.bool_)
    sorts: list[tuple[int, Callable[[int], tuple[int, int]]]] = [
        (layers - 1, lambda x: (0, x)),
        (layers - 2, lambda x: (1, 1 + x)),
        (layers - 1, lambda x: (layers - x, layers)),
    ]
    for most, span in sorts:
        longest = bisect_left(
            range(1, most + 1), True, key=lambda x: not fits(*span(x))
        )
        for length in range(1, longest + 1):
            found[runs.number[span(length)]] = True
    found[runs.number[0, layers]] = fits(0, layers)
    return found


def _each(
    runs: Runs, fits: Callable[[int, int], bool], check: Callable[[], None]
) -> Flags:
    """Look for the longest run from each layer on, from the end of the last one."""
    layers, found = runs.layers, np.zeros(len(runs), np.bool_)
    end = 0
    for first in range(layers):
        check()
        # A run from layer 0 has the embedding: it says nothing of those that follow.
        end = first if first <= 1 else max(first, end)
        while end + 1 < layers and fits(first, end + 1):
            end += 1
        found[runs.number[first, first + 1 : end + 1]] = True
        found[runs.number[first, layers]] = fits(first, layers)
    return found
