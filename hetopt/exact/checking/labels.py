"""Least sums of the stages of a path, by the GPUs that it uses of each kind.

Paths are followed from their first layer, in several intervals at once. A *label*
stands between two stages: the interval, how many stages follow, where the next one
lies, and the GPUs used so far, as one number, the *state*. It keeps the least time and
the least cost of the stages before it, each by itself. Where the next one lies is 0 (in
one node, of any kind), 1 (in several), or the kind, the number and the GPUs left of the
node at hand, as in `paths`. GPUs count where a node is begun.

Whatever a label leads to takes, and costs, no less than it and the potential there. So
labels that would exceed what is allowed go. What is left is few of all that there are.
"""

from itertools import pairwise
from typing import NamedTuple

import numpy as np

from .paths import Paths, Potentials
from .prices import NONE, Part, Prices, earned
from .sharing import Box, Sharing
from .stages import NONE_US, Flags, Stages, Whole

_PAIRS = 1_000_000  # of labels and stages at once
_NEXT, _SEVERAL, _INSIDE = 0, 1, 2  # where the next stage lies


class States:
    """Numbers of GPUs of each kind."""

    def __init__(self, stages: Stages) -> None:
        """Number them; those of the last kind are next to each other."""
        self.gpus = [kind.gpus * len(kind.nodes) for kind in stages.kinds]
        self.sides = tuple(n + 1 for n in self.gpus)
        self.use = np.indices(self.sides).reshape(len(self.sides), -1).T
        each = [int(np.prod(self.sides[c + 1 :])) for c in range(len(self.sides))]
        self.strides = np.array(each, np.int64)


class _Labels(NamedTuple):
    """Labels at one layer, by column."""

    at: Whole  # interval
    place: Whole
    where: Whole
    state: Whole
    us: Whole
    cost: Whole

    def some(self, chosen: Whole | Flags | slice) -> "_Labels":
        """Return the chosen ones."""
        return _Labels(*(column[chosen] for column in self))


class _Edges(NamedTuple):
    """Stages in one node of a kind from one layer on.

    `paid` and `light` are by the number of a node, and stage.
    """

    gpus: Whole
    place: Whole
    last: Whole
    inner: Whole
    outer: Whole
    paid: Whole
    light: Flags


