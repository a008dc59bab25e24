"""What a bound on training plans may assume of nodes: their best case, by kind.

Nodes of one kind have GPUs of one type, equally many, on equal links. Times are the
least that any run of layers of some worth can take there (`blocks`), so a bound from
them holds for layers of any sizes; for equal layers they are exact.
"""

from collections.abc import Callable
from dataclasses import dataclass
from fractions import Fraction
from functools import cache
from itertools import combinations, product
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from ...costs import CostTable
from ...schema import Instance, exact
from ...schema.rates import slower
from .apart import Sites, sites
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

_NOTHING = np.zeros(0, np.int64)


class Offer(NamedTuple):
    """The blocks that a kind can have in micro-batches of one size, by what follows.

    `inner`: another stage in the node, the hop is there at the least; `out`: none, and
    all samples are here, so that they go to another node; `shared`: none, and others
    of the stage may be next to the following one, or a small part of the last stage;
    `last`: the pipeline ends, with its head and without a hop; `off`: the whole stage
    is in the site, and the next one in another; none where there is but one site.
    Hops are to a receiver of one GPU, the cheapest there is.
    """

    inner: Rows
    out: Rows
    shared: Rows
    last: Rows
    off: Rows


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
    `alone` says that there is but one pipeline. `site` is the same of the node's site
    and of what lies in others, where there are several.
    """

    rate: float
    share: float
    part: float
    alone: bool = False
    site: "Spread | None" = None

    def most(self, degree: Whole) -> Array:
        """Of replicas of so many GPUs each: t rate + share, and t rate / (1 - part)."""
        sent: Array = degree * np.float64(self.rate)
        most: Array = sent + self.share
        if self.part < 1:
            most = np.minimum(most, sent / (1 - self.part) * (1 + 1e-9))
        return most if self.site is None else np.minimum(most, self.site.most(degree))

    def shared(self, rows: Rows, gpus: int) -> Array:
        """The same of blocks whose stage lies in other nodes, too, of `gpus` GPUs each.

        Of a layer one replica or more is not in the node. One pipeline alone has all
        others in the block; those of several are on the node's other GPUs, too.
        """
        most = int(rows.samples.max(initial=0))
        rooms = _together(gpus, most, alone=self.alone)
        sent = rooms[rows.gpus, rows.degree, rows.samples] * np.float64(self.rate)
        return np.minimum(self.most(rows.degree), sent)

    def bridged(self, degree: Whole) -> Array:
        """The same where the stage lies in several sites; -1 where there is but one.

        Of each layer half of the replicas, or more, are not in the site of one of two
        replicas, and all send what the smallest of them does: p / 2 <= t rate.
        """
        if self.site is None:
            return np.full(np.shape(degree), -1.0)
        most: Array = degree * np.float64(2 * self.site.rate)
        return most


@cache
def _together(gpus: int, samples: int, *, alone: bool) -> Whole:
    """What t (1 + replicas in the node) is at the most, by [GPUs, degree, samples].

    Blocks have replicas of t GPUs or more: a block with larger ones that is as quick
    speaks for those with smaller ones.
    """
    most = np.zeros((gpus + 1, gpus + 1, samples + 1), np.int64)
    for k in range(1, gpus + 1):
        for t in range(1, gpus + 1):
            here = np.full(samples + 1, k // t + gpus - k)
            if alone:
                here = np.minimum(k // t, np.arange(samples + 1))
            most[k, t] = np.maximum(most[k, t - 1], t * (1 + here) if t <= k else 0)
    return most


@dataclass(frozen=True)
class Fleet:
    """The kinds of a cluster, and what a spread layer costs.

    `spread_us` is passes x bytes x p / beta of a layer of average size: what one
    replica on one GPU pays to synchronise it when nearly all other replicas lie in
    other nodes. `layer_weights` are the sizes of layers, in average layers.
    `nearest_us` are the least hops inside any node, by samples from 0 on. Between
    `sites` a spread layer costs `far_us`.
    """

    kinds: tuple[Kind, ...]
    sizes: tuple[Size, ...]
    spread_us: float
    layer_weights: Array
    nearest_us: Array
    sites: Sites = ()
    far_us: float = 0.0

    @property
    def most_gpus(self) -> int:
        """Of the largest node."""
        return max(kind.gpus for kind in self.kinds)


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
    apart = sites(own)
    hops = [_hops(own, names, most, apart) for names in classes.values()]
    # A stage that is shared may hand on from any of its nodes.
    anywhere = np.min([within for within, _, _ in hops], axis=0)
    kinds = []
    for names, (within, out, off) in zip(classes.values(), hops, strict=True):
        check()
        runs, last = (
            replicas(tables, names[0], counted[0].worths, most, last=last)
            for last in (False, True)
        )
        offers = []
        for size in counted:
            check()
            offers.append(_offer(runs, last, size, (within, anywhere, out, off)))
        count = own.cluster.node[names[0]].count
        largest = np.maximum(runs.largest, last.largest)
        speed = _speed(runs, counted)
        own_hops = within, out
        kinds.append(
            Kind(tuple(names), count, tuple(offers), speed, largest, *own_hops)
        )
    weights = sizes_of_layers(own)
    return Fleet(
        tuple(kinds),
        tuple(counted),
        _spread_us(own),
        weights,
        anywhere,
        apart,
        _far_us(own, apart),
    )


def _spread_us(table: CostTable) -> float:
    inter = table.cluster.inter
    rates = [exact(slower(rate)) for rate in inter.pairs.rates]
    if inter.gbytes_per_s is not None:
        rates.append(exact(inter.gbytes_per_s))
    if not rates:
        return 0.0
    return float(sent_bytes(table) / (max(rates) * 1000))


def _far_us(table: CostTable, apart: Sites) -> float:
    """The same between sites, by the fastest link between any two."""
    if not apart:
        return 0.0
    cluster = table.cluster
    links = {
        cluster.links.between(cluster.number[x], cluster.number[y])
        for one, other in combinations(apart, 2)
        for x, y in product(one, other)
    }
    fastest = max(cluster.links.exactly(link)[1] for link in links)
    return float(sent_bytes(table) / fastest * 1_000_000)


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
    runs: Replicas,
    last: Replicas,
    size: Size,
    hops: tuple[Array, Array, Array, Array],
) -> Offer:
    b = size.sequences
    within, anywhere, out, off = (us[: b + 1] for us in hops)
    none = np.zeros(b + 1)
    whole, gone = blocks(runs, size, within), blocks(runs, size, out)
    far = blocks(runs, size, off) if np.isfinite(off).all() else gone.of(_NOTHING)
    some, last_ = blocks(runs, size, anywhere), blocks(last, size, none)
    shared = some.of(some.samples < b)
    return Offer(
        joined([whole.of(whole.samples == b), shared]),
        gone.of(gone.samples == b),
        joined([shared, last_.of(3 * last_.samples <= b)]),
        last_,
        far,
    )


def _hops(
    table: CostTable, names: list[str], most: int, apart: Sites
) -> tuple[Array, Array, Array]:
    """Least hops inside such a node, out of it, and to another site, by samples.

    From 0 on; infinite where there is no such node.
    """
    node, v = table.cluster.node[names[0]], table.workload.costs.interleave
    samples = range(1, most + 1)
    out = np.array([0.0, *(_least_out_us(table, names, s) for s in samples)])
    off = np.array([0.0, *(_least_off_us(table, names, s, apart) for s in samples)])
    if node.count == 1:
        return v * out, v * out, v * off
    near = [float(table.least_hop_us(node.name, node.name, s)) for s in samples]
    # Where links between nodes are the faster ones, two visits are not one.
    return v * np.minimum([0.0, *near], out), v * out, v * off


def _least_off_us(table: CostTable, names: list[str], s: int, apart: Sites) -> float:
    """The cheapest hop of s samples from a node of the kind to any other site."""
    number, links = table.cluster.number, table.cluster.links
    found = {
        links.between(number[x], number[y])
        for site in apart
        for x in names
        if x not in site
        for y in site
    }
    return min((float(table.hop_over_us(link, s)) for link in found), default=np.inf)


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
