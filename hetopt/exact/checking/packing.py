"""Whole pipelines of a leaf, put together by the GPUs that they use.

Prices take fractions of pipelines. Here a pipeline is whole: for every number of GPUs
of each kind, its *state*, the least sum of stage times tells how many whole
micro-batches it takes, in each interval of its slowest stage. No plan takes the batch
where no number of pipelines that the box has does, on all GPUs together.

At any prices, all that a plan uses is worth no more than there is: V. If each pipeline
pays for what it takes but for x (which is positive), one of P pipelines that take the
batch Q together pays no more than V - Q + (P - 1) x beyond what it takes. Others are in
no plan of the box; neither are those that take less than their GPUs are worth, but for
what they earn and that, nor those that take less than the other pipelines leave.
"""

from dataclasses import replace
from math import ceil
from typing import NamedTuple

import numpy as np

from ...errors import Unsupported
from .labels import Allowed, States, Sums, TooMany
from .leaf import Leaf, Span
from .paths import Paths
from .prices import NONE, Prices
from .sharing import Box
from .stages import UNIT, Stages, Whole

_MOST_STATES = 60_000
_MOST_CELLS = 2_000_000  # of states and intervals at once
_MOST_INTERVALS = 4_000
_FIRST, _KEPT = 1.1, 1.05  # of intervals that are looked at by prices, and by states
_FINEST = 1.0015
_SHARE = 4  # of what all but one may pay too little for
_NOBODY = 1 << 40  # sequences


_Interval = tuple[int, Span, int]  # of a part, with its halves


class _Left(NamedTuple):
    """The pipelines that are left of all packings that take the batch.

    A pipeline takes what is `wanted` by the GPUs that it uses, or more, and its slowest
    stage is in one of the `spans` of its part.
    """

    wanted: Whole
    spans: list[list[Span]]

    def says_more_than(self, other: "_Left") -> bool:
        """Tell whether more is wanted, or fewer times are left."""
        mine, its = (
            sum(end - begin for spans in each.spans for begin, end in spans)
            for each in (self, other)
        )
        return mine < its or bool((self.wanted > other.wanted).any())


