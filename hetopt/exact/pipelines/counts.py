"""The integer master: whole pipelines, put together by the GPUs that they use.

The linear master takes fractions of pipelines, which costs nothing where there are
many, and much where there are few. Here a label of the path carries the GPUs used of
each class (decremental state-space relaxation: Righini and Salani 2008). So the least
sum of stage times is known for every number of GPUs u and every interval [m, m'] of the
slowest stage, and with it the most sequences w(u) of one pipeline, whole micro-batches.
A (max, +) knapsack over u puts pipelines together; where they take less than the batch,
no plan of the box takes it in time.

Three things keep that small. None of them can hide a plan.

*Reduced costs* (enumeration within the gap: Baldacci, Christofides and Mingozzi 2008).
At any prices the columns of a packing cost no more than all rows are worth. A column
that takes w sequences costs `Q w - violation` or more, where `violation` is what
pricing finds at the most. So in a packing that takes the batch no column costs more
than `gap + (P - 1) violation` beyond Q w, where `gap` is what all rows are worth beyond
the batch, and P the most pipelines. The potentials of `kernels.least` say which labels
can still be part of such a path. That holds for whole w, too: a column whose last
micro-batch does not quite fit may be too dear for what it takes.

*Others.* A pipeline on u GPUs takes part in a packing of the batch only where it takes
what the others leave: no less than `batch - others(N - u)`. This limits its sum of
times, and says which intervals have to be looked at more finely.

*Dominance.* A label goes where one of no more GPUs is neither slower nor dearer.
"""

from collections.abc import Callable, Sequence
from fractions import Fraction
from functools import cached_property
from itertools import pairwise
from math import ceil, inf, prod

import numpy as np
from numpy.typing import NDArray

from ...stages import NEVER, StageTable
from ...stages.classes import Whole
from ...stages.sync import UNIT
from . import kernels
from .arcs import Arcs, Span, exits_us
from .kernels import BIG, HALF, States
from .pricing import Array, Prices, Pricing, Rows, carried
from .schedule import Schedule

_NONE = 1 << 60  # sequences that nothing takes
_CLEAR, _ANY = 1 << 57, 1 << 62  # costs that labels carry, and more than any cost

Flags = NDArray[np.bool_]
_Interval = tuple[int, Span, int]  # of a part, with the mean that prices go by


