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
the fastest links w r' / t (N - 1) / N or more (`costs.communication`, ring).
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from ..node_kinds import Array
from .kinds import Kind
from .replicas import Replicas

_ABOVE = 1 + 1e-9  # relative, for what was rounded


class Senders(NamedTuple):
    """What replicas can synchronise, in average layers a GPU; infinite without end.

    `away` is between nodes, `fastest` over the faster links of each kind of nodes.
    Other pipelines, `others` at the least, have every layer, too, and every layer has
    `replicas` at the least.
    """

    away: float
    fastest: tuple[float, ...]
    others: int
    replicas: int

    def packed(self, degree: int, gpus: int, kind: int, rest: int, most: int) -> float:
        """The most of a stage on some GPUs of one node, with `rest` for others.

        Its replicas are of `degree` or more, and `most` at the most.
        """
        single = degree >= gpus
        least = max(self.replicas, self.others + (1 if single else 2))
        if least == 1:
            return np.inf
        limit = degree * self.fastest[kind] * least / (least - 1)
        own = 1 if single else min(most, gpus // degree)
        here, every = own + rest, max(self.replicas, own + self.others)
        if here < every:
            limit = min(limit, degree * self.away * every / (every - here))
        return limit

    def spread(self, degree: int, nodes: int, widest: int) -> float:
        """The same of a stage in so many nodes, two or more; none is wider."""
        limit = nodes / (nodes - 1)
        every, here = max(self.replicas, 2 + self.others), 1 + widest - degree
        if here < every:
            limit = min(limit, every / (every - here))
        return degree * self.away * limit


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
    """Stages whose replicas have `degree` GPUs or more."""

    degree: int
    us: Array


class StageTables:
    """Stages of micro-batches of one size, for any limit on synchronisation."""

    def __init__(
        self,
        replicas: Replicas,
        kinds: Sequence[Kind],
        weights: Array,
        sequences: int,
    ) -> None:
        """`weights` are of the layers, 1 on average."""
        self._kinds, self._b = kinds, sequences
        self.runs = runs = replicas.runs
        self._us = [us[:, : sequences + 1] for us in replicas.us]
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

    def stages(self, senders: Senders) -> Stages:
        """All stages that can synchronise what they hold."""

        def able(each: list[list[_Table]]) -> tuple[Array, ...]:
            kinds = enumerate(zip(each, self._kinds, strict=True))
            return tuple(
                self._able_packed(tables, c, kind, senders)
                for c, (tables, kind) in kinds
            )

        spread = tuple(self._able_spread(tables, senders) for tables in self._spread)
        return Stages(able(self._within), able(self._away), spread)

    def less_than(self, other: "StageTables") -> bool:
        """Whether any replica takes less than in others."""
        pairs = zip(self._us, other._us, strict=True)
        return not all(np.array_equal(mine, theirs) for mine, theirs in pairs)

    def _hops_within(self) -> list[Array]:
        return [kind.within_us for kind in self._kinds]

    def _packed(self, kind: int, hops: Array) -> list[_Table]:
        gpus = self._kinds[kind].gpus
        return [
            _Table(t, slowest(self._paid(kind, t, hops), gpus)[:, self._b])
            for t in range(1, gpus + 1)
        ]

    def _spread_of(self, hops: Array) -> list[_Table]:
        """Stages of two replicas or more, none of which has all samples."""
        kinds = self._kinds
        found = []
        for t in range(1, max(kind.gpus for kind in kinds) + 1):
            each = []
            for c, kind in enumerate(kinds):
                us = self._paid(c, t, hops)
                us[:, self._b] = np.inf
                gpus = kind.gpus * min(len(kind.nodes), self._b)
                each.append(slowest(us, min(kind.total, gpus)))
            found.append(_Table(t, _together(each)))
        return found

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
                [senders.packed(t, k, number, c - chain, self._b) for k in gpus]
                for t, _ in tables
            )
            able = self._least(tables, (np.array(each) for each in limits))
            found[chain, : chain + 1] = able[: chain + 1]
        return found

    def _able_spread(self, tables: list[_Table], senders: Senders) -> Array:
        kinds = self._kinds
        widest = max(kind.gpus for kind in kinds)
        used = [
            -(-np.arange(n) // kind.gpus)
            for n, kind in zip(tables[0].us.shape, kinds, strict=False)
        ]
        nodes = np.maximum(2, sum(np.ix_(*used)))
        most = range(int(nodes.max()) + 1)
        limits = (
            np.array([senders.spread(t, max(2, m), widest) for m in most])[nodes]
            for t, _ in tables
        )
        return _fewest(self._least(tables, limits))

    def _least(self, tables: list[_Table], limits: Iterator[Array]) -> Array:
        """Of all degrees, where no limit forbids what a run weighs."""
        least = np.full_like(tables[0].us, np.inf)
        for (_, us), limit in zip(tables, limits, strict=True):
            able = self._weight <= limit[..., None] * _ABOVE + _ABOVE - 1
            np.minimum(least, np.where(able, us, np.inf), out=least)
        return least


def slowest(us: Array, gpus: int) -> Array:
    """Least time of the slowest replica, by [GPUs at most, samples, run].

    `us` is of one replica, by [degree, samples, run].
    """
    samples, runs = us.shape[1:]
    best = np.full((gpus + 1, samples, runs), np.inf)
    best[:, 0] = 0.0
    some = [(t, s) for t, s in np.argwhere(np.isfinite(us).any(2)).tolist() if t * s]
    for k in range(1, gpus + 1):
        np.minimum(best[k], best[k - 1], out=best[k])
        for t, s in some:
            if t <= k:
                found = np.maximum(best[k - t, : samples - s], us[t, s])
                np.minimum(best[k, s:], found, out=best[k, s:])
    return best


def _together(each: Sequence[Array]) -> Array:
    """All samples shared by GPUs of all kinds: [u_0, u_1, ..., run]."""
    shares = each[0]
    for others in each[1:-1]:
        found = np.full((*shares.shape[:-2], *others.shape), np.inf)
        for u, s in np.ndindex(others.shape[:2]):
            slow = np.maximum(shares[..., : others.shape[1] - s, :], others[u, s])
            out = found[..., u, s:, :]
            np.minimum(out, slow, out=out)
        shares = found
    if len(each) == 1:
        whole: Array = shares[:, -1]
        return whole
    # What the last kind does not take, the others do.
    rows = [np.maximum(shares, last[::-1]).min(-2) for last in each[-1]]
    return np.stack(rows, axis=-2)


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
