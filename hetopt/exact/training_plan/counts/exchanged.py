"""What replicas exchange of layers, as rows of stages count it: in average layers.

The embedding and the head are of no layer here, as in the check of certificates; the
stage table has them, so its sizes are others.
"""

from fractions import Fraction

import numpy as np

from ....costs import CostTable
from ....schema import exact
from ....schema.rates import slower
from .kinds import Array, Kind


def layer_weights(table: CostTable) -> Array:
    """Return what is synchronised of each layer as one, in average layers."""
    own = _own(table)
    return np.array(own) / float(Fraction(sum(own), len(own)) or 1)


def spread_us(table: CostTable) -> float:
    """Return what one GPU takes to synchronise an average layer with other nodes."""
    inter = table.cluster.inter
    rates = [exact(slower(rate)) for rate in inter.pairs.rates]
    if inter.gbytes_per_s is not None:
        rates.append(exact(inter.gbytes_per_s))
    return float(_sent_bytes(table) / (max(rates) * 1000)) if rates else 0.0


def within_us(table: CostTable, kind: Kind) -> float:
    """Return the same inside a node of a kind; 0 where that has one GPU."""
    several = (x for x in kind.speakers if table.cluster.node[x].count > 1)
    rates = [table.link(name, name)[1] for name in several]
    return float(_sent_bytes(table) * 10**6 / max(rates)) if rates else 0.0


def _own(table: CostTable) -> list[int]:
    exchanged = table.exchanged
    routed = table.divided(exchanged)
    return [p - r for p, r in zip(exchanged.layers, routed, strict=True)]


def _sent_bytes(table: CostTable) -> Fraction:
    """Return the bytes that replicas exchange of an average layer, in all passes."""
    costs, own = table.workload.costs, _own(table)
    return costs.sync_passes * costs.gradient_bytes * Fraction(sum(own), len(own))
