"""What a bound on training plans may assume of nodes: their best case, by kind.

Nodes of one kind have GPUs of one type, equally many, on equal links. Times are the
least that any run of layers of some worth can take there (`blocks`), so a bound from
them holds for layers of any sizes; for equal layers they are exact.
"""

from collections.abc import Callable
from dataclasses import dataclass
from fractions import Fraction
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from ...costs import CostTable
from ...schema import Instance, exact
from ...schema.rates import slower
from .blocks import (
    Replicas,
    Rows,
    Size,
    Whole,
    blocks,
    joined,
    replicas,
    sizes,
    sizes_of_layers,
)

Array = npt.NDArray[np.float64]


class Offer(NamedTuple):
    """The blocks that a kind can have in micro-batches of one size, by what follows.

    `inner`: another stage in the node, the hop is there at the least; `out`: none, and
    all samples are here, so that they go to another node; `shared`: none, and others
    of the stage may be next to the following one, or a small part of the last stage;
    `last`: the pipeline ends, with its head and without a hop. Hops are to a receiver
    of one GPU, the cheapest there is.
    """

    inner: Rows
    out: Rows
    shared: Rows
    last: Rows


@dataclass(frozen=True)
class Kind:
    """Nodes that no bound tells apart, with what they offer in each size."""

    nodes: tuple[str, ...]
    gpus: int
    offers: tuple[Offer, ...]

    speed: float  # cells that one GPU can do in a us, at the most; a guess for prices
    largest: Array  # run that fits, by degree from 0 on, in average layers
    # Least hops, by samples from 0 on: inside a node, and from it to another.
    within_us: Array
    away_us: Array

    def room(self, spread: "Spread") -> Array:
        """Average layers that replicas on so many of a node's GPUs hold at the most."""
        one = np.minimum(self.largest, spread.most(np.arange(self.gpus + 1)))
        held = np.zeros(self.gpus + 1)
        for k in range(1, self.gpus + 1):
            held[k] = max(held[k - t] + one[t] for t in range(1, k + 1))
        return held


class Spread(NamedTuple):
    """What replicas in a node may hold, in average layers.

    A GPU synchronises `rate` of them with other nodes, `share` is the node's share of
    all layers, and of no layer are more than `part` of the replicas in the node.
    `alone` says that there is but one pipeline.
    """

    rate: float
    share: float
    part: float
    alone: bool = False

    def most(self, degree: Whole) -> Array:
        """Of replicas of so many GPUs each: t rate + share, and t rate / (1 - part)."""
        sent: Array = degree * np.float64(self.rate)
        most: Array = sent + self.share
        if self.part < 1:
            most = np.minimum(most, sent / (1 - self.part) * (1 + 1e-9))
        return most

    def shared(self, rows: Rows, gpus: int) -> Array:
        """The same of blocks whose stage lies in other nodes, too, of `gpus` GPUs each.

        With a replica on t GPUs at most 1 + gpus - t of its layers are in the node, one
        pipeline alone has them all in the block, and one or more are not in the node.
        """
        here = 1 + gpus - rows.degree
        if self.alone:
            here = np.minimum(rows.gpus // rows.degree, rows.samples)
        sent: Array = rows.degree * np.float64(self.rate)
        return np.minimum(self.most(rows.degree), sent * (here + 1))


@dataclass(frozen=True)
class Fleet:
    """The kinds of a cluster, and what a spread layer costs.

    `spread_us` is passes x bytes x p / beta of a layer of average size: what one
    replica on one GPU pays to synchronise it when nearly all other replicas lie in
    other nodes. `layer_weights` are the sizes of layers, in average layers.
    `nearest_us` are the least hops inside any node, by samples from 0 on.
    """

    kinds: tuple[Kind, ...]
    sizes: tuple[Size, ...]
    spread_us: float
    layer_weights: Array
    nearest_us: Array


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
    most = max(size.sequences for size in counted)
    hops = [_hops(own, names, most) for names in classes.values()]
    # A stage that is shared may hand on from any of its nodes.
    anywhere = np.min([within for within, _ in hops], axis=0)
    kinds = []
    for names, (within, out) in zip(classes.values(), hops, strict=True):
        check()
        runs, last = (
            replicas(tables, names[0], counted[0].worths, most, last=last)
            for last in (False, True)
        )
        offers = []
        for size in counted:
            check()
            offers.append(_offer(runs, last, size, (within, anywhere, out)))
        count = own.cluster.node[names[0]].count
        largest = np.maximum(runs.largest, last.largest)
        speed = _speed(runs, counted)
        own_hops = within, out
        kinds.append(
            Kind(tuple(names), count, tuple(offers), speed, largest, *own_hops)
        )
    weights = sizes_of_layers(own)
    return Fleet(tuple(kinds), tuple(counted), _spread_us(own), weights, anywhere)


def _spread_us(table: CostTable) -> float:
    inter = table.cluster.inter
    rates = [exact(slower(rate)) for rate in inter.pairs.rates]
    if inter.gbytes_per_s is not None:
        rates.append(exact(inter.gbytes_per_s))
    if not rates:
        return 0.0
    return float(sent_bytes(table) / (max(rates) * 1000))


def sent_bytes(table: CostTable) -> Fraction:
    """Bytes that replicas exchange of a layer of average size, in all passes."""
    exchanged, costs = table.exchanged, table.workload.costs
    routed = sum(table.divided(exchanged))
    average = Fraction(sum(exchanged.layers) - routed, table.layers)
    return costs.sync_passes * costs.gradient_bytes * average


def _speed(runs: Replicas, counted: list[Size]) -> float:
    """Cells that a GPU does in a us at the most; runs of no time do not count."""
    degrees, _, worths = at = np.nonzero(np.isfinite(runs.us) & (runs.us > 0))
    if not len(worths):
        return 1e-6
    finer = max(size.finer for size in counted)
    return float((worths * finer / degrees / runs.us[at]).max()) or 1e-6


def _offer(
    runs: Replicas, last: Replicas, size: Size, hops: tuple[Array, Array, Array]
) -> Offer:
    b = size.sequences
    within, anywhere, out = (us[: b + 1] for us in hops)
    none = np.zeros(b + 1)
    whole, gone = blocks(runs, size, within), blocks(runs, size, out)
    some, last_ = blocks(runs, size, anywhere), blocks(last, size, none)
    shared = some.of(some.samples < b)
    return Offer(
        joined([whole.of(whole.samples == b), shared]),
        gone.of(gone.samples == b),
        joined([shared, last_.of(3 * last_.samples <= b)]),
        last_,
    )


def _hops(table: CostTable, names: list[str], most: int) -> tuple[Array, Array]:
    """Least hops inside such a node and out of it, by samples from 0 on."""
    node, v = table.cluster.node[names[0]], table.workload.costs.interleave
    samples = range(1, most + 1)
    out = np.array([0.0, *(_least_out_us(table, names, s) for s in samples)])
    if node.count == 1:
        return v * out, v * out
    near = [float(table.least_hop_us(node.name, node.name, s)) for s in samples]
    # Where links between nodes are the faster ones, two visits are not one.
    return v * np.minimum([0.0, *near], out), v * out


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
