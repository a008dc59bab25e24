"""Least times of stages, for the check of counts: derived from the cost tables anew."""

import math
from bisect import bisect_left
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property, lru_cache
from hashlib import blake2b
from itertools import accumulate, product
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from ....costs import CostTable, memory
from ....schema import exact
from ....schema.rates import slower

Array = npt.NDArray[np.float64]

MORE = 1 + 1e-9  # relative, for what was rounded: more is allowed
# Replicas whose number is told; fewer where GPUs, in numbers by kind, are many.
_TOLD, _FEW_TOLD, _SMALL = 4, 2, 100


class Nodes(NamedTuple):
    """Nodes of one kind, or of some that are looked at as the best of them.

    The name of one of each, their number and the GPUs of all, those of a node at the
    most; hops by samples, within such a node and away from it.
    """

    names: tuple[str, ...]
    number: int
    total: int
    gpus: int
    near: Array
    away: Array


class Case(NamedTuple):
    """How many pipelines there are, how many replicas a layer has at the least.

    `sizes` are those of their micro-batches. No stage synchronises for longer than
    `sync_us`, and a pipeline spends `spent_us` or more beside its bottlenecks. Where
    one node may hold all replicas of a layer, it is of one of the `homes`, if told.
    """

    pipelines: tuple[int, int]
    replicas: int
    sizes: tuple[int, ...]
    sync_us: float = math.inf
    spent_us: float = 0.0
    homes: tuple[int, ...] | None = None


@dataclass(frozen=True)
class Packed:
    """Stages in one node of a kind by [c, k, first, last], near or away.

    On k GPUs of it; with those before and behind that are near, c or fewer.
    """

    near: Array
    away: Array


@dataclass(frozen=True)
class Able:
    """Stages that can synchronise; `spread` ones leave away, then by kind near.

    Those are by [GPUs of each kind..., first, last].
    """

    packed: list[Packed]
    spread: list[Array]

    @cached_property
    def key(self) -> bytes:
        """Equal for equal stages."""
        found = blake2b(digest_size=16)
        for one in self.packed:
            found.update(one.near.tobytes() + one.away.tobytes())
        for table in self.spread:
            found.update(table.tobytes())
        return found.digest()


def begins_at(
    table: CostTable,
    node: str,
    group: tuple[int, int],
    last: int,
    where: tuple[int, int],
) -> int:
    """The first layer of the longest run before `last` that fits.

    On a `group` of GPUs with its samples; `where` are the micro-batches and the place
    of its stage from the end.
    """
    n, place = where

    def fits(first: int) -> bool:
        j = min(1, first)
        run = range(first, last)
        need = table.stage_mib(node, run, *group, n, place + j, j)
        return sum(need.values()) <= table.memory_mib(node)

    # What fits fits without its first layers, too.
    found = 1 + bisect_left(range(1, last), True, key=fits)
    return 0 if found == 1 and fits(0) else found


class _Made(NamedTuple):
    """Stages whose replicas have `degree` GPUs or more, and are some number.

    That is from `fewest` to `most`, or fewer; by [k, run] or [GPUs..., run].
    """

    degree: int
    fewest: int
    most: int
    us: Array


@dataclass(frozen=True)
class _Every:
    """All stages of one size of micro-batches: near and away by kind, and by exit."""

    near: list[list[_Made]]
    away: list[list[_Made]]
    spread: list[list[_Made]]


