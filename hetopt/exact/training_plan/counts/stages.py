"""The least time of a stage for every run of layers, by the GPUs that it uses.

A stage lies in one node, *packed*, on k GPUs of a kind. Such stages one behind the
other are a *chain* that uses c GPUs of the node together: other pipelines have the
rest. Or a stage is *spread* over several nodes, on u_c GPUs of each kind. Its replicas,
each on GPUs of one node, share the samples of a micro-batch as is best. It hands on
*within* a node that the next stage is in, too, or *away*, and pays the least such hop;
the last stage pays none, and has the head.

Within a time for synchronisation stages hold no more than they can send. If N replicas
of a layer of size w have t GPUs at the least, the least of all, and h of them lie in a
node, each of those takes w r / t (N - h) / N or more for what crosses nodes, and over
the fastest links w r' / t (N - 1) / N or more (`costs.communication`, ring). No more
than half of the replicas of a layer lie in that of its nodes that has fewest: unless
all are in one node, some wait for w r / t / 2, and so all. Where all
wait for the slowest link (`sync: bottleneck`) it is w r / t (N - 1) / N as soon as two
of them lie in two nodes. There tables are by the number of replicas, too.
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from . import shares
from .kinds import Array, Kind
from .replicas import Replicas

_ABOVE = 1 + 1e-9  # relative, for what was rounded
_HALF = 0.5  # of the replicas of a layer that crosses nodes, or more, are elsewhere


class Replicated(NamedTuple):
    """Replicas of a stage: GPUs of each at the least, and how many there are."""

    degree: int
    fewest: int
    most: int


class Senders(NamedTuple):
    """What replicas can synchronise, in average layers a GPU; infinite without end.

    `away` is between nodes, `fastest` over the faster links of each kind of nodes.
    Other pipelines, `others` at the least, have every layer, too, and every layer has
    `replicas` at the least. All wait for the slowest link if `together`. Only nodes of
    kinds that are `near` hold all replicas of a layer.
    """

    away: float
    fastest: tuple[float, ...]
    others: int
    replicas: int
    together: bool
    near: frozenset[int]

    def packed(self, own: Replicated, gpus: int, kind: int, rest: int) -> float:
        """The most of a stage on some GPUs of one node, with `rest` for others."""
        single = own.most == 1 or own.degree >= gpus
        fewest = 1 if single else max(2, own.fewest)
        least = max(self.replicas, self.others + fewest)
        if least == 1:
            return np.inf
        limit = own.degree * self.fastest[kind] * least / (least - 1)
        most = 1 if single else min(own.most, gpus // own.degree)
        replicas = max(self.replicas, most + self.others)
        crosses = self.others > 0 and kind not in self.near
        part = max(0.0, 1 - (most + rest) / replicas)  # that lies elsewhere
        if self.together:
            part = 1 - 1 / least if part or crosses else 0.0
        elif crosses:
            part = max(part, _HALF)
        return min(limit, own.degree * self.away / part) if part else limit

    def spread(self, own: Replicated, nodes: int, widest: int) -> float:
        """The same of a stage in so many nodes, two or more; none is wider."""
        replicas = max(self.replicas, self.others + max(2, own.fewest))
        if self.together:
            replicas = max(replicas, self.others + nodes)
            return own.degree * self.away * replicas / (replicas - 1)
        limit, here = nodes / (nodes - 1), 1 + widest - own.degree
        if here < replicas:
            limit = min(limit, replicas / (replicas - here))
        return own.degree * self.away * limit


@dataclass(frozen=True)
class Stages:
    """Least times in us, infinite where there is none, and what they use.

    `within` and `away` are of packed stages, by kind [c, k, run]; only of chains that
    use all GPUs, where no others need the rest. `spread` are of others by
    [u_0, u_1, ..., run], which hand on away, or within a node of each kind.
    """

    within: tuple[Array, ...]
    away: tuple[Array, ...]
    spread: tuple[Array, ...]


class _Table(NamedTuple):
    """Stages of such replicas, or of fewer."""

    replicas: Replicated
    us: Array


class StageTables:
    """Stages of micro-batches of one size, for any limit on synchronisation."""

    def __init__(
        self,
        replicas: Replicas,
        kinds: Sequence[Kind],
        weights: Array,
        sequences: int,
        numbered: int,
    ) -> None:
        """`weights` are of the layers, 1 on average.

        Stages are told apart by the number of their replicas up to `numbered`.
        """
        self._kinds, self._b, self._numbered = kinds, sequences, numbered
        self.runs = runs = replicas.runs
        self._us = [us[:, : sequences + 1] for us in replicas.us]
        # GPUs of each kind that a spread stage may use.
        self._gpus = [
            min(kind.total, kind.gpus * min(len(kind.nodes), sequences))
            for kind in kinds
        ]
        self._last = runs.last == runs.layers
        behind = np.concatenate([[0.0], np.cumsum(weights)])
        self._weight = behind[runs.last] - behind[runs.first]
        self._within, self._away = (
            [self._packed(c, hops) for c, hops in enumerate(each)]
            for each in (self._hops_within(), [kind.away_us for kind in kinds])
        )
        anywhere = np.min([kind.away_us for kind in kinds], axis=0)
        exits = [anywhere, *self._hops_within()] if sequences > 1 else []
        self._spread = [self._spread_of(hops) for hops in exits]
        # Of the senders that were asked for last, wherever is near: spread stages, and
        # packed ones by kind of nodes, and by whether these are near.
        self._alike: Senders | None = None
        self._parts: dict[tuple[int, bool] | None, tuple[Array, ...]] = {}

    def stages(self, senders: Senders) -> Stages:
        """All stages that can synchronise what they hold."""

        alike = senders._replace(near=frozenset())
        if alike != self._alike:
            self._alike, self._parts = alike, {}
        kinds = range(len(self._kinds))
        within, away = zip(*(self._part(c, senders) for c in kinds), strict=True)
        if None not in self._parts:
            self._parts[None] = tuple(
                self._able_spread(tables, senders) for tables in self._spread
            )
        return Stages(within, away, self._parts[None])

    def _part(self, kind: int, senders: Senders) -> tuple[Array, ...]:
        """Packed stages in nodes of a kind, within and away.

        They are as for other senders whose nodes of that kind are as near.
        """
        key = kind, kind in senders.near
        if key not in self._parts:
            self._parts[key] = tuple(
                self._able_packed(each[kind], kind, self._kinds[kind], senders)
                for each in (self._within, self._away)
            )
        return self._parts[key]

    @property
    def fitting(self) -> int:
        """Runs of replicas that fit."""
        return sum(int(np.isfinite(us).sum()) for us in self._us)

    def less_than(self, other: "StageTables") -> bool:
        """Whether any replica takes less than in others."""
        pairs = zip(self._us, other._us, strict=True)
        return not all(np.array_equal(mine, theirs) for mine, theirs in pairs)

    def _hops_within(self) -> list[Array]:
        return [kind.within_us for kind in self._kinds]

    def _packed(self, kind: int, hops: Array) -> list[_Table]:
        gpus = self._kinds[kind].gpus
        found = []
        for t in range(1, gpus + 1):
            us = self._paid(kind, t, hops)
            some = [*shares.numbered(us, gpus, self._numbered)]
            for own in self._replicated(t, 1, gpus // t):
                told = own.most < len(some)
                each = some[own.most] if told else shares.slowest(us, gpus)
                found.append(_Table(own, each[:, self._b]))
        return found

    def _spread_of(self, hops: Array) -> list[_Table]:
        """Stages of two replicas or more, none of which has all samples."""
        found = []
        for t in range(1, max(kind.gpus for kind in self._kinds) + 1):
            paid = [self._paid(c, t, hops) for c in range(len(self._kinds))]
            for us in paid:
                us[:, self._b] = np.inf
            each = [*zip(paid, self._gpus, strict=True)]
            some = [[*shares.numbered(*x, self._numbered)] for x in each]
            for own in self._replicated(t, 2, sum(g // t for g in self._gpus)):
                if own.most < len(some[0]):
                    us = shares.parted(some, own.most)
                else:
                    us = shares.together([shares.slowest(*x) for x in each])
                found.append(_Table(own, us))
        return found

    def _replicated(self, degree: int, fewest: int, most: int) -> Iterator[Replicated]:
        """Numbers of replicas that are told apart, and all others."""
        most = min(most, self._b)
        others = max(fewest, self._numbered + 1)
        for number in range(fewest, min(others, most + 1)):
            yield Replicated(degree, number, number)
        if others <= most:
            yield Replicated(degree, others, most)

    def _paid(self, kind: int, least: int, hops: Array) -> Array:
        """Replicas of `least` GPUs or more, with their hops."""
        paid = np.where(self._last, 0.0, hops[: self._b + 1, None])
        us: Array = self._us[kind] + paid
        us[:least] = np.inf
        return us

    def _able_packed(
        self, tables: list[_Table], number: int, kind: Kind, senders: Senders
    ) -> Array:
        c, gpus = kind.gpus, range(kind.gpus + 1)
        found = np.full((c + 1, c + 1, len(self._last)), np.inf)
        for chain in range(1 if senders.others else c, c + 1):
            limits = (
                np.array([senders.packed(own, k, number, c - chain) for k in gpus])
                for own, _ in tables
            )
            able = self._least((c + 1,), tables, limits)
            found[chain, : chain + 1] = able[: chain + 1]
        return found

    def _able_spread(self, tables: list[_Table], senders: Senders) -> Array:
        kinds = self._kinds
        widest = max(kind.gpus for kind in kinds)
        used = [
            -(-np.arange(gpus + 1) // kind.gpus)
            for gpus, kind in zip(self._gpus, kinds, strict=True)
        ]
        nodes = np.maximum(2, sum(np.ix_(*used)))
        most = range(int(nodes.max()) + 1)
        limits = (
            np.array([senders.spread(own, max(2, m), widest) for m in most])[nodes]
            for own, _ in tables
        )
        return _fewest(self._least(nodes.shape, tables, limits))

    def _least(
        self, shape: tuple[int, ...], tables: list[_Table], limits: Iterable[Array]
    ) -> Array:
        """Of all replicas, where no limit forbids what a run weighs."""
        least = np.full((*shape, len(self._weight)), np.inf)
        for (_, us), limit in zip(tables, limits, strict=True):
            some = tuple(slice(side) for side in us.shape[:-1])
            able = self._weight <= limit[some][..., None] * _ABOVE + _ABOVE - 1
            into = least[some]
            np.minimum(into, us, out=into, where=able)
        return least


def _fewest(us: Array) -> Array:
    """Only where no GPU of any kind can be left out: fewer do as well."""
    found = us.copy()
    for axis in range(us.ndim - 1):
        less = [slice(None)] * us.ndim
        more = list(less)
        less[axis], more[axis] = slice(0, -1), slice(1, None)
        same = us[tuple(more)] >= us[tuple(less)]
        found[tuple(more)][same] = np.inf
    return found