class Vectors:
    """GPUs of each class, as states, and stages in several nodes by them.

    They are made once for each table of arcs.
    """

    def __init__(self, table: StageTable, schedule: Schedule) -> None:
        """Number the states of a cluster."""
        self.table, self.schedule = table, schedule
        #: How many states there are.
        self.count = prod([n + 1 for n in table.gpus.tolist()])
        self._kept: dict[int, tuple[Whole, Flags]] = {}
        self._allowed: dict[int, tuple[Flags, Whole, Whole]] = {}

    @property
    def are_few(self) -> bool:
        """Tell whether there are so few that whole pipelines are counted early."""
        return bool(self.count <= self.schedule.counting.few)

    @cached_property
    def states(self) -> States:
        """Return the states without stages in several nodes."""
        return States.of(self.table.gpus.tolist())

    def able(self, arcs: Arcs) -> bool:
        """Tell whether tables are small enough."""
        plan = self.schedule
        if self.count > plan.counting.states:
            return False
        exits = 1 + len(self.table.classes)
        entries = exits * self.count * len(self.table.runs)
        degrees = int(self.table.node_gpus.max()) if len(arcs.shared) else 0
        return bool(entries * degrees <= plan.counting.vectors)

    def several(self, arcs: Arcs, wanted: Flags) -> Whole:
        """Return times of stages in several nodes, of least degrees that are wanted.

        They are by [exit, least degree, run, state], and `wanted` by [degree, run].
        Others may be any numbers: most are never wanted, and take no memory.
        """
        key = arcs.size
        every = exits_us(self.table, arcs)
        if key not in self._kept:
            shape = (len(every), len(wanted), every.shape[1], self.count)
            self._kept[key] = np.empty(shape, np.int64), np.zeros_like(wanted)
        kept, known = self._kept[key]
        if (more := wanted & ~known).any():
            kept[:, more] = NEVER
            given = arcs.shared, self.table.nodes, self.states, arcs.size
            for us, found in zip(every, kept, strict=True):
                kernels.compiled("vector_us", us, *given, more, found)
            known |= more
        return kept

    def allowed(self, arcs: Arcs, nodes: Whole, least: Flags) -> tuple[Whole, Whole]:
        """Return the GPUs of stages in several nodes, and their times.

        `least` says by [number of nodes, degree, run] what degree a box allows, and
        `nodes` how many a state has. Boxes at other prices mostly allow the same: the
        last answer is kept, and shared.
        """
        key = arcs.size
        known = self._allowed.get(key)
        if known is None or not np.array_equal(known[0], least):
            self._allowed.pop(key, None)
            self._allowed[key] = known = least, *self._some(arcs, nodes, least)
        return known[1:]

    def _some(self, arcs: Arcs, nodes: Whole, least: Flags) -> tuple[Whole, Whole]:
        every = self.several(arcs, np.asarray(least.any(0)))
        us = np.full((len(every), *every.shape[2:]), NEVER, np.int64)
        for number, runs in zip(np.unique(nodes).tolist(), least, strict=True):
            for degree in np.flatnonzero(runs.any(1)).tolist():
                mine = runs[degree][:, None] & (nodes == number)
                us[:, mine] = every[:, degree][:, mine]
        some = np.flatnonzero((us < NEVER).any((0, 1)))
        use = np.ascontiguousarray(self.states.use[some])
        return use, np.ascontiguousarray(us[..., some])