class StageTables:
    """Stages of any size of micro-batches, as far as they can synchronise."""

    def __init__(
        self, tables: list[CostTable], nodes: Sequence[Nodes], weights: Sequence[float]
    ) -> None:
        """`tables` are of the rules of recomputation.

        `weights` are of the layers, 1 on average.
        """
        self.rates = [_sending_us(tables[0], kind) for kind in nodes]
        # Then every replica waits for the slowest link.
        self.waits = tables[0].workload.costs.updates.sync == "bottleneck"
        self.tables, self.nodes = tables, nodes
        self.small = math.prod(kind.total + 1 for kind in nodes) <= _SMALL
        self.told = _TOLD if self.small else _FEW_TOLD
        self.layers = tables[0].layers
        self.before = np.array([*accumulate(weights, initial=0.0)])
        self.first, self.last = np.triu_indices(self.layers + 1, 1)
        self._begins: dict[object, int] = {}
        self._behind: dict[tuple[int, int], list[float]] = {}
        self._every = lru_cache(None)(self._find_every)

    def _begin(
        self,
        node: str,
        group: tuple[int, int],
        rule: int,
        last: int,
        where: tuple[int, int],
    ) -> int:
        """As `begins_at`, kept, under a rule of recomputation."""
        table = self.tables[rule]
        flight = memory.in_flight(table.workload.costs, *where, 0)
        key = (node, group, rule, last, flight)
        if key not in self._begins:
            self._begins[key] = begins_at(table, node, group, last, where)
        return self._begins[key]

    def _replicas(self, b: int, n: int, least: int) -> list[Array]:
        """Least times by kind, [degree, samples, run], in a place or further away."""
        layers, size = self.layers, self.layers + 1
        each = [np.full((x.gpus + 1, b + 1, size, size), np.inf) for x in self.nodes]
        # What follows a stage is as near to the end as it fits, wherever this one is.
        if least > 1 and (b, n) not in self._behind:
            self._replicas(b, n, 1)
        behind = [math.inf] * layers + [0] if least == 1 else self._behind[b, n]
        for last in range(layers, 0, -1):
            if behind[last] == math.inf:
                continue
            place = max(int(behind[last]) + 1, least)
            for node, us in zip(self.nodes, each, strict=True):
                for name in node.names:
                    self._lower_all(us, name, last, (n, place))
                for first in range(last if least == 1 else 0):
                    if np.isfinite(us[:, :, first, last]).any():
                        behind[first] = min(behind[first], place)
        self._behind[b, n] = behind
        return [us[:, :, self.first, self.last] for us in each]

    def _lower_all(
        self, us: Array, node: str, last: int, where: tuple[int, int]
    ) -> None:
        """Lower times of runs before `last` by replicas in a node."""
        table = self.tables[0]
        gpus = table.cluster.node[node].count
        for t, s in product(range(1, gpus + 1), range(1, us.shape[1])):
            if table.usable(node, t, s):
                self._lower(us[t, s], node, (t, s), last, where)

    def _lower(
        self,
        us: Array,
        node: str,
        group: tuple[int, int],
        last: int,
        where: tuple[int, int],
    ) -> None:
        """Lower times of runs before `last`, [first, last], under every rule."""
        for rule, table in enumerate(self.tables):
            begin = self._begin(node, group, rule, last, where)
            times = [*accumulate(table.layer_us(node, *group), initial=0)]
            head = table.head_us(node, *group) if last == self.layers else 0
            for first in range(begin, last):
                took = times[last] - times[first] + head
                us[first, last] = min(us[first, last], took)

    def _find_every(self, b: int, n: int, place: int) -> _Every:
        each = self._replicas(b, n, place)
        near = [kind.near for kind in self.nodes]
        away = [kind.away for kind in self.nodes]

        def packed(us: Array, hops: Array) -> list[_Made]:
            gpus = len(us) - 1
            return [
                made
                for t in range(1, gpus + 1)
                for made in self._made(t, 1, [self._paid(us, t, hops, b)], [gpus])
            ]

        exits = [np.min(away, axis=0), *near] if b > 1 else []
        return _Every(
            [packed(us, hops) for us, hops in zip(each, near, strict=True)],
            [packed(us, hops) for us, hops in zip(each, away, strict=True)],
            [self._spread(each, hops, b) for hops in exits],
        )

    def _paid(self, us: Array, least: int, hops: Array, b: int) -> Array:
        """Replicas of so many GPUs or more, with their hops."""
        paid: Array = us + np.where(self.last < self.layers, hops[: b + 1, None], 0.0)
        paid[:least] = np.inf
        return paid

    def _spread(self, each: list[Array], hops: Array, b: int) -> list[_Made]:
        gpus = [min(x.total, x.gpus * min(x.number, b)) for x in self.nodes]
        found = list[_Made]()
        for t in range(1, max(kind.gpus for kind in self.nodes) + 1):
            paid = [self._paid(us, t, hops, b) for us in each]
            for us in paid:
                us[:, b] = np.inf
            found.extend(self._made(t, 2, paid, gpus))
        return found

    def _made(
        self, t: int, fewest: int, each: list[Array], gpus: list[int]
    ) -> Iterator[_Made]:
        """Stages of replicas that are listed by kind, on so many GPUs of each."""
        most = min(each[0].shape[1] - 1, sum(g // t for g in gpus))
        told = min(self.told, most) if self.waits else 0
        some = [_of_few(us, g, told) for us, g in zip(each, gpus, strict=True)]
        for number in range(fewest, told + 1):
            us = np.full((*(g + 1 for g in gpus), len(self.first)), np.inf)
            for parts in product(range(number + 1), repeat=len(each)):
                if sum(parts) == number:
                    mixed = _mixed([x[n] for x, n in zip(some, parts, strict=True)])
                    into = us[tuple(slice(n) for n in mixed.shape[:-1])]
                    np.minimum(into, mixed, out=into)
            yield _Made(t, number, number, us)
        if told < most:
            every = [_shared(us, g) for us, g in zip(each, gpus, strict=True)]
            yield _Made(t, max(fewest, told + 1), most, _mixed(every))

    def able(self, b: int, n: int, case: Case, place: int = 1) -> Able:
        """Stages that hold no more than can be synchronised in time.

        At a place from the end of their pipeline, or further away.
        """
        every = self._every(b, n, place)
        weight = (self.before[self.last] - self.before[self.first])[None]
        packed = []
        for c in range(len(self.nodes)):
            limits = self._of_packed(every.near[c], c, case)
            near = self._within(every.near[c], limits, weight)
            packed.append(Packed(near, self._within(every.away[c], limits, weight)))
        spread = [
            self._fewest(self._within(each, self._of_spread(each, case), weight))
            for each in every.spread
            if each
        ]
        return Able(packed, spread)

    def _within(
        self, every: Sequence[_Made], limits: Sequence[Array], weight: Array
    ) -> Array:
        """The least of all replicas, by [..., first, last]."""
        shape = np.broadcast_shapes(every[0].us.shape, limits[0].shape)
        runs = np.full(shape, np.inf)
        for (*_, us), limit in zip(every, limits, strict=True):
            able = weight <= limit * MORE + 1e-9
            runs = np.where(able, np.minimum(runs, us), runs)
        size = self.layers + 1
        found = np.full((*runs.shape[:-1], size, size), np.inf)
        found[..., self.first, self.last] = runs
        return found

    def _fewest(self, us: Array) -> Array:
        """Without stages that one GPU less would do as well."""
        found = us.copy()
        for axis in range(us.ndim - 2):
            mine, of_less = np.moveaxis(found, axis, 0), np.moveaxis(us, axis, 0)
            for u in range(1, len(mine)):
                mine[u][of_less[u - 1] <= of_less[u]] = np.inf
        return found

    def _of_packed(self, every: list[_Made], kind: int, case: Case) -> list[Array]:
        """The largest weights of stages in one node, by [c, k]."""
        sides = range(self.nodes[kind].gpus + 1)
        return [
            np.array(
                [
                    [
                        [self._most(made, (k, c), kind, case) if k <= c else -1.0]
                        for k in sides
                    ]
                    for c in sides
                ]
            )
            for made in every
        ]

    def _most(self, made: _Made, gpus: tuple[int, int], kind: int, case: Case) -> float:
        """Of a stage on k GPUs of a node, that uses so many together with others.

        Other pipelines have the rest at the most.
        """
        (k, together), t = gpus, made.degree
        others, alone = case.pipelines[0] - 1, k <= t or made.most == 1
        own = 1 if alone else max(2, made.fewest)
        all_ = max(case.replicas, others + own)
        if all_ < 2:
            return math.inf
        away, fastest = self.rates[kind]
        most = math.inf
        if fastest:
            most = case.sync_us * t / fastest * all_ / (all_ - 1)
        own = 1 if alone else min(made.most, k // t)
        room = self.nodes[kind].gpus - together
        replicas = max(case.replicas, own + others)
        # The least share of the replicas that one of them finds in other nodes. Where
        # these are two or more, one has no more than half of the replicas.
        abroad = others > 0 and case.homes is not None and kind not in case.homes
        outside = replicas - own - room
        share = outside / replicas if outside > 0 else 0.0
        if abroad and not self.waits:
            share = max(share, 1 / 2)
        elif self.waits and (abroad or outside > 0):
            share = 1 - 1 / all_
        if share and away:
            most = min(most, case.sync_us * t / (away * share))
        return most

    def _of_spread(self, every: Sequence[_Made], case: Case) -> list[Array]:
        """The same of stages in several nodes, by GPUs of each kind."""
        away, _ = self.rates[0]
        used = [
            [-(-u // kind.gpus) for u in range(n)]
            for kind, n in zip(self.nodes, every[0].us.shape, strict=False)
        ]
        nodes = np.maximum(2, np.sum(np.meshgrid(*used, indexing="ij"), axis=0))
        widest = max(kind.gpus for kind in self.nodes)
        others = case.pipelines[0] - 1
        found = []
        for made in every:
            # The share of the replicas that lies in other nodes, or more.
            all_ = max(case.replicas, others + max(2, made.fewest))
            if self.waits:
                share = 1 - 1 / np.maximum(all_, others + nodes)
            else:
                share = np.maximum(1 - 1 / nodes, 1 - (1 + widest - made.degree) / all_)
            limit = np.full(nodes.shape, np.inf)
            if away:
                limit = case.sync_us * made.degree / (away * share)
            found.append(limit[..., None])
        return found


def _of_few(us: Array, gpus: int, most: int) -> list[Array]:
    """Least time of the slowest of 0, 1, ..., `most` replicas, or fewer.

    By [GPUs at most, samples together, run], as far as they use GPUs.
    """
    b = us.shape[1] - 1
    found = [np.full((1, b + 1, us.shape[2]), np.inf)]
    found[0][:, 0] = 0.0
    for number in range(1, most + 1):
        one_less = found[-1]
        sides = 1 + min(gpus, number * (len(us) - 1))
        best = np.full((sides, b + 1, us.shape[2]), np.inf)
        best[: len(one_less)] = one_less
        for k in range(1, sides):
            for t in range(1, min(k, len(us) - 1) + 1):
                rest = one_less[min(k - t, len(one_less) - 1)]
                for s in range(1, b + 1):
                    slow = np.maximum(rest[: b + 1 - s], us[t, s])
                    np.minimum(best[k, s:], slow, out=best[k, s:])
            np.minimum(best[k], best[k - 1], out=best[k])
        found.append(best)
    return found


def _mixed(each: Sequence[Array]) -> Array:
    """All samples on GPUs of all kinds, by [GPUs of each kind..., run]."""
    b = each[0].shape[1] - 1
    *others, last = each
    shares = np.full((b + 1, each[0].shape[2]), np.inf)
    shares[0] = 0.0
    for mine in others:
        more = np.full((*shares.shape[:-2], *mine.shape), np.inf)
        for u, s in product(range(len(mine)), range(b + 1)):
            rest = np.maximum(shares[..., : b + 1 - s, :], mine[u, s])
            np.minimum(more[..., u, s:, :], rest, out=more[..., u, s:, :])
        shares = more
    whole = np.full((*shares.shape[:-2], len(last), shares.shape[-1]), np.inf)
    for u, s in product(range(len(last)), range(b + 1)):
        slow = np.maximum(shares[..., b - s, :], last[u, s])
        np.minimum(whole[..., u, :], slow, out=whole[..., u, :])
    return whole


def _shared(us: Array, gpus: int) -> Array:
    """Least time of the slowest replica by [GPUs at most, samples together, run]."""
    b = us.shape[1] - 1
    best = np.full((gpus + 1, b + 1, us.shape[2]), np.inf)
    best[:, 0] = 0.0
    degrees = [t for t in range(1, len(us)) if np.isfinite(us[t]).any()]
    for samples in range(1, b + 1):
        for k in range(1, gpus + 1):
            for t in (t for t in degrees if t <= k):
                rest = best[k - t, :samples][::-1]
                slow = np.maximum(rest, us[t, 1 : samples + 1]).min(0)
                np.minimum(best[k, samples], slow, out=best[k, samples])
            np.minimum(best[k, samples], best[k - 1, samples], out=best[k, samples])
    return best


def _sending_us(table: CostTable, kind: Nodes) -> tuple[float, float]:
    """What one GPU takes to send a layer's gradients away, and over a faster link."""
    inter, costs = table.cluster.inter, table.workload.costs
    each = sum(table.exchanged.layers) / table.layers
    sent = costs.updates.sync_passes * costs.memory.gradient_bytes * each
    rates = [exact(slower(rate)) for rate in inter.pairs.rates]
    if inter.gbytes_per_s is not None:
        rates.append(exact(inter.gbytes_per_s))
    away = sent / float(max(rates) * 1000) if rates else 0.0
    links = [
        float(table.link(name, name)[1])
        for name in kind.names
        if table.cluster.node[name].count > 1
    ]
    if not links:
        return away, away
    inside = sent * 10**6 / max(links)
    return away, min(away, inside) if rates else inside
