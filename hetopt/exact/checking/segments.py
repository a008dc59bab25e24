"""Potentials where layers are equal: each node once, and the order does not matter.

A *segment* is what a pipeline does in one node: a number of layers on k of its GPUs.
Of all stages that divide it the least sum of times counts, and apart from that the
least sum of prices. A stage takes as long as where the next one lies in the node, but
one of them, which hands on to another node or ends the pipeline. Where a pipeline has
stages in several nodes, that one, too, may hand on inside its node.

Any stage may hold the first layer or the last one, with embedding or head: it needs at
least what one in the middle does, and earns for one of both, or for all of the model.

Nodes stand in a row, kind by kind. `cost[ended, x]` is what x layers cost at the least
in the first of them and in stages in several nodes: each node adds a segment or none.
"""

from dataclasses import dataclass

import numpy as np

from ...modelling import look
from .prices import NONE, Terms, due, earned, fronts
from .stages import Alone, Flags, Whole

_AT_ONCE = 96


@dataclass(frozen=True)
class _Side:
    """A stage in one node, by the number of its layers less one.

    Times: before a stage in the node; and of the last one there by way, before a stage
    in another node, or none. By GPUs of the segment, how many
    layers it may hold, and what they cost beside GPUs.
    """

    gpus: int
    inner: Whole
    last: list[Whole]
    light: list[int]
    paid: Whole


