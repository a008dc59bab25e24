"""What AMP, Alpa and Galvatron see of a mixed cluster: M x N equal GPUs.

Machines are cut into equal virtual nodes, of as many GPUs as divide all of them, and
every GPU is as fast as the average of all (section 3 of Metis: they take an average of
the computing power). Memory and links are the real ones: what plans need and cost is
judged on the real cluster anyway.
"""

from collections.abc import Sequence
from functools import lru_cache
from itertools import accumulate
from math import gcd

from ._metis_costs import LineCost, Row, Share


class Grid:
    """Equal virtual nodes, and times on averaged GPUs."""

    def __init__(self, line: LineCost) -> None:
        self.line = line
        counts = [node.count for node in line.cost.nodes]
        self.width = gcd(*counts)
        # The machine of each virtual node, in the instance's order.
        self.nodes = [
            i for i, count in enumerate(counts) for _ in range(count // self.width)
        ]
        # lru_cache on bound methods of this object only: it dies with the object.
        self._prefix = lru_cache(None)(self._averaged)

    @property
    def gpus(self) -> int:
        """GPUs of all virtual nodes."""
        return len(self.nodes) * self.width

    @property
    def degrees(self) -> list[int]:
        """TP degrees inside a virtual node: 1, 2, 4, ... and all of its GPUs."""
        powers = [1 << i for i in range(self.width.bit_length())]
        return sorted({t for t in (*powers, self.width) if self.width % t == 0})

    def known(self, t: int, samples: int) -> bool:
        """Whether times of `t` GPUs and `samples` are known on every machine."""
        cost = self.line.cost
        return all(cost.table.measured(name, t, samples) for name in cost.names)

    def time_us(self, t: int, samples: int, first: int, last: int) -> int:
        """Time of a run of layers on averaged GPUs, the head's included."""
        sums = self._prefix(t, samples)
        return sums[last] - sums[first]

    def _averaged(self, t: int, samples: int) -> list[int]:
        """Sums of layer times before each layer: the mean speed, by GPUs."""
        cost = self.line.cost
        gpus = [node.count for node in cost.nodes]
        rows = []
        for node in range(len(gpus)):
            name = cost.names[node]
            row = list(cost.table.layer_us(name, t, samples))
            row[-1] += cost.head_us(node, t, samples)
            rows.append(row)
        each = []
        for times in zip(*rows, strict=True):
            speed = sum(n / max(us, 1) for n, us in zip(gpus, times, strict=True))
            each.append(-int(-sum(gpus) // speed))
        return list(accumulate(each, initial=0))


def replicas(machines: Sequence[int], t: int, b: int) -> Row:
    """Replicas of degree `t` on these machines, with equal shares of `b` samples."""
    return Row(Share(node, t, b // len(machines)) for node in machines)
