"""Prices of a leaf, and what they make of stages; all in whole numbers that fit.

Prices are in sequences / scale: of a GPU of each kind; of what needs of a kind's nodes
exceed their parts, and of all needs together, each for the size of an average layer; of
a pipeline; of the same size of layers held; and what each of the fewest pipelines is
paid, if there is such a price: all plans of a box have so many. The numbers of a
certificate may be as large as they like: both they and the scale are halved until
nothing overflows.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from functools import cached_property

import numpy as np

from .sharing import Box, Sharing
from .stages import NONE_US, UNIT, Alone, Options, Stages, Whole

NONE = 1 << 60  # what no path costs


@dataclass(frozen=True)
class Prices:
    """Prices of the rows of a box, none below 0."""

    scale: int
    gpu: tuple[int, ...]
    share: tuple[int, ...]
    shares: int
    pipeline: int
    held: int
    fewest: int = 0

    @classmethod
    def of(cls, values: tuple[int, ...], kinds: int, scale: int) -> "Prices | None":
        """Read prices in the order of a certificate; None if they are not as many."""
        if len(values) not in (2 * kinds + 3, 2 * kinds + 4):
            return None
        return cls(
            scale, values[:kinds], values[kinds : 2 * kinds], *values[2 * kinds :]
        )

    def parted(self, apart: Sequence[int]) -> "Prices":
        """Return the prices where nodes that are `apart` are kinds of their own."""
        often = [2 if number else 1 for number in apart]
        gpu, share = (
            tuple(y for y, n in zip(row, often, strict=True) for _ in range(n))
            for row in (self.gpu, self.share)
        )
        return replace(self, gpu=gpu, share=share)

    def halved(self) -> "Prices":
        """Return half of all, rounded down; the scale is even, or rounded down, too."""
        return Prices(
            self.scale // 2,
            tuple(x // 2 for x in self.gpu),
            tuple(x // 2 for x in self.share),
            self.shares // 2,
            self.pipeline // 2,
            self.held // 2,
            self.fewest // 2,
        )

    def refute(self, stages: Stages, box: Box) -> bool:
        """Tell whether all that there is of each row is worth less than the batch."""
        return self.value(stages, box) < stages.batch * self.scale

    def value(self, stages: Stages, box: Box) -> Fraction:
        """Return what all that there is of each row is worth."""
        whole = sum(
            y * kind.gpus * len(kind.nodes)
            for y, kind in zip(self.gpu, stages.kinds, strict=True)
        )
        whole += self.pipeline * box.pipelines
        whole -= self.fewest * box.fewest(stages.sizes[box.size[1]])
        # Runs of all layers come first in the list, at their longest.
        every = stages.layers - 1
        sizes = self.shares * int(stages.high[every])
        sizes -= self.held * int(stages.low[every])
        return whole + Fraction(sizes, UNIT)

    def fit(self, stages: Stages, box: Box, size: int, left_us: int) -> bool:
        """Tell whether no sum overflows, of paths within `left_us`."""
        most_us = (stages.costs.schedule.interleave + 1) * left_us
        widest = max(kind.gpus for kind in stages.kinds)
        size_all = int(stages.high[stages.layers - 1]) + stages.layers
        needs, holds = max(self.share) + self.shares, max(self.share) + self.held
        stages_of_node = min(widest, stages.layers)
        # What each replica of a path earns is rounded up.
        earned = holds * size * size_all // (box.replicas[0] * UNIT)
        earned += stages.layers * (size + 1)
        return (
            max(
                8 * self.scale * max(size * stages_of_node, stages.batch) * most_us,
                4 * max(self.gpu) * widest * size * most_us,
                needs * size_all // 8 * widest,
                4 * (needs * size_all // UNIT) * size * most_us,
                holds * size_all // 8 * size,
                4 * earned * most_us,
                4 * self.pipeline * most_us,
                16 * self.fewest * most_us,
            )
            < NONE
        )


@dataclass(frozen=True)
class Priced:
    """Stages of one node with what they cost beside GPUs, for GPUs used together.

    `together` are numbers of GPUs; by their place `paid[i, run]` is the price, and
    `light[i, run]` tells which runs are not too large.
    """

    stage: Alone
    together: tuple[int, ...]
    paid: Whole
    light: np.ndarray[tuple[int, ...], np.dtype[np.bool_]]


@dataclass(frozen=True)
class Part:
    """Pipelines of one size in a box: their time, and sequences at the most.

    Their stages synchronise for `sync_us` at the most; `spent_us` are gone before the
    slowest stage counts.
    """

    options: Options
    left_us: int
    most: int
    sync_us: int | None
    spent_us: int = 0


def earned(prices: Prices, kind: int, size: Whole, replicas: int, least: int) -> Whole:
    """Return what replicas earn that hold so many units, rounded up."""
    found: Whole = -(
        -(prices.share[kind] + prices.held) * replicas * size // (least * UNIT)
    )
    return found


def due(prices: Prices, kind: int, needs: Whole, gpus: Whole, whole: int) -> Whole:
    """Return what needs cost of a pipeline on some of `whole` GPUs, rounded down."""
    found: Whole = (prices.share[kind] + prices.shares) * needs * gpus // (whole * UNIT)
    return found


@dataclass(frozen=True)
class Terms:
    """A part of a box: its pipelines, and the prices that they cost by."""

    stages: Stages
    box: Box
    prices: Prices
    part: Part

    @cached_property
    def sharing(self) -> Sharing:
        """Limits and needs of the stages."""
        return Sharing(self.stages, self.box, self.part.sync_us)


def priced(terms: Terms) -> list[list[Priced]]:
    """Return the stages of each kind in one node, for the numbers that differ."""
    stages, prices, sharing = terms.stages, terms.prices, terms.sharing
    found: list[list[Priced]] = [[] for _ in stages.kinds]
    for one in terms.part.options.alone:
        gpus = stages.kinds[one.kind].gpus
        together = range(one.gpus, gpus + 1)
        most = np.array([sharing.most(one, k) for k in together])
        light = stages.low[None] <= most[:, None]
        sizes = np.array(together)[:, None]
        paid = due(prices, one.kind, sharing.need(one)[None], sizes, gpus)
        least = terms.box.replicas[0]
        paid = paid - earned(prices, one.kind, stages.high, one.replicas, least)
        found[one.kind].append(Priced(one, tuple(together), paid, light))
    return [_collapsed(each) for each in found]


def _collapsed(each: list[Priced]) -> list[Priced]:
    same = all(
        (one.paid == one.paid[-1]).all() and (one.light == one.light[-1]).all()
        for one in each
    )
    if not same:
        return each
    return [
        replace(
            one, together=one.together[-1:], paid=one.paid[-1:], light=one.light[-1:]
        )
        for one in each
    ]


def fronts(terms: Terms, high: Whole) -> tuple[Whole, Whole]:
    """Return times and costs of stages in several nodes, both by [run, i].

    None of whose replicas takes longer than the i-th time costs less; those of a run
    hold `high` units or less. A knapsack over samples: `cost[s]` is the least of
    replicas that share s sequences.
    """
    stages, prices, options = terms.stages, terms.prices, terms.part.options
    several, size, runs = options.several, options.size, len(stages.first)
    count = len(several.kind)
    none = np.zeros((runs, 0), np.int64)
    if not count:
        return none, none
    paid, light = np.zeros((count, runs), np.int64), np.zeros((count, runs), np.bool_)
    known: dict[int, tuple[int, Whole]] = {}
    for i, (c, t) in enumerate(
        zip(several.kind.tolist(), several.degree.tolist(), strict=True)
    ):
        if t not in known:
            known[t] = terms.sharing.of_replicas(t)
        most, needs = known[t]
        light[i] = stages.low <= most
        whole = stages.kinds[c].gpus
        paid[i] = prices.gpu[c] * t + due(prices, c, needs, np.array(t), whole)
        paid[i] -= earned(prices, c, high, 1, terms.box.replicas[0])
    us = np.where(light.T, several.us, NONE_US)
    order = np.argsort(us, axis=1, kind="stable")
    cost = np.full((size + 1, runs), NONE, np.int64)
    cost[0] = 0
    times, costs = [], []
    for item in order.T:
        took, own = us[np.arange(runs), item], several.samples[item]
        for s in range(1, size + 1):
            some = np.flatnonzero((own <= s) & (took < NONE_US))
            more = cost[s - own[some], some] + paid[item[some], some]
            cost[s, some] = np.minimum(cost[s, some], more)
        times.append(took)
        costs.append(cost[size].copy())
    return _shortened(np.array(times).T, np.array(costs).T)


def _shortened(us: Whole, cost: Whole) -> tuple[Whole, Whole]:
    """Leave out times at which nothing becomes cheaper than before."""
    less = np.ones(us.shape, np.bool_)
    less[:, 1:] = cost[:, 1:] < cost[:, :-1]
    less &= (cost < NONE // 2) & (us < NONE_US)
    order = np.argsort(~less, axis=1, kind="stable")
    most = int(less.sum(1).max(initial=0))
    us = np.take_along_axis(np.where(less, us, NONE_US), order, 1)[:, :most]
    cost = np.take_along_axis(np.where(less, cost, 0), order, 1)[:, :most]
    return np.ascontiguousarray(us), np.ascontiguousarray(cost)
