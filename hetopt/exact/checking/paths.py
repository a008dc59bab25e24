"""Potentials of paths through the layers: what a pipeline costs at the least.

Paths are followed from their ends. `anywhere[l]` is the least cost of the stages from
layer l on; `several[l]` where the first of them is in several nodes. A kind's
`table[i, u, l]` is that where the first of them lie in one node of the kind, in which
the pipeline has u GPUs from here on, and i + 1 in all (or any number, where there is
one i). Each is the least over the arcs that leave it: a stage, and the potential where
that ends.
"""

from typing import NamedTuple

import numpy as np

from ...modelling import look
from .prices import NONE, Priced, Terms, fronts, priced
from .stages import Kind, Whole

_MOST_CELLS = 6_000_000  # of all tables of one kind, in as many intervals as fit
_MOST_AT_ONCE = 48


class Potentials(NamedTuple):
    """The least that suffixes of paths cost, by interval: as the module tells."""

    anywhere: Whole
    several: Whole
    tables: list[Whole]


class _At(NamedTuple):
    """Intervals, and potentials of suffixes there."""

    us_cost: int | Whole
    often: Whole
    highs: Whole
    anywhere: Whole
    several: Whole

    def cost(self, us: Whole) -> Whole:
        """Return what times cost by [run, interval]; `NONE` where they are too long."""
        slow = us[:, None] > self.highs
        found: Whole = np.where(
            slow, NONE, self.us_cost * np.where(slow, 0, us[:, None])
        )
        return found


class Paths:
    """Paths of a part of a box, at prices."""

    def __init__(self, terms: Terms) -> None:
        """Compute what stages cost."""
        self._terms, stages = terms, terms.stages
        self.each = priced(terms)
        self.fronts = fronts(terms, stages.high)
        widest = max(kind.gpus for kind in stages.kinds)
        cells = (widest + 1) ** 2 * (stages.layers + 1)
        self.at_once = max(1, min(_MOST_AT_ONCE, _MOST_CELLS // cells))

    def least(self, us_cost: int, lows: Whole, highs: Whole) -> Whole:
        """Return the least cost of a path, by interval of its slowest stage.

        A path costs `us_cost` for each us, and its prices as often as the interval has
        us at its low end, for each run of layers of a stage.
        """
        every = self.potentials(us_cost, lows, highs)
        found: Whole = np.minimum(every.anywhere[0], every.several[0])
        return found

    def potentials(self, us_cost: int | Whole, lows: Whole, highs: Whole) -> Potentials:
        """Return the least cost of what may follow in a path, by interval."""
        stages = self._terms.stages
        often = stages.costs.schedule.interleave * lows
        layers = stages.layers
        anywhere = np.full((layers + 1, len(lows)), NONE, np.int64)
        several = anywhere.copy()
        anywhere[layers] = 0
        tables = [
            np.full((_numbers(kind, each), kind.gpus + 1, *anywhere.shape), NONE)
            for kind, each in zip(stages.kinds, self.each, strict=True)
        ]
        at = _At(us_cost, often, highs, anywhere, several)
        for first in range(layers - 1, -1, -1):
            look()
            for each, table in zip(self.each, tables, strict=True):
                for one in each:
                    self._in_a_node(one, table, at, first)
            if self.fronts[0].shape[1]:
                self._in_several(at, first)
            for c, (kind, table) in enumerate(zip(stages.kinds, tables, strict=True)):
                price = self._terms.prices.gpu[c]
                for i in range(len(table)):
                    whole = range(1, kind.gpus + 1) if len(table) == 1 else (i + 1,)
                    for k in whole:
                        cost = table[i, k, first] + price * k * often
                        np.minimum(anywhere[first], cost, out=anywhere[first])
        return Potentials(anywhere, several, tables)

    def _in_a_node(self, one: Priced, table: Whole, at: _At, first: int) -> None:
        """Lower potentials in a node by stages of one option from a layer on."""
        stages = self._terms.stages
        begin, end = stages.begin[first], stages.begin[first + 1]
        inner, outer = one.stage.inner[begin:end], one.stage.outer[begin:end]
        able = np.flatnonzero(inner <= at.highs.max())
        if not len(able):
            return
        count, used = int(able[-1]) + 1, one.stage.gpus
        near, far = at.cost(inner[:count]), at.cost(outer[:count])
        runs = slice(begin, begin + count)
        for i, k in enumerate(one.together):
            light = one.light[i, runs]
            n = count if light.all() else int(light.argmin())
            if not n:
                continue
            paid = one.paid[i, runs][:n, None] * at.often
            on = slice(first + 1, first + 1 + n)
            last = np.minimum(far[:n] + at.anywhere[on], near[:n] + at.several[on])
            row = table[k - 1 if len(table) > 1 else 0]
            into = row[used, first]
            np.minimum(into, (last + paid).min(0), out=into)
            if k > used:
                cost = near[:n] + paid
                more = row[1 : k - used + 1, on] + cost
                into = row[used + 1 : k + 1, first]
                np.minimum(into, more.min(1), out=into)

    def _in_several(self, at: _At, first: int) -> None:
        """Lower potentials of stages in several nodes from a layer on."""
        stages = self._terms.stages
        begin, end = stages.begin[first], stages.begin[first + 1]
        us, price = (each[begin:end] for each in self.fronts)
        rest = slice(first + 1, stages.layers + 1)
        behind = np.minimum(at.anywhere[rest], at.several[rest])
        into = at.several[first]
        for i in range(us.shape[1]):
            able = np.flatnonzero(us[:, i] <= at.highs.max())
            if len(able):
                cost = at.cost(us[able, i]) + price[able, i, None] * at.often
                np.minimum(into, (cost + behind[able]).min(0), out=into)


def _numbers(kind: Kind, each: list[Priced]) -> int:
    """Return how many numbers of GPUs in all are distinguished in such a node."""
    return 1 if all(len(one.together) == 1 for one in each) else kind.gpus
