"""What a bound on training plans may assume of nodes: their best case, by kind.

Nodes of one kind have GPUs of one type, equally many, on equal links. Times are the
least that any run of layers of some worth can take there (`items`), so a bound from
them holds for layers of any sizes; for equal layers they are exact.
"""

from collections.abc import Callable
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

import numpy as np
import numpy.typing as npt

from ....costs import CostTable
from ....schema import Instance, exact
from ....schema.rates import slower
from .items import Rows, Size, rows, sizes, sizes_of_layers

Array = npt.NDArray[np.float64]


@dataclass(frozen=True)
class Offer:
    """The replicas that a kind can have in micro-batches of one size.

    `within_us` and `out_us` are hops by samples, from 0 on, to a receiver of one GPU,
    the cheapest there is: inside the node and to another one, which is never cheaper.
    `out_us` is infinite where there is no other node.
    """

    runs: Rows
    last: Rows
    within_us: Array
    out_us: Array


@dataclass(frozen=True)
class Kind:
    """Nodes that no bound tells apart, with what they offer in each size."""

    nodes: tuple[str, ...]
    gpus: int
    offers: tuple[Offer, ...]

    @property
    def speed(self) -> float:
        """Cells that one GPU can do in a us, at the most; a guess for prices."""
        found = [
            float((offer.runs.cells / offer.runs.degree / offer.runs.us).max())
            for offer in self.offers
            if len(offer.runs.us) and offer.runs.us.min() > 0
        ]
        return max(found, default=0.0) or 1e-6


@dataclass(frozen=True)
class Fleet:
    """The kinds of a cluster, and what a spread layer costs.

    `spread_us` is passes x bytes x p / beta of a layer of average size: what one
    replica on one GPU pays to synchronise it when nearly all other replicas lie in
    other nodes. `layer_weights` are the sizes of layers, in average layers.
    """

    kinds: tuple[Kind, ...]
    sizes: tuple[Size, ...]
    spread_us: float
    layer_weights: Array


def fleet(instance: Instance, check: Callable[[], None] = lambda: None) -> Fleet:
    """The fleet of an instance, whose stage of ZeRO and split are fixed.

    `check()` is called before the replicas of each kind are listed, and may raise.
    """
    own = CostTable(instance)
    tables = [own.under(rule) for rule in instance.workload.recomputes]
    classes: dict[Any, list[str]] = {}
    for node in own.cluster.nodes:
        key = (own.node_class[node.name], node.count)
        classes.setdefault(key, []).append(node.name)
    speakers = [names[0] for names in classes.values()]
    counted = sizes(own, speakers, instance.workload.micro_batch_sizes)
    kinds = []
    for names in classes.values():
        check()
        kinds.append(_kind(tables, names, counted))
    return Fleet(tuple(kinds), tuple(counted), _spread_us(own), sizes_of_layers(own))


def _spread_us(table: CostTable) -> float:
    inter = table.cluster.inter
    rates = [exact(slower(rate)) for rate in inter.pairs.rates]
    if inter.gbytes_per_s is not None:
        rates.append(exact(inter.gbytes_per_s))
    if not rates:
        return 0.0
    exchanged = table.exchanged
    routed = sum(table.divided(exchanged))
    average = Fraction(sum(exchanged.layers) - routed, table.layers)
    costs = table.workload.costs
    sent = costs.sync_passes * costs.gradient_bytes * average
    return float(sent / (max(rates) * 1000))


def _kind(tables: list[CostTable], names: list[str], counted: list[Size]) -> Kind:
    table = tables[0]
    node = table.cluster.node[names[0]]
    crossings = table.workload.costs.interleave
    offers = []
    for size in counted:
        samples = range(1, size.sequences + 1)
        out = np.array([0.0, *(_least_out_us(table, names, s) for s in samples)])
        within = np.zeros_like(out)
        if node.count > 1:
            near = (table.least_hop_us(node.name, node.name, s) for s in samples)
            within[1:] = [float(us) for us in near]
        # Where links between nodes are the faster ones, two visits are not one.
        within = np.minimum(within, out)
        offers.append(
            Offer(
                rows(tables, node.name, size, last=False),
                rows(tables, node.name, size, last=True),
                crossings * within,
                crossings * out,
            )
        )
    return Kind(tuple(names), node.count, tuple(offers))


def _least_out_us(table: CostTable, names: list[str], s: int) -> float:
    """The cheapest hop of s samples from a node of the kind to any other node."""
    everyone = [node.name for node in table.cluster.nodes]
    if len(everyone) == 1:
        return float("inf")
    if not table.cluster.inter.pairs:
        other = next(name for name in everyone if name != names[0])
        return float(table.least_hop_us(names[0], other, s))
    cluster = table.cluster
    mine = {link for x in names for link in {*cluster.links.row(cluster.number[x])}}
    # One pair of nodes speaks for all that are joined by an equal link.
    return float(min(table.hop_over_us(link, s) for link in mine - {-1}))