class Packing:
    """Pipelines of all parts of a leaf."""

    def __init__(
        self, stages: Stages, box: Box, prices: Prices, leaves: list[Leaf]
    ) -> None:
        """Put pipelines of the parts together; any prices will do."""
        self._stages, self._box, self._prices = stages, box, prices
        self._leaves = [leaf for leaf in leaves if len(leaf.times)]
        self._fewest = box.fewest(stages.sizes[box.size[1]])
        self._most = box.pipelines
        self._hosts = [low for low, _ in box.hosts]
        self._looked = 0

    def refuted(self) -> bool:
        """Tell whether no packing takes the batch.

        Raises `Unsupported` where there is too much to look at.
        """
        timed = [leaf for leaf in map(_timed, self._leaves) if leaf is not None]
        if len(timed) < len(self._leaves):
            return False  # in no time a pipeline takes any number
        self._leaves = timed
        gpus = [kind.gpus * len(kind.nodes) for kind in self._stages.kinds]
        if np.prod([n + 1.0 for n in gpus]) > _MOST_STATES:
            raise _too_large()
        self._states = States(self._stages)
        self._sums = [Sums(leaf, self._states) for leaf in self._leaves]
        wanted = np.zeros(len(self._states.use), np.int64)
        left = _Left(wanted, [leaf.spans(_FIRST) for leaf in self._leaves])
        while True:
            before, found = left, self._look(left)
            if found is None:
                return True
            if not found.says_more_than(before):
                return False
            left = found

    def _look(self, left: "_Left") -> "_Left | None":
        """Return what is left of what was; None where no packing takes the batch.

        Intervals are divided first where that may shake a packing by what its pipelines
        take in them, and then all of them: in finer ones fewer are cheap enough.
        """
        wanted, some = left.wanted, self._intervals(left.spans)
        least = [self._least(leaf) for leaf in self._leaves]
        sure = np.zeros_like(wanted)
        kept: dict[_Interval, Whole] = {}
        while some:
            self._looked += len(some)
            if self._looked > _MOST_INTERVALS:
                raise _too_large()
            for n in range(len(self._leaves)):
                mine = [x for x in some if x[0] == n]
                found = self._taken(n, mine, np.maximum(wanted, least[n]), sure)
                each = (np.where(x < least[n], 0, x) for x in found)
                kept.update(zip(mine, each, strict=True))
            one = np.max([np.zeros_like(sure), *kept.values()], axis=0)
            together, others = self._together(one)
            ends = (int(x.flat[-1]) for x in together[self._fewest :])
            if max(ends, default=0) < self._stages.batch:
                return None
            rest = np.minimum(_NOBODY, self._stages.batch - others)[::-1]
            wanted = np.maximum(wanted, rest)
            for interval, taken in [*kept.items()]:
                taken[taken < wanted] = 0
                if not taken.any():
                    del kept[interval]
            wide = [x for x in kept if x[1][1] - x[1][0] > 1]
            packed = self._packed(one, together)
            loose = [
                x for x in wide if ((kept[x] == one) & (kept[x] > sure))[packed].any()
            ]
            some = []
            for n, span, halves in loose or wide:
                some += [(n, x, halves) for x in self._leaves[n].divided(span)]
                del kept[n, span, halves]
        spans: list[list[Span]] = [[] for _ in least]
        for n, span, _ in sorted(kept):
            spans[n].append(span)
        return _Left(wanted, spans) if kept else None

    # -- one pipeline ------------------------------------------------------------------

    def _intervals(self, left: list[list[Span]]) -> list[_Interval]:
        """Return intervals whose pipelines may be in a packing that takes the batch.

        They are of those that are `left` of each part.

        And keep how much these may pay beyond what they take.
        """
        prices = self._prices
        gap = prices.value(self._stages, self._box) - self._stages.batch * prices.scale
        enough = max(0, gap / (_SHARE * max(1, self._most - 1)))
        each: list[tuple[int, Span, int, int]] = []
        for n, (leaf, sums) in enumerate(zip(self._leaves, self._sums, strict=True)):
            spans = [*left[n]]
            while spans:
                at = sums.paths.at_once
                some, spans = spans[-at:], spans[:-at]
                spare, halves = leaf.spare(sums.paths, *leaf.ends(some))
                pairs = zip(some, spare.tolist(), halves.tolist(), strict=True)
                for span, more, half in pairs:
                    if -more > enough and leaf.is_wide(span, _FINEST):
                        spans += leaf.divided(span)
                    else:
                        each.append((n, span, half, more))
        least = min([0, *(more for *_, more in each)])
        self._allowed = ceil(gap) - (self._most - 1) * least
        found: list[_Interval] = []
        for n, span, half, more in sorted(each):
            if more > self._allowed:
                continue
            if found and found[-1][::2] == (n, half) and found[-1][1][1] == span[0]:
                both = found[-1][1][0], span[1]
                if not self._leaves[n].is_wide(both, _KEPT):
                    found[-1] = n, both, half
                    continue
            found.append((n, span, half))
        return found

    def _least(self, leaf: Leaf) -> Whole:
        """Return the least that a pipeline takes for what its GPUs are worth."""
        prices, stages, b = self._prices, self._stages, leaf.part.options.size
        units = int(stages.high[stages.layers - 1]) + stages.layers
        holds = (max(prices.share) + prices.held) * b * units
        # What each replica earns is rounded up.
        held = -(-holds // (self._box.replicas[0] * UNIT)) + b * stages.layers
        paid = self._states.use @ np.array(prices.gpu, np.int64) + prices.pipeline
        short = paid - min(_NOBODY * prices.scale, held + self._allowed)
        return np.maximum(1, -(-short // prices.scale))

    def _taken(
        self, n: int, some: list[_Interval], asked: Whole, sure: Whole
    ) -> list[Whole]:
        """Return the most sequences of pipelines of a part, by the GPUs that they use.

        Those that take less than what is `asked` may be left out; what some surely take
        is raised.
        """
        leaf, found = self._leaves[n], list[Whole]()
        v, b = self._stages.costs.schedule.interleave, leaf.part.options.size
        at_once = self._sums[n].paths.at_once
        count = min(at_once, max(1, _MOST_CELLS // len(asked)))
        while len(found) < len(some):
            part = some[len(found) : len(found) + count]
            lows, highs = leaf.ends([span for _, span, _ in part])
            most, us_cost, most_cost = leaf.most(lows), list[int](), list[int]()
            for i, (_, _, half) in enumerate(part):
                need = leaf.need(half, lows[i : i + 1], most[i : i + 1])
                us_cost.append(leaf.us_cost(half))
                most_cost.append(int(need[0]) + v * int(lows[i]) * self._allowed)
            if max(most_cost) >= NONE // 2:
                raise _too_large()
            times = v * leaf.part.left_us + lows[:, None]
            each = np.minimum(-(-asked // b), self._stages.batch)
            most_us = times - v * lows[:, None] * each
            most_us = np.where(asked > most[:, None], -1, most_us)
            allowed = Allowed(
                np.array(us_cost),
                *(v * lows, highs, np.array(most_cost), self._above(most_us)),
            )
            try:
                sums = self._sums[n].least(allowed)
            except TooMany:
                if len(part) == 1:
                    raise _too_large() from None
                count = len(part) // 2  # fewer intervals at once
                continue
            if v > 1:  # a path may be left out where one on fewer GPUs is as good
                sums = -self._above(-sums[:, ::-1])[:, ::-1]
            able = sums < NONE // 2
            sums = np.where(able, sums, 0)
            for i in range(len(part)):
                pairs = (
                    (lows[i], most[i]),
                    (max(1, highs[i]), leaf.most(highs[i : i + 1])[0]),
                )
                low, high = (
                    b * self._rounds(np.clip(n, 0, limit // b), sums[i], highs[i])
                    for n, limit in (
                        ((v * leaf.part.left_us + us - sums[i]) // (v * us), limit)
                        for us, limit in pairs
                    )
                )
                low, high = low * able[i], high * able[i]
                found.append(self._hosted(low))
                np.maximum(sure, self._hosted(high), out=sure)
        return found

    def _rounds(self, n: Whole, sums: Whole, high: int) -> Whole:
        """Return the most micro-batches up to n that whole rounds of all stages have.

        Interleaved pipelines have no others. A stage has a GPU or more of its own, and
        a layer for each virtual stage; none is slower than `high`, so there are
        `sum / high` of them or more. `sums` are the least on as many GPUs or fewer.
        """
        v = self._stages.costs.schedule.interleave
        if v == 1:
            return n
        found, most = np.zeros_like(n), self._states.use.sum(1)
        for number in range(1, min(self._stages.layers // v, int(most.max())) + 1):
            able = (number <= most) & (sums <= number * high)
            found = np.maximum(found, able * (n // number * number))
        return found

    def _hosted(self, taken: Whole) -> Whole:
        """Return sequences of a pipeline that uses a GPU or more of each host.

        One without may stand for others that take no more on more GPUs: it takes as
        much on the fewest GPUs of hosts.
        """
        found = taken.reshape(self._states.sides).copy()
        for axis, least in enumerate(self._hosts):
            by_gpus = np.moveaxis(found, axis, 0)
            by_gpus[least] = by_gpus[: least + 1].max(0)
            by_gpus[:least] = 0
        return found.ravel()

    def _above(self, most_us: Whole) -> Whole:
        """Return the most of any state with no fewer GPUs, by [interval, state]."""
        found = most_us.reshape(len(most_us), *self._states.sides)
        for axis in range(1, found.ndim):
            back = np.flip(found, axis)
            found = np.flip(np.maximum.accumulate(back, axis), axis)
        return found.reshape(most_us.shape)

    # -- all pipelines -----------------------------------------------------------------

    def _together(self, one: Whole) -> tuple[list[Whole], Whole]:
        """Return what numbers of pipelines take on so many GPUs, or fewer.

        By number; and the most of all others beside one. Below 0 where GPUs are too
        few.
        """
        sides = self._states.sides
        items = self._items(one)
        none = np.full(sides, -_NOBODY, np.int64)
        found, others = [np.zeros(sides, np.int64)], none.copy()
        for number in range(self._most):
            before, more = found[-1], none.copy()
            if number >= self._fewest - 1:
                np.maximum(others, before, out=others)
            for use, taken in items:
                into = more[tuple(slice(u, None) for u in use)]
                pairs = zip(sides, use, strict=True)
                rest = before[tuple(slice(n - u) for n, u in pairs)]
                np.maximum(into, rest + taken, out=into)
            more[more < 0] = -_NOBODY
            found.append(more)
        return found, others.ravel()

    def _items(self, one: Whole) -> list[tuple[list[int], int]]:
        """Return the GPUs of pipelines that take more than any with fewer."""
        best = one.reshape(self._states.sides)
        less = np.zeros_like(best)
        for axis in range(best.ndim):
            best = np.maximum.accumulate(best, axis)
        for axis in range(best.ndim):
            on = (slice(None),) * axis
            into = less[(*on, slice(1, None))]
            np.maximum(into, best[(*on, slice(None, -1))], out=into)
        some = np.flatnonzero(one > less.ravel())
        use, taken = self._states.use[some].tolist(), one[some].tolist()
        return [*zip(use, taken, strict=True)]

    def _packed(self, one: Whole, together: list[Whole]) -> list[int]:
        """Return the pipelines of one packing that takes most, as states."""
        ends = [int(x.flat[-1]) for x in together]
        number = max(range(self._fewest, len(together)), key=ends.__getitem__)
        at, found = np.array(self._states.gpus), []
        items = [(np.array(use), taken) for use, taken in self._items(one)]
        while number:
            now = together[number][tuple(at)]
            for use, taken in items:
                if (use <= at).all():
                    rest = at - use
                    if together[number - 1][tuple(rest)] + taken == now:
                        found.append(int(use @ self._states.strides))
                        at, number = rest, number - 1
                        break
        return found


def _timed(leaf: Leaf) -> Leaf | None:
    """Return a leaf whose pipelines take some time; None where one may take none."""
    if leaf.ends([(0, 1)])[0][0] > 0:
        return leaf
    none = np.zeros(1, np.int64)
    if int(Paths(leaf).least(1, none, none)[0]) < NONE // 2:
        return None
    slowest = max(1, leaf.box.slowest[0]), leaf.box.slowest[1]
    return replace(leaf, box=replace(leaf.box, slowest=slowest))


def _too_large() -> Unsupported:
    return Unsupported(
        "whole pipelines are more than a check can look at: plan again to prove the "
        "bound"
    )
