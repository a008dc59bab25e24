"""Parts that rules of layer partition share: ordered stages, times and memory of runs.

A rule works on positions 0..P-1, each with a stage of the data, and on the numbers of
layers there.
"""

from bisect import bisect_right
from collections.abc import Sequence
from itertools import accumulate, pairwise

from ..errors import NoPlan
from ..plans import Partition
from ..problems.layer_partition import Data


class Chain:
    """Stages of a problem in an order."""

    def __init__(self, data: Data, order: Sequence[int] | None = None) -> None:
        """Take the stages in `order`; by default in that of the data."""
        self.data = data
        self.order = list(range(len(data.stages)) if order is None else order)
        self.stages = [data.stages[s] for s in self.order]
        self.layers, self.count = len(data.layer_mib), len(self.stages)
        self.time = [_sums(stage.layer_us) for stage in self.stages]
        self.need = []
        for j, stage in enumerate(self.stages):
            once, each = data.needs(stage)
            held = min(data.micro_batches, self.count - j)
            needs = [m + held * a for m, a in zip(once, each, strict=True)]
            self.need.append(_sums(needs))
        #: Layers a us of a stage that had the whole model.
        self.speed = [1 / max(1, times[-1]) for times in self.time]

    @property
    def load(self) -> list[int]:
        """Times of the layers, summed over the stages."""
        return [
            sum(row) for row in zip(*(x.layer_us for x in self.stages), strict=True)
        ]

    def longest(self, j: int, first: int) -> int:
        """Return one past the last layer that fits on position `j` from `first` on."""
        need = self.need[j]
        limit = need[first] + self.stages[j].memory_mib
        return bisect_right(need, limit, lo=first) - 1

    def first_short(self, cuts: Sequence[int]) -> int | None:
        """Return the first position whose layers do not fit; None where all do."""
        for j, (first, last) in enumerate(pairwise(cuts)):
            if last > self.longest(j, first):
                return j
        return None

    def cost_us(self, layers: Sequence[int]) -> int:
        """Return the objective of numbers of layers, memory apart."""
        cuts = [*accumulate(layers, initial=0)]
        times = [
            self.time[j][last]
            - self.time[j][first]
            + (self.stages[j].hop_us if j < self.count - 1 else 0)
            for j, (first, last) in enumerate(pairwise(cuts))
        ]
        if self.data.objective == "bottleneck":
            return max(times)
        return sum(times) + (self.data.micro_batches - 1) * max(times)

    def plan(self, cuts: Sequence[int], name: str) -> Partition:
        """Return boundaries by a rule as a plan; `NoPlan` where layers do not fit."""
        if (j := self.first_short(cuts)) is not None:
            raise NoPlan(
                f"{name}: {cuts[j + 1] - cuts[j]} layers do not fit on stage "
                f"{self.stages[j].name!r}"
            )
        return Partition(
            order=tuple(stage.name for stage in self.stages),
            layers=tuple(last - first for first, last in pairwise(cuts)),
        )


def _sums(amounts: Sequence[int]) -> list[int]:
    return [*accumulate(amounts, initial=0)]
