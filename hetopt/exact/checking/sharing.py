"""Sizes that a box lets stages hold, and needs of their nodes: derived once more.

A layer l has n replicas, h of them in node v. A stage there with replicas of d GPUs or
more waits until its layers are exchanged, within S us in this box. In a ring a GPU of v
is sent what n - h replicas elsewhere have, over links of beta units a us or less:

    e_l (n - h) / n  <=  d beta S_l,     the sum of S_l over its layers  <=  S.      (1)

So the stage's size is at most d beta S + A, where A is the sum over layers of e_l h / n
in v: its node's *part* of the replicas. What size exceeds d beta S is its *need* of A.
With `sync: bottleneck` a layer that is in two nodes or more takes e_l (n - 1) / n of
d beta S_l; one that is not has all of e_l in A. So the need is what size exceeds
d beta S n / (n - 1).

A ring waits for its slowest member. Of m nodes that hold a layer one has no more than
n / m replicas; so the size of a stage whose layers are in m nodes or more is at most
d beta S / (1 - 1 / m).

A node is a *host* where some layer has all of its replicas there. So each pipeline uses
a GPU or more of every host, for its own replica, and there are no more pipelines than a
host has GPUs. No layer of any other node has all replicas there: its layers are in two
nodes or more, whatever room there is.

Parts of all nodes sum up to the size E of all layers, and are at most what their
replicas hold over D, the least number of replicas of any layer. A pipeline on k of the
C GPUs of a node has needs that sum up to A or less, since its stages have no layer in
common; so needs weighted by k / C, of all pipelines, sum up to A or less, too.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from functools import lru_cache
from math import ceil, floor
from typing import Any

import numpy as np

from .stages import MOST, Alone, Stages, Whole

FREE = MOST  # units: no run has more


@dataclass(frozen=True)
class Box:
    """Ranges that plans of a box are in; None where there is no upper end.

    Of us that plans synchronise for, least replicas of a layer, numbers of pipelines;
    of a single pipeline also the number of its size, and its slowest stage in us; and
    of how many nodes of each kind are `hosts`.
    """

    sync: tuple[int, int | None]
    replicas: tuple[int, int]
    count: tuple[int, int]
    size: tuple[int, int]
    slowest: tuple[int, int | None] = (0, None)
    hosts: tuple[tuple[int, int], ...] = ()

    @property
    def pipelines(self) -> int:
        """The most pipelines: each has a replica of every layer."""
        return min(self.count[1], self.replicas[1])

    def fewest(self, largest: int) -> int:
        """Return the fewest pipelines of micro-batches of up to `largest` sequences.

        None has more replicas of a layer than that.
        """
        return max(self.count[0], -(-self.replicas[0] // largest))

    @property
    def empty(self) -> bool:
        """Return whether no plan is in the box."""
        ranges = self.sync, self.replicas, self.count, self.size, self.slowest
        if any(low > high for low, high in self.hosts):
            return True
        return any(high is not None and low > high for low, high in ranges)

    def parts(self, of: str, at: int, largest: int) -> "tuple[Box, Box] | None":
        """Return both sides of a division; None where it divides no such box.

        `largest` are the sequences of the largest micro-batch: a single pipeline has no
        more replicas of a layer.
        """
        low, high = getattr(self, of)
        outside = at < low or (high is not None and at > high)
        single = self.count[1] == 1  # each of several pipelines has its own
        if (
            (of == "sync" and outside)
            or (of == "count" and at != 1)
            or (of in ("size", "slowest") and not single)
        ):
            return None
        beyond = at if of in ("sync", "slowest") else at + 1
        ends: dict[str, Any] = {of: (low, at if high is None else min(at, high))}
        few = replace(self, **ends)
        many = replace(self, **(ends | {of: (max(low, beyond), high)}))
        least, most = self.replicas
        if of == "count":
            few = replace(few, replicas=(least, min(most, largest)))
            many = replace(many, replicas=(max(2, least), most))
        if of == "replicas":
            few = replace(few, count=(self.count[0], min(self.count[1], at)))
        return few, many

    def by_hosts(self, kind: int, at: int, gpus: int) -> "tuple[Box, Box]":
        """Return both sides of a division by the hosts of a kind, each of so many GPUs.

        Where there is one, each pipeline has a GPU of it.
        """
        low, high = self.hosts[kind]
        few, many = (
            replace(self, hosts=(*self.hosts[:kind], ends, *self.hosts[kind + 1 :]))
            for ends in ((low, min(at, high)), (max(low, at + 1), high))
        )
        return few, replace(many, count=(self.count[0], min(self.count[1], gpus)))

    def bare(self, kind: int) -> bool:
        """Tell whether no node of a kind is a host."""
        return bool(self.hosts) and self.hosts[kind][1] == 0

    def apart(self, nodes: Sequence[int]) -> tuple[int, ...]:
        """Return how many of so many nodes of each kind are hosts, if others are not.

        0 where all nodes may be hosts, or none is.
        """
        pairs = zip(self.hosts, nodes, strict=True)
        return tuple(low if low == high < n else 0 for (low, high), n in pairs)

    def parted(self, apart: tuple[int, ...]) -> "Box":
        """Return the box where so many hosts are a kind of their own, behind others."""
        found = list[tuple[int, int]]()
        for number, ends in zip(apart, self.hosts, strict=True):
            found += [(0, 0), (number, number)] if number else [ends]
        return replace(self, hosts=tuple(found))


class Sharing:
    """Limits and needs of stages in a box, whose stages synchronise for `sync_us`."""

    def __init__(self, stages: Stages, box: Box, sync_us: int | None) -> None:
        """Take the box's least replicas and pipelines; None: as long as they like."""
        self._stages, self._box, self._us = stages, box, sync_us
        self._ring = stages.costs.updates.sync == "ring"
        self._widest = max(kind.gpus for kind in stages.kinds)
        self._waiting = lru_cache(None)(self._limit)

    def _least(self, own: int) -> int:
        """Return the least replicas of a layer of which a stage has `own` or more."""
        return max(self._box.replicas[0], own + self._box.count[0] - 1)

    @property
    def _away(self) -> Fraction | None:
        """Units that one GPU exchanges with other nodes in the time that there is."""
        inter = self._stages.inter
        return None if inter is None or self._us is None else inter * self._us

    def _waited(self, least: int, here: int | None, nodes: int = 2) -> Fraction:
        """Return the least part of a layer's size that its replicas wait for.

        It has `least` replicas or more in so many `nodes` or more, up to `here` in this
        one.
        """
        if not self._ring:
            return 1 - Fraction(1, least)
        nodes = max(nodes, -(-least // self._widest))
        parts = [Fraction(1, nodes)]
        if here is not None:
            parts.append(Fraction(here, least))
        return 1 - min(parts)

    def most(self, one: Alone, together: int) -> int:
        """Return the most units that a stage holds; below 0 where there is none.

        Its pipeline uses `together` GPUs of the node at least; the others may have a
        replica each, unless there is but one pipeline.
        """
        kind = self._stages.kinds[one.kind]
        lonely, bare = self._box.pipelines == 1, self._box.bare(one.kind)
        if lonely and (bare or one.replicas < self._box.replicas[0]):
            return -1
        if self._us is None:
            return FREE
        here = one.replicas + (0 if lonely else kind.gpus - together)
        own = 1 if one.degree == one.gpus else 2
        least = self._least(own)
        if bare:  # there is another replica elsewhere
            least = max(least, own + 1)
        away = bare or here < least
        return self._waiting(one.kind, one.degree, least, here if away else None)

    def _limit(self, kind: int, degree: int, least: int, here: int | None) -> int:
        """Return the most units of a stage of a kind with such replicas in its node.

        None `here` where all of them may be; or so many, and others elsewhere.
        """
        found = [Fraction(FREE)]
        rates = self._stages.intra(kind), self._stages.inter
        known = [rate for rate in rates if rate is not None]
        if known and least > 1:  # each replica is sent what all others have
            able = degree * max(known) * (self._us or 0)
            found.append(able / (1 - Fraction(1, least)))
        if self._away is not None and here is not None:
            found.append(degree * self._away / self._waited(least, here))
        return floor(min(found))

    def _needs(self, degree: int, least: int) -> Whole:
        """Return what stages need of their node's part, by run."""
        low = self._stages.low
        if self._away is None or least < 2:
            return np.zeros_like(low)
        able = degree * self._away
        if not self._ring:
            able /= 1 - Fraction(1, least)
        return np.maximum(0, low - min(FREE, ceil(able)))

    def need(self, one: Alone) -> Whole:
        """Return what such stages need, by run."""
        return self._needs(one.degree, self._least(1))

    def of_replicas(self, degree: int, nodes: int = 2) -> tuple[int, Whole]:
        """Return the most units of a stage in so many nodes or more, and needs by run.

        One of its replicas has `degree` GPUs, and all of its layers are in that many.
        """
        most = FREE
        if self._away is not None:
            waited = self._waited(self._least(nodes), None, nodes)
            most = min(FREE, floor(degree * self._away / waited))
        return most, self._needs(degree, self._least(2))