class _Spread(NamedTuple):
    """Stages in several nodes: GPUs by kind, [place, run, i] times, [run, i] costs."""

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

    def __init__(
        self, stages: Stages, box: Box, prices: Prices, part: Part, states: States
    ) -> None:
        """Compute what stages cost."""
        self._stages, self._prices, self._part = stages, prices, part
        self._states, self._sharing = states, Sharing(stages, box, part.sync_us)
        self._box = box
        self.paths = Paths(stages, box, prices, part)
        self._numbers = [
            1 if all(len(one.together) == 1 for one in each) else kind.gpus
            for kind, each in zip(stages.kinds, self.paths.each, strict=True)
        ]
        # Where codes of kinds begin.
        pairs = zip(self._numbers, stages.kinds, strict=True)
        each = [number * (kind.gpus + 1) for number, kind in pairs]
        self._codes = np.cumsum([_INSIDE, *each])
        self._spread: _Spread | None = None
        if self.paths.fronts[0].shape[2]:
            self._spread = self._made_spread()

    # -- stages -----------------------------------------------------------------------

    def _edges(self, kind: int, first: int, high: int) -> _Edges:
        """Return stages in a node from a layer on, none slower than `high`."""
        stages, numbers = self._stages, self._numbers[kind]
        begin, end = stages.begin[first], stages.begin[first + 1]
        found: list[_Edges] = []
        for one in self.paths.each[kind]:
            for place in range(self._part.options.places):
                inner = one.stage.inner[place, begin:end]
                able = np.flatnonzero(inner <= high)
                if not len(able):
                    continue
                paid = np.zeros((numbers, len(able)), np.int64)
                light = np.zeros((numbers, len(able)), np.bool_)
                for i, k in enumerate(one.together):
                    row = k - 1 if numbers > 1 else 0
                    paid[row] = one.paid[i, begin + able]
                    light[row] = one.light[i, begin + able]
                outer = one.stage.outer[place, begin + able]
                gpus, at = np.full((2, len(able)), [[one.stage.gpus], [place]])
                last = first + 1 + able
                found.append(_Edges(gpus, at, last, inner[able], outer, paid, light))
        if not found:
            none = np.zeros(0, np.int64)
            empty = np.zeros((numbers, 0), np.int64)
            return _Edges(none, none, none, none, none, empty, empty > 0)
        return _Edges(*(np.concatenate(x, axis=-1) for x in zip(*found, strict=True)))

    def _made_spread(self) -> _Spread:
        """Return stages in several nodes by the GPUs that they use.

        None of whose replicas is slower than their time. Each replica may earn what one
        of any kind does, and there are as many as a micro-batch has sequences, or less.
        """
        stages, states, options = self._stages, self._states, self._part.options
        several, size = options.several, options.size
        known = {t: self._sharing.of_replicas(t)[0] for t in {*several.degree.tolist()}}
        most = np.array([known[t] for t in several.degree.tolist()], np.int64)
        us = np.where(stages.low[:, None] <= most, several.us, NONE_US)
        us = np.where(us <= self._part.left_us, us, NONE_US)
        place, run = np.nonzero((us < NONE_US).any(2))
        us = us[place, run]
        found = np.zeros((1, 1, len(run)), np.int64)
        for c in range(len(stages.kinds)):
            own = self._of_kind(c, us)
            found = _together(found, own, size)
        found = found[:, -1]
        nodes = (states.use > 0) @ np.array([len(x.nodes) for x in stages.kinds])
        found[nodes < 2] = NONE_US
        every = found.copy()
        for c, stride in enumerate(states.strides.tolist()):  # fewer GPUs do as well
            some = np.flatnonzero(states.use[:, c])
            found[some] = np.where(
                every[some - stride] <= every[some], NONE_US, found[some]
            )
        able = np.flatnonzero((found < NONE_US).any(1))
        shape = options.places, len(stages.first), len(able)
        times = np.full(shape, NONE_US, np.int64)
        times[place, run] = found[able].T
        prices, least = self._prices, self._box.replicas[0]
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

        `NONE` where there is no path.
        """
        stages, layers = self._stages, self._stages.layers
        none = np.zeros(len(allowed.highs), np.int64)
        self._allowed = allowed
        self._timed = self.paths.potentials(1, none, allowed.highs)
        lows = allowed.often // stages.costs.interleave
        self._priced = self.paths.potentials(allowed.us_cost, lows, allowed.highs)
        self._pending: list[list[_Labels]] = [[] for _ in range(layers + 1)]
        at, place, where = (
            x.ravel() for x in np.indices((len(none), self._part.options.places, 2))
        )
        zero = np.zeros_like(at)
        self._keep(0, _Labels(at, place, where, zero, zero, zero))
        for first in range(layers):
            self._go_on(first)
        found = np.full(allowed.most_us.shape, NONE, np.int64)
        end = self._merged(layers)
        np.minimum.at(found, (end.at, end.state), end.us)
        return found

    def _rest(self, every: Potentials, layer: Whole | int, some: _Labels) -> Whole:
        """Return the potentials that labels stand at."""
        anywhere = every.anywhere[some.place, layer, some.at]
        several = every.several[some.place, layer, some.at]
        found: Whole = np.where(some.where == _SEVERAL, several, anywhere)
        for c, table in enumerate(every.tables):
            mine = np.flatnonzero(
                (some.where >= self._codes[c]) & (some.where < self._codes[c + 1])
            )
            if len(mine):
                code = some.where[mine] - self._codes[c]
                number, left = np.divmod(code, table.shape[1])
                at = layer if isinstance(layer, int) else layer[mine]
                found[mine] = table[number, left, some.place[mine], at, some.at[mine]]
        return found

    def _allows(self, layer: Whole | int, some: _Labels) -> Flags:
        """Tell which labels may be part of an allowed path."""
        allowed = self._allowed
        us = some.us + self._rest(self._timed, layer, some)
        cost = some.cost + self._rest(self._priced, layer, some)
        found: Flags = us <= allowed.most_us[some.at, some.state]
        found &= (us < NONE // 2) & (cost <= allowed.most_cost[some.at])
        return found

    def _keep(self, layer: Whole | int, some: _Labels) -> None:
        """Keep labels at their layers that may be part of an allowed path."""
        kept = np.flatnonzero(self._allows(layer, some))
        some = some.some(kept)
        if isinstance(layer, int):
            self._pending[layer].append(some)
            return
        layer = layer[kept]
        order = np.argsort(layer, kind="stable")
        some, layer = some.some(order), layer[order]
        edges = np.flatnonzero(np.diff(layer, prepend=-1, append=-1))
        for begin, end in pairwise(edges.tolist()):
            self._pending[layer[begin]].append(some.some(slice(begin, end)))

    def _merged(self, layer: int) -> _Labels:
        """Return the labels at a layer, each once."""
        each = self._pending[layer]
        self._pending[layer] = []
        if not each:
            none = np.zeros(0, np.int64)
            return _Labels(none, none, none, none, none, none)
        some = _Labels(*(np.concatenate(x) for x in zip(*each, strict=True)))
        places, states = self._part.options.places, len(self._states.use)
        key = (some.at * places + some.place) * int(self._codes[-1]) + some.where
        key = key * states + some.state
        order = np.argsort(key, kind="stable")
        key, some = key[order], some.some(order)
        if not len(key):
            return some
        begin = np.flatnonzero(np.diff(key, prepend=-1))
        us, cost = (np.minimum.reduceat(x, begin) for x in (some.us, some.cost))
        return some.some(begin)._replace(us=us, cost=cost)

    def _go_on(self, first: int) -> None:
        """Let the labels at a layer lead to others."""
        some = self._merged(first)
        several = some.some(some.where == _SEVERAL)
        if self._spread is not None and len(several.at):
            self._in_several(first, several, self._spread)
        next_ = some.some(some.where == _NEXT)
        for c, kind in enumerate(self._stages.kinds):
            mine = (some.where >= self._codes[c]) & (some.where < self._codes[c + 1])
            inside = [some.some(mine)]
            for k in range(1, kind.gpus + 1):
                begun = self._begun(c, k, next_)
                inside.append(begun.some(self._allows(first, begun)))
            whole = _Labels(*(np.concatenate(x) for x in zip(*inside, strict=True)))
            self._in_a_node(first, c, whole)

    def _begun(self, kind: int, gpus: int, some: _Labels) -> _Labels:
        """Return labels that begin a node of a kind, so many of whose GPUs are used."""
        some = some.some(
            self._states.use[some.state, kind] + gpus <= self._states.gpus[kind]
        )
        number = gpus - 1 if self._numbers[kind] > 1 else 0
        side = self._stages.kinds[kind].gpus + 1
        code = self._codes[kind] + number * side + gpus
        paid = self._prices.gpu[kind] * gpus * self._allowed.often[some.at]
        return some._replace(
            where=np.full_like(some.where, code),
            state=some.state + gpus * self._states.strides[kind],
            cost=some.cost + paid,
        )

    def _in_a_node(self, first: int, kind: int, some: _Labels) -> None:
        """Let labels in a node of a kind lead to those behind their next stage."""
        allowed, places = self._allowed, self._part.options.places
        edges = self._edges(kind, first, int(allowed.highs.max()))
        side, layers = self._stages.kinds[kind].gpus + 1, self._stages.layers
        count = max(1, len(edges.gpus))
        for begin in range(0, len(some.at), max(1, _PAIRS // count)):
            part = some.some(slice(begin, begin + max(1, _PAIRS // count)))
            number, left = np.divmod(part.where - self._codes[kind], side)
            able = edges.gpus <= left[:, None]
            able &= edges.inner <= allowed.highs[part.at, None]
            able &= np.minimum(edges.place + 1, places - 1) == part.place[:, None]
            i, e = np.nonzero(able)
            on = np.flatnonzero(edges.light[number[i], e])
            i, e = i[on], e[on]
            was, left = part.some(i), left[i] - edges.gpus[e]
            last, place = edges.last[e], edges.place[e]
            cost = was.cost + allowed.often[was.at] * edges.paid[number[i], e]
            us_cost = allowed.us_cost[was.at]
            near, away = edges.inner[e], edges.outer[e]
            inner = was._replace(
                place=place, us=was.us + near, cost=cost + us_cost * near
            )
            inside = np.flatnonzero((left > 0) & (last < layers))
            nearer = inner._replace(where=was.where - edges.gpus[e])
            self._keep(last[inside], nearer.some(inside))
            if self._spread is not None:
                to = np.flatnonzero((left == 0) & (last < layers))
                shared = inner._replace(where=np.full_like(place, _SEVERAL))
                self._keep(last[to], shared.some(to))
            to = np.flatnonzero((left == 0) & (away <= allowed.highs[was.at]))
            outer = was._replace(
                place=place,
                where=np.full_like(place, _NEXT),
                us=was.us + away,
                cost=cost + us_cost * away,
            )
            self._keep(last[to], outer.some(to))

    def _in_several(self, first: int, some: _Labels, spread: _Spread) -> None:
        """Let labels lead to those behind a stage in several nodes."""
        allowed, options, stages = self._allowed, self._part.options, self._stages
        use, gpus = self._states.use, np.array(self._states.gpus)
        begin, end = stages.begin[first], stages.begin[first + 1]
        top = int(allowed.highs.max())
        for place in range(options.places):
            after = min(place + 1, options.places - 1)
            mine = some.some(some.place == after)
            run, v = np.nonzero(spread.us[place, begin:end] <= top)
            if not len(mine.at) or not len(run):
                continue
            us, cost = spread.us[place, begin + run, v], spread.cost[begin + run, v]
            step = max(1, _PAIRS // len(run))
            for at in range(0, len(mine.at), step):
                part = mine.some(slice(at, at + step))
                i, e = np.nonzero(us <= allowed.highs[part.at, None])
                fits = (use[part.state[i]] + spread.use[v[e]] <= gpus).all(1)
                i, e = i[fits], e[fits]
                was, last = part.some(i), first + 1 + run[e]
                paid = allowed.us_cost[was.at] * us[e] + allowed.often[was.at] * cost[e]
                for where in (_NEXT, _SEVERAL):
                    on = was._replace(
                        place=np.full_like(i, place),
                        where=np.full_like(i, where),
                        state=was.state + spread.state[v[e]],
                        us=was.us + us[e],
                        cost=was.cost + paid,
                    )
                    to = np.flatnonzero((last < stages.layers) | (where == _NEXT))
                    self._keep(last[to], on.some(to))


def _together(one: Whole, other: Whole, size: int) -> Whole:
    """Return the least time of both, by [GPUs of both, samples, column]."""
    shape = len(one), len(other), size + 1, one.shape[2]
    found = np.full(shape, NONE_US, np.int64)
    for s in range(one.shape[1]):
        for more in range(size + 1 - s):
            slow = np.maximum(one[:, None, s], other[None, :, more])
            np.minimum(found[:, :, s + more], slow, out=found[:, :, s + more])
    both: Whole = found.reshape(-1, size + 1, one.shape[2])
    return both
