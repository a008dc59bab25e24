"""Sizes that a stage synchronises, and rates, in whole units and exactly.

A *unit* is the 65,536th part of what an average layer has its replicas exchange, in all
passes. The embedding goes with the first layer and the head with the last one: the same
replicas exchange them, and the average is of what they have, too. Experts that expert
parallelism divides are left out, as their rings are others.
"""

from dataclasses import dataclass
from fractions import Fraction
from itertools import accumulate
from math import ceil, floor

import numpy as np

from ..costs import CostTable
from ..schema import exact
from .classes import NodeClass, Whole
from .runs import Runs

UNIT = 1 << 16  # units of an average layer


@dataclass(frozen=True)
class SyncSizes:
    """Sizes of runs in units, and units that one GPU exchanges in a us.

    `low` and `high` are by run, rounded down and up. `inter` is over the fastest link
    between nodes, `intra[c]` over that in nodes of class c; None where there is no such
    link, or nothing to exchange.
    """

    low: Whole
    high: Whole
    inter: Fraction | None
    intra: tuple[Fraction | None, ...]

    @classmethod
    def of(
        cls, table: CostTable, runs: Runs, classes: tuple[NodeClass, ...]
    ) -> "SyncSizes":
        """Return what the runs of an instance exchange."""
        exchanged, costs = table.exchanged, table.workload.costs
        routed = table.divided(exchanged)
        own = [p - r for p, r in zip(exchanged.layers, routed, strict=True)]
        end = exchanged.end or 0
        own[0] += end
        own[-1] += end
        size = Fraction(UNIT * table.layers, sum(own) or 1)
        passes = costs.updates.sync_passes * costs.memory.gradient_bytes
        # Context-parallel parts of a group are replicas of their own, c times as slow.
        bytes_each = costs.split.context * passes / size if any(own) else Fraction(0)
        behind = [*accumulate(own, initial=0)]
        each = [(behind[last] - behind[first]) * size for first, last in runs.spans]

        return cls(
            np.array([floor(x) for x in each], np.int64),
            np.array([ceil(x) for x in each], np.int64),
            _rate(_fastest_inter(table), bytes_each),
            tuple(_rate(_intra(table, x.nodes[0]), bytes_each) for x in classes),
        )


def _rate(bytes_per_s: Fraction | None, bytes_each: Fraction) -> Fraction | None:
    if not bytes_per_s or not bytes_each:
        return None
    return bytes_per_s / 10**6 / bytes_each


def _fastest_inter(table: CostTable) -> Fraction | None:
    rates = [exact(rate) for rate, _ in table.cluster.links.rates]
    return max(rates) * 10**9 if rates else None


def _intra(table: CostTable, node: str) -> Fraction | None:
    if table.cluster.node[node].count == 1:
        return None
    return table.link(node, node)[1]