class Segments:
    """Paths of a part of a box through equal layers, at prices."""

    at_once = _AT_ONCE

    def __init__(self, terms: Terms) -> None:
        """Compute what segments cost beside their times."""
        self._terms, self._prices = terms, terms.prices
        stages = self._stages = terms.stages
        options, layers = terms.part.options, stages.layers
        sizes = np.arange(1, layers + 1)
        # The lightest run of each length lies in the middle, where it can.
        begin = (sizes < layers - 1).astype(np.int64)
        self._runs = stages.begin[begin] + sizes - 1
        self._last_runs = stages.begin[layers - sizes] + layers - 1 - (layers - sizes)
        largest = np.zeros(layers + 1, np.int64)
        np.maximum.at(largest, stages.last - stages.first, stages.high)
        self._largest = largest
        self._sides: list[list[_Side]] = [[] for _ in stages.kinds]
        for one in options.alone:
            self._sides[one.kind].append(self._side(one))
        self._paid = [self._least_price(c) for c in range(len(stages.kinds))]
        self._fronts = fronts(terms, largest[stages.last - stages.first])
        sides = [(x.gpus, tuple(x.light)) for each in self._sides for x in each]
        #: Times depend on what stages may hold, and on nothing else of the box.
        self._kept = stages.segment_us(options.size, tuple(sides))

    def _side(self, one: Alone) -> _Side:
        stages, sharing, c = self._stages, self._terms.sharing, one.kind
        gpus = stages.kinds[c].gpus
        inner, outer = (x[self._runs] for x in (one.inner, one.outer))
        inner[-1] = outer[-1] = NONE  # all layers: nothing follows
        together = np.arange(gpus + 1)
        most = [sharing.most(one, k) for k in range(one.gpus, gpus + 1)]
        light = np.searchsorted(stages.low[self._runs], most, "right").tolist()
        needs = sharing.need(one)[self._runs]
        paid = due(self._prices, c, needs[None], together[:, None], gpus)
        least = self._terms.box.replicas[0]
        paid -= earned(self._prices, c, self._largest[1:], one.replicas, least)
        last = [outer, one.inner[self._last_runs]]
        return _Side(one.gpus, inner, last, [0] * one.gpus + light, paid)

    # -- segments ----------------------------------------------------------------------

    def _least_price(self, kind: int) -> Whole:
        """Return prices of segments by [GPUs, layers], GPUs included."""
        gpus, layers = self._stages.kinds[kind].gpus, self._stages.layers
        # By GPUs of the segment, GPUs from here on, and layers.
        table = np.full((gpus + 1, gpus + 1, layers + 1), NONE, np.int64)
        table[:, 0, 0] = 0
        for left in range(1, gpus + 1):
            for side in self._sides[kind]:
                if side.gpus > left:
                    continue
                light = np.array(side.light)
                for y in range(1, int(light[left:].max(initial=0)) + 1):
                    paid = np.where(light >= y, side.paid[:, y - 1], NONE)[:, None]
                    more = table[:, left - side.gpus, : layers + 1 - y] + paid
                    into = table[:, left, y:]
                    np.minimum(into, more, out=into)
        each = np.arange(gpus + 1)
        price = self._prices.gpu[kind] * each[:, None]
        found: Whole = np.where(
            table[each, each] < NONE // 2, table[each, each] + price, NONE
        )
        return found

    def _times(self, kind: int, highs: Whole, *, near: bool) -> Whole:
        """Return times of segments by [GPUs, way, layers, interval]."""
        new = [x for x in highs.tolist() if (kind, near, x) not in self._kept]
        if new:
            found = self._find_times(kind, np.array(sorted({*new})), near=near)
            for i, high in enumerate(sorted({*new})):
                self._kept[kind, near, high] = found[..., i]
        each = [self._kept[kind, near, high] for high in highs.tolist()]
        return np.stack(each, axis=-1)

    def _find_times(self, kind: int, highs: Whole, *, near: bool) -> Whole:
        gpus, layers = self._stages.kinds[kind].gpus, self._stages.layers
        shape = gpus + 1, 2, layers + 1, len(highs)
        found = np.full(shape, NONE, np.int64)
        for most, alike in self._numbers(kind):
            table = np.full(shape, NONE, np.int64)
            for left in range(1, most + 1):
                look()
                for side in self._sides[kind]:
                    self._lower(table, (left, most), side, highs, near=near)
            found[alike] = table[alike]
        return found

    def _lower(
        self,
        table: Whole,
        gpus: tuple[int, int],
        side: _Side,
        highs: Whole,
        *,
        near: bool,
    ) -> None:
        """Lower times on `gpus` from here on, of so many in all, by one stage."""
        (left, k), layers = gpus, self._stages.layers
        most, rest = side.light[k], left - side.gpus
        if rest < 0 or not most:
            return
        if not rest:
            last = [side.inner, *side.last[1:]] if near else side.last
            for row, us in zip(table[left], last, strict=True):
                into = row[1 : most + 1]
                np.minimum(into, _within(us[:most], highs), out=into)
            return
        inner = _within(side.inner[:most], highs)
        for y in range(1, most + 1):
            if side.inner[y - 1] <= highs[-1]:
                more = table[rest, :, 1 : layers + 1 - y] + inner[y - 1]
                into = table[left, :, y + 1 :]
                np.minimum(into, more, out=into)

    def _numbers(self, kind: int) -> list[tuple[int, list[int]]]:
        """Return GPUs of segments with the same stages, after the most of them."""
        sides, found = self._sides[kind], list[tuple[int, list[int]]]()
        for k in range(self._stages.kinds[kind].gpus, 0, -1):
            most = found[-1][0] if found else k
            same = (x.light[k] == x.light[most] for x in sides if x.gpus <= k)
            if found and all(same):
                found[-1][1].append(k)
            else:
                found.append((k, [k]))
        return found

    # -- paths -----------------------------------------------------------------------

    def least(self, us_cost: int, lows: Whole, highs: Whole) -> Whole:
        """Return the least cost of a path, by interval of its slowest stage."""
        layers, often = self._stages.layers, self._stages.costs.schedule.interleave
        at = us_cost, often * lows, highs
        # Without stages in several nodes, and with some.
        nowhere = np.full((2, layers + 1, len(lows)), NONE, np.int64)
        nowhere[0, 0] = 0
        found = self._visited(nowhere, at, near=False)
        if self._fronts[0].shape[1]:
            some = self._visited(self._repeated(at), at, near=True)
            found = np.minimum(found, some)
        return found

    def _visited(
        self, cost: Whole, at: tuple[int, Whole, Whole], *, near: bool
    ) -> Whole:
        """Return the least cost of all layers, some of them in nodes of all kinds."""
        layers = self._stages.layers
        for c, kind in enumerate(self._stages.kinds):
            each = self._one(c, *at, near=near)
            for _ in range(min(len(kind.nodes), layers)):
                look()
                more = cost.copy()
                for y in range(1, layers + 1):
                    some = cost[:, : layers + 1 - y]
                    np.minimum(more[:, y:], some + each[0, y], out=more[:, y:])
                    last = some[0] + each[1, y]
                    np.minimum(more[1, y:], last, out=more[1, y:])
                cost = more
        found: Whole = cost[1, layers]
        return found

    def _one(
        self, kind: int, us_cost: int, often: Whole, highs: Whole, *, near: bool
    ) -> Whole:
        """Return the least cost of a segment by [way, layers, interval]."""
        us, paid = self._times(kind, highs, near=near), self._paid[kind]
        able: Flags = (us < NONE) & (paid < NONE)[:, None, :, None]
        price = np.where(paid < NONE, paid, 0)[:, None, :, None]
        cost = us_cost * np.where(able, us, 0) + price * often
        found: Whole = np.where(able, cost, NONE)[1:].min(0)
        return found

    def _repeated(self, at: tuple[int, Whole, Whole]) -> Whole:
        """Return the least cost of stages in several nodes, by [way, layers, interval].

        Of one or more.
        """
        layers, (us_cost, often, highs) = self._stages.layers, at
        each = np.full((2, layers + 1, len(highs)), NONE, np.int64)
        front_us, front_cost = self._fronts
        for way, runs in enumerate((self._runs, self._last_runs)):
            for y, run in enumerate(runs.tolist(), 1):
                us, price = front_us[run, :, None], front_cost[run, :, None]
                able = us <= highs
                cost = us_cost * np.where(able, us, 0) + price * often
                each[way, y] = np.where(able, cost, NONE).min(0, initial=NONE)
        each[0, layers] = NONE  # nothing follows
        found = each.copy()
        for x in range(2, layers + 1):
            look()
            for y in range(1, x):
                rest = found[:, x - y]
                np.minimum(found[:, x], rest + each[0, y], out=found[:, x])
                np.minimum(found[1, x], rest[0] + each[1, y], out=found[1, x])
        return found


def _within(us: Whole, highs: Whole) -> Whole:
    """Return times by [layers, interval]; `NONE` where they are too long."""
    found: Whole = np.where(us[:, None] <= highs, us[:, None], NONE)
    return found
