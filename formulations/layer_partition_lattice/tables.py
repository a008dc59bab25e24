"""Tables of layer partition by a lattice: nodes, and runs between them.

A node says how many stages of each kind stand in front; kinds are stages that are equal
but for the name, and in a given order every stage is its own. Within a time of the
slowest stage, the stages of a node hold the layers 0 .. furthest - 1 at most, and those
behind nearest .. L - 1 at most: a run that ends later, or begins earlier, is possible
from no fewer layers in front, or to no more, than another one is.
"""

from collections.abc import Iterator, Sequence
from fractions import Fraction
from functools import cached_property
from itertools import islice
from math import ceil, prod
from typing import NamedTuple

import numpy as np
from hetopt.errors import Unsupported
from hetopt.modelling import look
from hetopt.problems.layer_partition import Data
from numpy.typing import NDArray

from .._partition import kinds, needs

MOST_NODES = 200_000
MOST_LOOKED = 400_000  # runs

Array = NDArray[np.int64]
At = tuple[int, int]  # a node, and the layers in front


class Move(NamedTuple):
    """A stage of one kind after each of the nodes `tails`: then they are `heads`."""

    stage: int
    tails: Array
    heads: Array


class Run(NamedTuple):
    """Stage `stage` holds the layers a .. b - 1 behind the stages of a node."""

    node: int
    stage: int
    a: int
    b: int


class Step(NamedTuple):
    """A run at its position: its ends, its time, and how much dearer than the cheapest way, us."""

    position: int
    tail: At
    head: At
    time: int
    extra: int


class Lattice:
    """Nodes by the number of stages in front, and what stages hold at each."""

    def __init__(self, data: Data) -> None:
        self.data, self.L, self.P = data, len(data.layer_mib), len(data.stages)
        self.members = kinds(data)
        counts = [len(stages) for stages in self.members]
        given = data.order == "given"
        self.radix = [1] * self.P if given else [prod(n + 1 for n in counts[:k]) for k in range(len(counts))]
        self.last = self.P if given else prod(n + 1 for n in counts) - 1
        if self.last >= MOST_NODES:
            raise Unsupported(
                f"{self.last + 1} choices of stages may stand in front, expected at most {MOST_NODES}: "
                "use layer_partition_cuts"
            )
        self.step = {stages[0]: radix for stages, radix in zip(self.members, self.radix, strict=True)}
        self.prefix = [_sums(stage.layer_us) for stage in data.stages]
        self.need = [[_sums(row) for row in rows] for rows in needs(data)]

    @cached_property
    def moves(self) -> list[list[Move]]:
        """Return by position what may stand there, and behind which nodes."""
        if self.data.order == "given":
            return [[Move(j, np.array([j]), np.array([j + 1]))] for j in range(self.P)]
        nodes = np.arange(self.last + 1)
        digits = [
            nodes // radix % (len(stages) + 1) for radix, stages in zip(self.radix, self.members, strict=True)
        ]
        level = np.sum(digits, axis=0)
        found = []
        for j in range(self.P):
            here = np.flatnonzero(level == j)
            free = [here[digit[here] < len(m)] for digit, m in zip(digits, self.members, strict=True)]
            found.append(
                [
                    Move(stages[0], tails, tails + radix)
                    for stages, tails, radix in zip(self.members, free, self.radix, strict=True)
                    if len(tails)
                ]
            )
        return found

    def after(self, node: int, stage: int) -> int:
        """Return the node behind one more stage of this kind, named by its first."""
        return node + self.step[stage]

    @cached_property
    def longest(self) -> int:
        """Return a time in us that no stage exceeds."""
        return max(sum(stage.layer_us) + stage.hop_us for stage in self.data.stages)

    def hop(self, stage: int, position: int) -> int:
        """Return the time in us of sending on; nothing from the last position."""
        return self.data.stages[stage].hop_us if position + 1 < self.P else 0

    def time(self, run: Run, position: int) -> int:
        """Return the time in us of a run at a position."""
        layers = self.prefix[run.stage]
        return int(layers[run.b] - layers[run.a]) + self.hop(run.stage, position)

    def ends(self, stage: int, position: int, slow: int) -> Array:
        """The end of the longest run from each layer, within `slow` us and the memory."""
        left = slow - self.hop(stage, position)
        if left < 0:
            return np.arange(self.L + 1)
        time, need = self.prefix[stage], self.need[stage][position]
        by_time = np.searchsorted(time, time + left, side="right")
        by_memory = np.searchsorted(need, need + self.data.stages[stage].memory_mib, side="right")
        return np.minimum(by_time, by_memory) - 1

    def furthest(self, slow: int) -> Array:
        """Return by node the most layers that may be in front; -1 where none may."""
        found = np.full(self.last + 1, -1, dtype=np.int64)
        found[0] = 0
        for j, moves in enumerate(self.moves):
            for stage, tails, heads in moves:
                starts, ends = self._some(stage, j, slow)
                # From fewer layers in front a run may be possible that is not from more.
                reach = np.concatenate([[-1], ends])[np.searchsorted(starts, found[tails], side="right")]
                found[heads] = np.maximum(found[heads], np.minimum(reach, self.L - (self.P - 1 - j)))
        return found

    def nearest(self, slow: int) -> Array:
        """Return by node the least layers that may be in front; L + 1 where none may."""
        never = self.L + 1
        found = np.full(self.last + 1, never, dtype=np.int64)
        found[self.last] = self.L
        for j in reversed(range(self.P)):
            for stage, tails, heads in self.moves[j]:
                starts, ends = self._some(stage, j, slow)
                reach = np.concatenate([starts, [never]])[np.searchsorted(ends, found[heads])]
                found[tails] = np.minimum(found[tails], np.maximum(reach, j))
        return found

    def _some(self, stage: int, position: int, slow: int) -> tuple[Array, Array]:
        """Layers from which a stage has a run, and the end of the longest from each."""
        ends = self.ends(stage, position, slow)
        starts = np.flatnonzero(ends > np.arange(self.L + 1))
        return starts, ends[starts]

    def least_slowest(self) -> int | None:
        """Return a time in us that every slowest stage takes; None where no plan fits."""
        low, high = 0, self.longest
        if self.L < self.P or self.furthest(high)[self.last] < self.L:
            return None
        while low < high:
            middle = (low + high) // 2
            reached = self.furthest(middle)[self.last] == self.L
            low, high = (low, middle) if reached else (middle + 1, high)
        return low

    def runs(self, slow: int) -> Iterator[tuple[int, Run]]:
        """Runs of plans whose stages take at most `slow` us, with their positions."""
        most, least = self.furthest(slow), self.nearest(slow)
        for j, moves in enumerate(self.moves):
            for stage, tails, heads in moves:
                ends = self.ends(stage, j, slow)
                open_ = (least[tails] <= most[tails]) & (least[heads] <= most[heads])
                look()
                for tail, head in zip(tails[open_].tolist(), heads[open_].tolist(), strict=True):
                    for a in range(int(least[tail]), int(most[tail]) + 1):
                        for b in range(max(a + 1, int(least[head])), min(int(ends[a]), int(most[head])) + 1):
                            yield j, Run(tail, stage, a, b)

    def least_sum(self, slow: int) -> int:
        """Return all stages' least total if none takes more than `slow` us.

        Layers are weighed by what all stages take for them; a stage does a unit of that at
        no less than its best layer, and no more than its heaviest run; hops but one.
        """
        weight = [sum(stage.layer_us[l] for stage in self.data.stages) for l in range(self.L)]
        prefix, left = _sums(weight), sum(weight)
        offers: list[tuple[Fraction, int]] = []
        for s, stage in enumerate(self.data.stages):
            # The last position has the most room, and the hop is not paid there.
            ends = self.ends(s, self.P - 1, slow)
            ratios = (Fraction(t, w) for t, w in zip(stage.layer_us, weight, strict=True) if w)
            offers.append((min(ratios, default=Fraction(0)), int((prefix[ends] - prefix).max())))
        found = Fraction(0)
        for ratio, most in sorted(offers):
            took = min(left, most)
            left, found = left - took, found + ratio * took
        hops = [stage.hop_us for stage in self.data.stages]
        return ceil(found) + sum(hops) - max(hops)


