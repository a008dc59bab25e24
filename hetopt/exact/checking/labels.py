"""Least sums of the stages of a path, by the GPUs that it uses of each kind.

Paths are followed from their first layer, in several intervals at once. A *label*
stands between two stages: the interval, where the next one lies, and the GPUs used so
far, as one number, the *state*. It keeps the least time and the least cost of the
stages before it, each by itself. Where the next one lies is 0 (in one node, of any
kind), 1 (in several), or the kind, the number and the GPUs left of the node at hand, as
in `paths`. GPUs count where a node is begun.

A stage hands on inside a node only to one that is there, too. Of two in different sets
of nodes, one in several, that node has GPUs of both. So the next one may also lie in
one node of some kind, or in several with one of some kind, where the stage before it
has a GPU or more: 2 + c, and 2 + C + c for kind c of C.

Whatever a label leads to takes, and costs, no less than it and the potential there. So
labels that would exceed what is allowed go, and those beside which another one has
used no more GPUs of any kind, took no more time and costs no more: what is allowed of
a pipeline on fewer GPUs is no less. What is left is few of all that there are.
"""

from itertools import pairwise
from typing import NamedTuple

import numpy as np

from ...modelling import look
from .paths import Paths
from .prices import NONE, Terms, earned
from .stages import NONE_US, Flags, Stages, Whole

_PAIRS = 1_000_000  # of labels and stages at once
_MOST = 8_000_000  # labels that wait at once
_SPARSE = 8  # as many states as a label, for labels to be set beside each other
_CELLS = 2_000_000  # of states of labels that are set beside each other at once
_NEXT, _SEVERAL, _SHARED = 0, 1, 2  # where the next stage lies


class TooMany(Exception):
    """More labels wait than memory may hold."""


class States:
    """Numbers of GPUs of each kind."""

    def __init__(self, stages: Stages) -> None:
        """Number them; those of the last kind are next to each other."""
        self.gpus = [kind.gpus * len(kind.nodes) for kind in stages.kinds]
        self.sides = tuple(n + 1 for n in self.gpus)
        self.use = np.indices(self.sides).reshape(len(self.sides), -1).T
        each = [int(np.prod(self.sides[c + 1 :])) for c in range(len(self.sides))]
        self.strides = np.array(each, np.int64)


class Labels(NamedTuple):
    """Labels at one layer, by column."""

    at: Whole  # interval
    where: Whole
    state: Whole
    us: Whole
    cost: Whole

    def some(self, chosen: Whole | Flags | slice) -> "Labels":
        """Return the chosen ones."""
        return Labels(*(column[chosen] for column in self))


class _Step(NamedTuple):
    """A way from labels to others: where these are, and what it adds to them."""

    last: Whole
    where: Whole
    state: Whole | int
    us: Whole
    paid: Whole  # as often as the interval says


class _Edges(NamedTuple):
    """Stages in one node of a kind from one layer on.

    `paid` and `light` are by the number of a node, and stage.
    """

    gpus: Whole
    last: Whole
    inner: Whole
    outer: Whole
    paid: Whole
    light: Flags


class _Spread(NamedTuple):
    """Stages in several nodes: GPUs by kind, times and costs.

    Times are by [exit, run, i], costs by [run, i].
    """

    use: Whole
    state: Whole
    us: Whole
    cost: Whole


class Allowed(NamedTuple):
    """Intervals, and what is allowed in them.

    A path costs `us_cost` for each us and its prices `often`; no more than `most_cost`,
    all by interval, and takes `most_us` or less, by interval and state.
    """

    us_cost: Whole
    often: Whole
    highs: Whole
    most_cost: Whole
    most_us: Whole