class _Part:
    """Paths of one part of a box by the GPUs that they use, at some prices."""

    def __init__(self, pricing: Pricing, vectors: Vectors, prices: Prices, scale: int):
        self.pricing, self.prices, self._scale = pricing, prices, scale
        self.b, self.v, self.range = pricing.arcs.size, pricing.runs, pricing.arcs.range
        self.states = self._bound(vectors)
        # Potentials of times: those of an interval serve for its parts.
        self._timed: dict[Span, Whole] = {}

    def _bound(self, vectors: Vectors) -> States:
        """Return the states with the stages in several nodes that the box allows."""
        pricing, arcs, states = self.pricing, self.pricing.arcs, vectors.states
        if not len(arcs.shared):
            return states
        low, degrees = pricing.table.sync.low, arcs.shared[:, 1]
        nodes = np.maximum(2, -(-states.use // pricing.table.node_gpus).sum(1))
        # By [number of nodes, degree, run]: the least degree that may hold a run.
        numbers, none = np.unique(nodes).tolist(), int(degrees.max()) + 1
        lights = [pricing.coupling.several_light(number) for number in numbers]
        able = [np.where(low[:, None] <= light, degrees, none) for light in lights]
        least = np.array(able).min(2)[:, None] == np.arange(none)[:, None]
        use, us = vectors.allowed(arcs, nodes, least)
        gpu, share = np.array(self.prices.gpu), np.array(self.prices.share)
        most = int(share.max()) + self.prices.held
        # No stage has more replicas than a micro-batch has samples.
        held = self.b * pricing._earnings(np.array(most), pricing.table.sync.high)
        cost = (use @ gpu)[None, :] - held[:, None]
        return states._replace(
            vectors=use, vector_us=us, vector_cost=np.minimum(cost, pricing._limit())
        )

    @property
    def held(self) -> int:
        """Return what a path may earn at the most by what it holds."""
        pricing = self.pricing
        price = max(self.prices.share) + self.prices.held
        units = self.b * (pricing.rows.size_high + pricing.layers)
        each = -(-price * units // (pricing.rows.replicas * UNIT))
        return each + self.b * pricing.layers

    def labels(self, span: Span, mean: int, most_us: Whole, allowed: Fraction) -> Whole:
        """Return the least sums of stage times up to a label.

        They are by [side, next layer, state]: whole paths are those of side 0 behind
        the last layer. Paths are left out that cost too much or take longer than
        `most_us`, which is by state and not more for more GPUs; and also where one of
        fewer GPUs takes no more time.
        """
        (low, high), pricing = self.range(span), self.pricing
        graph, costs = pricing._costs(self.prices, mean * self.b)
        _, priced = pricing.potentials(self.prices, costs.time, span, self.v)
        if span not in self._timed:
            _, self._timed[span] = pricing.potentials(self.prices, 1, span, 0)
        # Of suffixes that begin in one node, in several, or within a node.
        least = [(x[0], x[1], x[2:]) for x in (self._timed[span], priced)]
        need = pricing.need(self.prices, self._scale, mean, np.array([low]))
        most = int(need[0]) + ceil(self.v * low * allowed)
        states = self.states
        sides = 2 + 2 * len(states.gpus) if len(states.vectors) else 1
        shape = sides, graph.run.shape[0], len(most_us)
        given = graph, costs, states, *least, high, self.v * low, most_us
        return kernels.filled("labels", shape, *given, most if most < _CLEAR else _ANY)

    def divided(self, span: Span) -> list[Span]:
        """Return the parts of an interval of more than one time."""
        found = [*pairwise([span[0], *self.pricing.arcs.cuts(span, 4), span[1]])]
        if span in self._timed:
            self._timed |= dict.fromkeys(found, self._timed[span])
        return found

    def taken(self, low: int, high: int, sums: Whole) -> Whole:
        """Return the most sequences of paths with such sums, or longer ones, by GPUs.

        Their slowest stages take from `low` to `high`. Interleaved, a pipeline has a
        multiple of its stages in micro-batches: as many as a multiple of any number of
        stages that may be, on GPUs of their own, of which a sum has `sum / high` or
        more. A sum of fewer GPUs counts as well: it may stand for a path of these.
        """
        if self.v > 1:
            sums = sums.reshape((self.states.gpus + 1).tolist())
            for axis in range(sums.ndim):
                sums = np.minimum.accumulate(sums, axis)
            sums = sums.reshape(-1)
        spare = self.v * self.pricing.limits.left_us + low - sums
        n = np.clip(spare // (self.v * low), 0, self.pricing.most(low) // self.b)
        n[sums >= HALF] = 0
        if self.v == 1:
            return self.b * n
        fewest, whole = -(-sums // high), np.zeros_like(n)
        most = np.minimum(self.states.use.sum(1), self.pricing.layers // self.v)
        for stages in range(max(1, fewest.min()), min(most.max(), n.max()) + 1):
            able = (fewest <= stages) & (stages <= most)
            np.maximum(whole, able * (n - n % stages), out=whole)
        return self.b * whole

    def most_us(self, span: Span, wanted: Whole) -> Whole:
        """Return the largest sums of paths that take what is wanted, by GPUs."""
        low, _ = self.range(span)
        n = np.minimum(-(-wanted // self.b), 1 << 20)
        most = self.v * self.pricing.limits.left_us + low - self.v * low * n
        return np.where(wanted > self.pricing.most(low), -1, most)


class IntegerMaster:
    """The integer master of one box for one target time.

    The intervals of slowest stages that the box leaves are looked at ever more finely:
    each has what a pipeline takes at the most, by the GPUs that it uses (`_kept`).
    """

    def __init__(
        self,
        parts: dict[int, Pricing],
        rows: Rows,
        batch: int,
        scale: int,
        hosts: tuple[int, ...],
        vectors: Vectors,
        check: Callable[[], None],
    ) -> None:
        """Put pipelines of the `parts` together, as many as the `rows` allow.

        Each of them uses a GPU or more of each host; `hosts` are how many, by class.
        """
        self._pricing, self._rows, self._batch, self._scale = parts, rows, batch, scale
        self._hosts, self._vectors, self._check = hosts, vectors, check
        self._fewest, self._most = rows.fewest, rows.pipelines
        self._schedule = vectors.schedule
        self.exhausted = False  # after as many labels as were allowed
        #: Which of the proposed prices served, by number.
        self.chosen = 0
        self._kept: dict[_Interval, Whole] = {}

    def refute(
        self, proposed: Sequence[Array], ends: dict[int, Span], most_labels: float = inf
    ) -> Prices | None:
        """Return prices at which whole pipelines take less than the batch, or None.

        `proposed` are any prices, of which those serve that leave least to columns: of
        the linear master, which may have stopped early, or of another box. `ends` are
        of the slowest stage, by part, as an interval of times. Nothing is returned
        after `most_labels`.
        """
        each = {x: self._pricing[x].arcs for x in ends}
        if any(each[x].times[begin] == 0 for x, (begin, _) in ends.items()):
            return None  # in no time a pipeline trains any number of sequences
        if not all(map(self._vectors.able, each.values())):
            return None
        self._states = self._vectors.states
        # What a pipeline has to take, so that the batch is taken together.
        self._wanted, self._sure = np.zeros((2, len(self._states.use)), np.int64)
        found = [self._priced(prices, ends) for prices in proposed]
        self.chosen = min(range(len(found)), key=lambda i: found[i][2])
        prices, parts, allowed, some = found[self.chosen]
        looked = 0
        while some:
            for interval in some:
                most_labels -= self._look(parts, interval, allowed)
                if most_labels < 0:
                    self.exhausted = True
                    return None
            looked += len(some)
            one = np.max([*self._kept.values()], axis=0)
            given = one, self._states, self._fewest, self._most
            exactly, others = kernels.most_taken(*given)
            if exactly[self._fewest :, -1].max(initial=-1) < self._batch:
                return prices
            some = self._divided(parts, one, others, self._packing(one, exactly))
            if looked + len(some) > self._schedule.counting.intervals:
                return None
        return None if looked else prices  # else no pipeline is possible

    def _look(
        self, parts: dict[int, _Part], interval: _Interval, allowed: Fraction
    ) -> int:
        """Look at an interval, and return how many labels that took."""
        self._check()
        x, span, mean = interval
        part, low_high = parts[x], parts[x].range(span)
        # What a pipeline takes that is not too dear for it.
        cost = self._states.use @ np.array(part.prices.gpu) + part.prices.pipelines
        short = cost - part.held - ceil(allowed)
        least = np.maximum(1, -(-short // self._scale))
        most_us = part.most_us(span, np.maximum(self._wanted, least))
        labels = part.labels(span, mean, self._from_above(most_us), allowed)
        sums = labels[0, -1]
        taken = part.taken(*low_high, sums)
        self._kept[interval] = self._hosted(np.where(taken >= least, taken, 0))
        sure = self._hosted(part.taken(low_high[1], low_high[1], sums))
        np.maximum(self._sure, sure, out=self._sure)
        return int(np.count_nonzero(labels < BIG))

    def _divided(
        self, parts: dict[int, _Part], one: Whole, others: Whole, packing: list[int]
    ) -> list[_Interval]:
        """Return finer intervals of those that a packing needs, in their place."""
        rest = np.where(others < 0, _NONE, self._batch - others)[::-1]
        self._wanted = np.maximum(self._wanted, rest)
        some: list[_Interval] = []
        for (x, span, mean), taken in [*self._kept.items()]:
            taken[taken < self._wanted] = 0
            open_ = (taken == one)[packing] & (taken > self._sure)[packing]
            if not taken.any():
                del self._kept[x, span, mean]
            elif span[1] - span[0] > 1 and open_.any():
                some += [(x, cut, mean) for cut in parts[x].divided(span)]
                del self._kept[x, span, mean]
        return some

    def _priced(
        self, proposed: Array, ends: dict[int, Span]
    ) -> tuple[Prices, dict[int, _Part], Fraction, list[_Interval]]:
        """Return whole prices, parts at these, and what they leave to columns."""
        _, most = carried(self._pricing.values())
        whole = np.ceil(np.maximum(proposed, 0.0) * self._scale).tolist()
        prices = Prices.of([min(int(x), y) for x, y in zip(whole, most, strict=True)])
        parts = {
            x: _Part(self._pricing[x], self._vectors, prices, self._scale) for x in ends
        }
        ratio = self._schedule.counting.first_ratio
        each = ((x, parts[x].pricing.arcs.edges(ends[x], ratio)) for x in ends)
        spans = [(x, [*pairwise(edges)]) for x, edges in each]
        gap = self._rows.value(prices) - self._batch * self._scale
        return prices, parts, *self._within(parts, spans, gap)

    def _hosted(self, taken: Whole) -> Whole:
        """Return sequences of one pipeline that uses a GPU or more of each host.

        Where a path of no such GPU takes as much, it stands for those that use some.
        """
        found = taken.reshape((self._vectors.table.gpus + 1).tolist())
        for c, least in enumerate(self._hosts):
            by_gpus = np.moveaxis(found, c, 0)
            by_gpus[least] = by_gpus[: least + 1].max(0)
            by_gpus[:least] = 0
        return found.reshape(-1)

    def _packing(self, one: Whole, exactly: Whole) -> list[int]:
        """Return the GPUs of pipelines that take the most together, as states."""
        states, state = self._states, len(one) - 1
        number = self._fewest + int(exactly[self._fewest :, -1].argmax())
        found = []
        items = np.flatnonzero(one)
        while number:
            able = items[(states.use[items] <= states.use[state]).all(1)]
            rest = exactly[number - 1, state - able]
            same = (rest >= 0) & (rest + one[able] == exactly[number, state])
            found.append(int(able[same.argmax()]))
            state -= found[-1]
            number -= 1
        return found

    def _within(
        self,
        parts: dict[int, _Part],
        spans: list[tuple[int, list[Span]]],
        gap: Fraction,
    ) -> tuple[Fraction, list[_Interval]]:
        """Return what columns may cost beyond their worth, and intervals of them."""
        plan = self._schedule
        excess: list[tuple[int, Span, int, Fraction]] = []
        enough = Fraction(gap, 4 * max(1, self._most - 1))
        while spans:
            self._check()
            finer = []
            for x, each in spans:
                part, cuts = parts[x], list[Span]()
                short, means = part.pricing.excess(part.prices, self._scale, each, -BIG)
                for i, span in enumerate(each):
                    low, high = part.range(span)
                    more = Fraction(-int(short[i]), part.v * low)
                    if -more > enough and high > low * plan.finest_ratio:
                        cuts += part.divided(span)
                    elif short[i] > -BIG:
                        excess.append((x, span, int(means[i]), more))
                if cuts:
                    finer.append((x, cuts))
            spans = finer
        excess.sort()
        least = min([Fraction(0), *(more for *_, more in excess)])
        allowed = gap - (self._most - 1) * least
        found: list[_Interval] = []
        for x, span, mean, more in excess:
            if more > allowed:
                continue
            if found and found[-1][::2] == (x, mean) and found[-1][1][1] == span[0]:
                low, _ = parts[x].range(found[-1][1])
                if parts[x].range(span)[1] <= low * plan.counting.ratio:
                    found[-1] = x, (found[-1][1][0], span[1]), mean
                    continue
            found.append((x, span, mean))
        return allowed, found

    def _from_above(self, most_us: Whole) -> Whole:
        """Return the most of any state of no fewer GPUs."""
        found = most_us.reshape((self._vectors.table.gpus + 1).tolist())
        for axis in range(found.ndim):
            back = np.flip(found, axis)
            found = np.flip(np.maximum.accumulate(back, axis), axis)
        return np.ascontiguousarray(found).reshape(-1)
