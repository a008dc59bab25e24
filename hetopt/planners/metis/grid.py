"""AMP, Alpa and Galvatron see a mixed cluster as M x N equal GPUs.

Machines are cut into equal virtual nodes, of as many GPUs as divide all of them, and
every GPU is as fast as the average of all (section 3 of Metis: they take an average of
the computing power). Memory and links are the real ones: what plans need and cost is
judged on the real cluster anyway.
"""

from collections import Counter
from collections.abc import Sequence
from fractions import Fraction
from itertools import accumulate
from math import ceil, gcd

from ...caching import cached_method
from ...schema import Instance
from .costs import LineCost, Row, Share


class Grid:
    """Equal virtual nodes, and times on averaged GPUs."""

    def __init__(self, line: LineCost) -> None:
        self.line = line
        self.averaged = Averaged(line.instance, line.cost.deadline)
        counts = [node.count for node in line.cost.nodes]
        self.width = gcd(*counts)
        # The machine of each virtual node, in the instance's order.
        self.nodes = [
            i for i, count in enumerate(counts) for _ in range(count // self.width)
        ]

    @property
    def gpus(self) -> int:
        """Return the GPUs of all virtual nodes."""
        return len(self.nodes) * self.width

    @property
    def degrees(self) -> list[int]:
        """TP degrees inside a virtual node: 1, 2, 4, ... and all of its GPUs."""
        powers = [1 << i for i in range(self.width.bit_length())]
        return sorted({t for t in (*powers, self.width) if self.width % t == 0})

    def known(self, t: int, samples: int) -> bool:
        """Return whether times of `t` GPUs and `samples` are known on every machine."""
        cost = self.line.cost
        speakers = dict(zip(cost.kind, cost.names, strict=True)).values()
        return all(cost.table.usable(name, t, samples) for name in speakers)

    def time_us(self, t: int, samples: int, first: int, last: int) -> int:
        """Return the time of a run of layers on averaged GPUs, the head's included."""
        return self.averaged.span_us(Share(0, t, samples), first, last)


class Averaged(LineCost):
    """Iteration times if all GPUs computed at the mean speed; links are the real ones.

    The optimiser is as slow as on the slowest GPU.
    """

    def __init__(self, instance: Instance, deadline: float | None = None) -> None:
        super().__init__(instance, deadline)
        gpus = Counter[int]()
        for kind, node in zip(self.cost.kind, self.cost.nodes, strict=True):
            gpus[kind] += node.count
        self._gpus = list(gpus.values())  # of each kind of nodes
        numbers = {kind: i for i, kind in enumerate(self.cost.kind)}
        self._speakers = [numbers[kind] for kind in gpus]

    def span_us(self, share: Share, first: int, last: int) -> int:
        """Return the time of a run of layers on one replica, the head's included."""
        sums = self._sums(share.t, share.samples)[0]
        return sums[last] - sums[first]

    def backward_span_us(self, share: Share, first: int, last: int) -> int:
        """Return the time of its backward passes alone."""
        sums = self._sums(share.t, share.samples)[1]
        return sums[last] - sums[first]

    @cached_method
    def _sums(self, t: int, samples: int) -> tuple[list[int], list[int]]:
        """Return sums of times before each layer, with and without forward passes."""
        rows = [
            [
                [part(Share(node, t, samples), i, i + 1) for i in range(self.layers)]
                for node in self._speakers
            ]
            for part in (super().span_us, super().backward_span_us)
        ]
        each, backward = ([self._mean(us) for us in zip(*r, strict=True)] for r in rows)
        return [*accumulate(each, initial=0)], [*accumulate(backward, initial=0)]

    def _mean(self, times: Sequence[int]) -> int:
        """The time at the mean speed of all GPUs; `times` are by kind of node."""
        pairs = zip(self._gpus, times, strict=True)
        speed = sum(Fraction(n, max(us, 1)) for n, us in pairs)
        return ceil(sum(self._gpus) / speed)


def replicas(machines: Sequence[int], t: int, b: int) -> Row:
    """Replicas of degree `t` on these machines, with equal shares of `b` samples."""
    return Row(Share(node, t, b // len(machines)) for node in machines)