class Sums:
    """Least sums of a part of a leaf, at prices."""

    def __init__(self, terms: Terms, states: States) -> None:
        """Compute what stages cost."""
        self._terms, self._states = terms, states
        self._part, self._prices = terms.part, terms.prices
        stages = self._stages = terms.stages
        self.paths = Paths(terms)
        spread = bool(self.paths.fronts[0].shape[1])
        self._numbers = [
            1
            if not spread and all(len(one.together) == 1 for one in each)
            else kind.gpus
            for kind, each in zip(stages.kinds, self.paths.each, strict=True)
        ]
        # Where codes of kinds begin.
        self._count = len(stages.kinds)
        pairs = zip(self._numbers, stages.kinds, strict=True)
        each = [number * (kind.gpus + 1) for number, kind in pairs]
        self._codes = np.cumsum([_SHARED + 2 * self._count, *each])
        self._spread = self._made_spread() if spread else None

    # -- stages -----------------------------------------------------------------------

    def _edges(self, kind: int, first: int, high: int) -> _Edges:
        """Return stages in a node from a layer on, none slower than `high`."""
        stages, numbers = self._stages, self._numbers[kind]
        begin, end = stages.begin[first], stages.begin[first + 1]
        none, empty = np.zeros(0, np.int64), np.zeros((numbers, 0), np.int64)
        found = [_Edges(none, none, none, none, empty, empty > 0)]
        for one in self.paths.each[kind]:
            able = begin + np.flatnonzero(one.stage.inner[begin:end] <= high)
            paid = np.zeros((numbers, len(able)), np.int64)
            light = np.zeros((numbers, len(able)), np.bool_)
            for i, k in enumerate(one.together):
                # One number of GPUs stands for all.
                row = slice(k - 1, k) if len(one.together) > 1 else slice(None)
                paid[row], light[row] = one.paid[i, able], one.light[i, able]
            sides = one.stage.inner[able], one.stage.outer[able]
            gpus = np.full(len(able), one.stage.gpus)
            found.append(_Edges(gpus, stages.last[able], *sides, paid, light))
        return _Edges(*(np.concatenate(x, axis=-1) for x in zip(*found, strict=True)))

    def _made_spread(self) -> _Spread:
        """Return stages in several nodes by the GPUs that they use.

        None of whose replicas is slower than their time. Each replica may earn what one
        of any kind does, and there are as many as a micro-batch has sequences, or less.
        """
        stages, states, options = self._stages, self._states, self._part.options
        several, size = options.several, options.size
        sides = [kind.gpus for kind in stages.kinds]
        nodes = np.maximum(2, -(-states.use // np.array(sides)).sum(1))
        every = stages.exits(options)
        run = np.flatnonzero((every < NONE_US).any((0, 2)))
        found = np.full((len(every), len(nodes), len(run)), NONE_US, np.int64)
        for number in np.unique(nodes).tolist():
            degrees = several.degree.tolist()
            known = {
                t: self._terms.sharing.of_replicas(t, number)[0] for t in {*degrees}
            }
            most = np.array([known[t] for t in degrees], np.int64)
            mine = nodes == number
            for at, each in enumerate(every):
                us = np.where(stages.low[:, None] <= most, each, NONE_US)
                us = np.where(us <= self._part.left_us, us, NONE_US)[run]
                both = np.zeros((1, 1, len(run)), np.int64)
                for c in range(len(stages.kinds)):
                    both = _together(both, self._of_kind(c, us), size)
                found[at, mine] = both[mine, -1]
        there = (states.use > 0) @ np.array([len(x.nodes) for x in stages.kinds])
        found[:, there < 2] = NONE_US
        whole = found.copy()
        for c, stride in enumerate(states.strides.tolist()):
            # Fewer GPUs of the same kinds do as well, in no more nodes.
            some = np.flatnonzero(states.use[:, c] > 1)
            same = whole[:, some - stride] <= whole[:, some]
            found[:, some] = np.where(same, NONE_US, found[:, some])
        able = np.flatnonzero((found < NONE_US).any((0, 2)))
        times = np.full((*every.shape[:2], len(able)), NONE_US, np.int64)
        times[:, run] = np.moveaxis(found[:, able], 1, 2)
        prices, least = self._prices, self._terms.box.replicas[0]
        kinds = range(len(stages.kinds))
        held = [earned(prices, c, stages.high, 1, least) for c in kinds]
        price = states.use[able] @ np.array(prices.gpu, np.int64)
        cost = price[None] - size * np.max(held, axis=0)[:, None]
        return _Spread(states.use[able], able, times, cost)

    def _of_kind(self, kind: int, us: Whole) -> Whole:
        """Return the least time of the slowest replica, of a kind of nodes.

        By GPUs of all of them, samples, and column of `us`; that is by [column, item].
        """
        several, size = self._part.options.several, self._part.options.size
        gpus = self._states.gpus[kind]
        found = np.full((gpus + 1, size + 1, len(us)), NONE_US, np.int64)
        found[:, 0] = 0
        items = np.flatnonzero(several.kind == kind).tolist()
        for g in range(1, gpus + 1):
            look()
            found[g] = found[g - 1]
            for i in items:
                t, s = int(several.degree[i]), int(several.samples[i])
                if t <= g:
                    slow = np.maximum(found[g - t, : size + 1 - s], us[:, i])
                    np.minimum(found[g, s:], slow, out=found[g, s:])
        return found

    # -- labels -----------------------------------------------------------------------

    def least(self, allowed: Allowed) -> Whole:
        """Return the least sums of allowed paths, by [interval, state].

        `NONE` where there is no path. Raises `TooMany` where that takes more memory
        than it may.
        """
        layers = self._stages.layers
        self._allowed = allowed
        self._timed, self._priced = self._flat(allowed)
        self._pending: list[list[Labels]] = [[] for _ in range(layers + 1)]
        self._waiting = 0
        at, where = (x.ravel() for x in np.indices((len(allowed.highs), 2)))
        zero = np.zeros_like(at)
        start = Labels(at, where, zero, zero, zero)
        step = _Step(zero, where, 0, zero, zero)
        self._keep(*self._led(start, np.arange(len(at)), step))
        for first in range(layers):
            self._go_on(first)
        found = np.full(allowed.most_us.shape, NONE, np.int64)
        end = self._merged(layers)
        np.minimum.at(found, (end.at, end.state), end.us)
        return found

    def _flat(self, allowed: Allowed) -> tuple[Whole, Whole]:
        """Return potentials of times, and of costs.

        They are by where the next stage lies, layer and interval.
        """
        lows = allowed.often // self._stages.costs.schedule.interleave
        us_cost = np.concatenate([np.ones_like(lows), allowed.us_cost])
        lows = np.concatenate([np.zeros_like(lows), lows])
        every = self.paths.potentials(us_cost, lows, np.tile(allowed.highs, 2))
        rows = [every.anywhere, every.several]
        rows += [each for each in rows for _ in range(self._count)]
        for table, number in zip(every.tables, self._numbers, strict=True):
            rows.append(np.repeat(table, number // len(table), axis=0))
        sides = [np.split(each, 2, axis=-1) for each in rows]
        timed, priced = (
            np.concatenate([each.ravel() for each in side])
            for side in zip(*sides, strict=True)
        )
        return timed, priced

    def _led(self, some: Labels, each: Whole, step: _Step) -> tuple[Whole, Labels]:
        """Return the layers that labels lead to, and labels there that are allowed.

        Each step is one of the label with that number.
        """
        look()
        allowed = self._allowed
        at, state = some.at[each], some.state[each] + step.state
        us = some.us[each] + step.us
        here = step.where * (self._stages.layers + 1) + step.last
        here = here * len(allowed.highs) + at
        on = np.flatnonzero(us + self._timed[here] <= allowed.most_us[at, state])
        at, each = at[on], each[on]
        cost = some.cost[each] + allowed.us_cost[at] * step.us[on]
        cost += allowed.often[at] * step.paid[on]
        kept = np.flatnonzero(cost + self._priced[here[on]] <= allowed.most_cost[at])
        on, at, cost = on[kept], at[kept], cost[kept]
        return step.last[on], Labels(at, step.where[on], state[on], us[on], cost)

    def _keep(self, layer: Whole, some: Labels) -> None:
        self._waiting += len(some.at)
        order = np.argsort(layer, kind="stable")
        some, layer = some.some(order), layer[order]
        edges = np.flatnonzero(np.diff(layer, prepend=-1, append=-1))
        for begin, end in pairwise(edges.tolist()):
            self._pending[layer[begin]].append(some.some(slice(begin, end)))
        if self._waiting > _MOST:  # many of which come to one
            for at in range(len(self._pending)):
                each = self._merged(at)
                self._pending[at] = [each]
                self._waiting += len(each.at)
            if self._waiting > _MOST // 2:
                raise TooMany

    def _merged(self, layer: int) -> Labels:
        none = np.zeros(0, np.int64)
        each = [Labels(*[none] * 5), *self._pending[layer]]
        self._pending[layer] = []
        some = Labels(*(np.concatenate(x) for x in zip(*each, strict=True)))
        self._waiting -= len(some.at)
        states = len(self._states.use)
        key = some.at * int(self._codes[-1]) + some.where
        key = key * states + some.state
        order = np.argsort(key, kind="stable")
        key, some = key[order], some.some(order)
        if not len(key):
            return some
        begin = np.flatnonzero(np.diff(key, prepend=-1))
        us, cost = (np.minimum.reduceat(x, begin) for x in (some.us, some.cost))
        merged = some.some(begin)._replace(us=us, cost=cost)
        return merged.some(needed(merged, key[begin] // states, self._states))

    def _go_on(self, first: int) -> None:
        some = self._merged(first)
        both = some.where >= _SHARED + self._count
        both &= some.where < self._codes[0]
        several = some.some(both | (some.where == _SEVERAL))
        if self._spread is not None and len(several.at):
            self._in_several(first, several, self._spread)
        next_ = some.some(some.where == _NEXT)
        for c, kind in enumerate(self._stages.kinds):
            mine = (some.where >= self._codes[c]) & (some.where < self._codes[c + 1])
            inside = [some.some(mine)]
            for k in range(1, kind.gpus + 1):
                inside.append(self._begun(first, c, k, next_))
                if k < kind.gpus:  # the stage before has one or more
                    shared = some.some(some.where == _SHARED + c)
                    inside.append(self._begun(first, c, k, shared))
            whole = Labels(*(np.concatenate(x) for x in zip(*inside, strict=True)))
            self._in_a_node(first, c, whole)

    def _begun(self, first: int, kind: int, gpus: int, some: Labels) -> Labels:
        """Return labels that begin a node of a kind, so many of whose GPUs are used."""
        free = self._states.gpus[kind] - self._states.use[some.state, kind]
        each = np.flatnonzero(gpus <= free)
        number = gpus - 1 if self._numbers[kind] > 1 else 0
        side = self._stages.kinds[kind].gpus + 1
        code = int(self._codes[kind]) + number * side + gpus
        paid, raised = self._prices.gpu[kind] * gpus, self._states.strides[kind] * gpus
        layer, where, us, price = (
            np.full_like(each, x) for x in (first, code, 0, paid)
        )
        return self._led(some, each, _Step(layer, where, raised, us, price))[1]

    def _in_a_node(self, first: int, kind: int, some: Labels) -> None:
        """Let labels in a node of a kind lead to those behind their next stage."""
        highs = self._allowed.highs
        edges = self._edges(kind, first, int(highs.max()))
        side, layers = self._stages.kinds[kind].gpus + 1, self._stages.layers
        count = max(1, _PAIRS // max(1, len(edges.gpus)))
        for begin in range(0, len(some.at), count):
            part = some.some(slice(begin, begin + count))
            number, left = np.divmod(part.where - self._codes[kind], side)
            able = edges.gpus <= left[:, None]
            able &= edges.inner <= highs[part.at, None]
            i, e = np.nonzero(able)
            on = np.flatnonzero(edges.light[number[i], e])
            i, e = i[on], e[on]
            stays, last = left[i] > edges.gpus[e], edges.last[e]
            us = np.where(stays, edges.inner[e], edges.outer[e])
            able = np.where(stays, last < layers, us <= highs[part.at[i]])
            where = np.where(stays, part.where[i] - edges.gpus[e], _NEXT)
            paid = edges.paid[number[i], e]
            ways = [(able, where, us)]
            if self._spread is not None:
                ends = ~stays & (last < layers)
                where = np.full_like(where, _SEVERAL)
                ways.append((ends & able, where, us))
                where = np.full_like(where, _SHARED + self._count + kind)
                ends &= number[i] + 1 < side - 1  # GPUs of the node are left
                ways.append((ends, where, edges.inner[e]))
            for able, where, us in ways:
                to = np.flatnonzero(able)
                step = _Step(last[to], where[to], 0, us[to], paid[to])
                self._keep(*self._led(part, i[to], step))

    def _in_several(self, first: int, some: Labels, spread: _Spread) -> None:
        """Let labels lead to those behind a stage in several nodes."""
        stages, use, highs = self._stages, self._states.use, self._allowed.highs
        begin, end = stages.begin[first], stages.begin[first + 1]
        for at, every in enumerate(spread.us[:, begin:end]):
            run, v = np.nonzero(every <= highs.max())
            ways = (_NEXT, _SEVERAL)
            if at:
                shared = spread.use[v, at - 1] > 0
                run, v = run[shared], v[shared]
                ways = _SHARED + at - 1, _SHARED + self._count + at - 1
            if not len(run):
                continue
            us, paid = every[run, v], spread.cost[begin + run, v]
            count = max(1, _PAIRS // len(run))
            for some_at in range(0, len(some.at), count):
                part = some.some(slice(some_at, some_at + count))
                i, e = np.nonzero(us <= highs[part.at, None])
                used = use[part.state[i]] + spread.use[v[e]]
                fits = (used <= self._states.gpus).all(1)
                kind = part.where[i] - _SHARED - self._count
                has = spread.use[v[e], np.maximum(kind, 0)] > 0
                fits &= has | (kind < 0)  # its node is one of theirs
                i, e = i[fits], e[fits]
                last = first + 1 + run[e]
                for where in ways:
                    on = np.flatnonzero((last < stages.layers) | (where == _NEXT))
                    raised, at_ = spread.state[v[e[on]]], np.full_like(on, where)
                    step = _Step(last[on], at_, raised, us[e[on]], paid[e[on]])
                    self._keep(*self._led(part, i[on], step))


def _together(one: Whole, other: Whole, size: int) -> Whole:
    """Return the least time of both, by [GPUs of both, samples, column]."""
    shape = len(one), len(other), size + 1, one.shape[2]
    found = np.full(shape, NONE_US, np.int64)
    for s in range(one.shape[1]):
        look()
        for more in range(size + 1 - s):
            slow = np.maximum(one[:, None, s], other[None, :, more])
            np.minimum(found[:, :, s + more], slow, out=found[:, :, s + more])
    both: Whole = found.reshape(-1, size + 1, one.shape[2])
    return both


def needed(some: Labels, group: Whole, states: States) -> Flags:
    """Tell of which labels no other one takes its place.

    One of the same `group` does that takes no more time on no more GPUs of any
    kind, and costs no more. Groups are next to each other.
    """
    found = np.ones(len(group), np.bool_)
    edges = np.flatnonzero(np.diff(group, prepend=-1, append=-1))
    if _SPARSE * len(group) < (len(edges) - 1) * len(states.use):
        return found  # hardly any state has a label
    most = max(1, _CELLS // len(states.use))
    for first in range(0, len(edges) - 1, most):
        look()
        last = min(first + most, len(edges) - 1)
        part = slice(edges[first], edges[last])
        sizes = np.diff(edges[first : last + 1])
        row = np.repeat(np.arange(last - first), sizes)
        us, cost = some.us[part], some.cost[part]
        least = np.full((last - first, len(states.use)), NONE, np.int64)
        beside = np.zeros_like(least)
        least[row, some.state[part]] = us
        beside[row, some.state[part]] = cost
        shape = last - first, *states.sides
        least, beside = least.reshape(shape), beside.reshape(shape)
        own = np.ones(shape, np.bool_)
        for axis in range(1, len(shape)):
            each = [np.moveaxis(x, axis, 0) for x in (least, beside, own)]
            for i in range(1, shape[axis]):
                took, costs, mine = each
                less = took[i - 1] <= took[i]
                took[i][less] = took[i - 1][less]
                costs[i][less] = costs[i - 1][less]
                mine[i][less] = False
        at = row, some.state[part]
        best = beside.reshape(len(least), -1)[at]
        found[part] = own.reshape(len(least), -1)[at] | (best > cost)
    return found