class Paths:
    """Runs within `slow` us of the slowest stage, and the least sums of times along them.

    `behind[at]` is the least sum up to a node and layer, `ahead[at]` that from there on.
    `total` is that of a whole path, -1 where there is none.
    """

    def __init__(self, lattice: Lattice, slow: int) -> None:
        found = {x: j for j, x in islice(lattice.runs(slow), MOST_LOOKED + 1)}
        if len(found) > MOST_LOOKED:
            raise Unsupported(
                f"more than {MOST_LOOKED} runs of layers may be as good as a plan that is built at once: "
                "use layer_partition_cuts"
            )
        start, end = (0, 0), (lattice.last, lattice.L)
        self.slow = slow
        self.position = found
        self.time = {x: lattice.time(x, j) for x, j in found.items()}
        self.head = {x: (lattice.after(x.node, x.stage), x.b) for x in found}
        self.behind: dict[At, int] = {start: 0}
        self.ahead: dict[At, int] = {end: 0}
        for x in found:  # by ascending position
            _lower(self.behind, (x.node, x.a), self.head[x], self.time[x])
        for x in reversed(found):
            _lower(self.ahead, self.head[x], (x.node, x.a), self.time[x])
        self.total = self.behind.get(end, -1)

    def worth(self, least: int, further: int, most: int | None) -> dict[Run, Step]:
        """Runs of plans whose sum, and `further` of their slowest times, may be at most `most`."""
        found = {}
        for x, time in self.time.items():
            tail, head = (x.node, x.a), self.head[x]
            if tail in self.behind and head in self.ahead:
                through = self.behind[tail] + time + self.ahead[head]
                if most is None or through + further * max(least, time) <= most:
                    extra = self.behind[tail] + time - self.behind[head]
                    found[x] = Step(self.position[x], tail, head, time, extra)
        return found


def _lower(sums: dict[At, int], before: At, after: At, time: int) -> None:
    """A sum at `after`, if there is one before."""
    if before in sums:
        total = sums[before] + time
        sums[after] = min(total, sums.get(after, total))


def _sums(amounts: Sequence[int]) -> Array:
    """Return the sums of the first 0, 1, 2, ... amounts."""
    return np.concatenate([[0], np.cumsum(np.array(amounts, dtype=np.int64))])
