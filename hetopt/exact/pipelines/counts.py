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
from itertools import pairwise
from math import ceil, inf, prod

import numpy as np
from numpy.typing import NDArray

from ...stages import NEVER, StageTable
from ...stages.classes import Whole
from ...stages.sync import UNIT
from . import kernels
from .arcs import Arcs, exits_us
from .kernels import BIG, HALF, States
from .pricing import Array, Prices, Pricing, Rows, flat
from .schedule import Schedule

_NONE = 1 << 60  # sequences that nothing takes
_CLEAR, _ANY = 1 << 57, 1 << 62  # costs that labels carry, and more than any cost

Flags = NDArray[np.bool_]
Span = tuple[int, int]
_Interval = tuple[int, Span, int]  # of a part, with the mean that prices go by


class Vectors:
    """GPUs of each class, as states, and stages in several nodes by them.

    They are made once for each table of arcs.
    """

    def __init__(self, table: StageTable, schedule: Schedule) -> None:
        """Number the states of a cluster."""
        self.table, self.schedule = table, schedule
        sides = [n + 1 for n in table.gpus.tolist()]
        #: How many states there are.
        self.count = prod(sides)
        self._kept: dict[int, tuple[Whole, Flags]] = {}
        self._allowed: dict[int, tuple[Flags, Whole, Whole]] = {}
        self._states: States | None = None

    @property
    def are_few(self) -> bool:
        """Tell whether there are so few that whole pipelines are counted early."""
        return bool(self.count <= self.schedule.counting.few)

    @property
    def states(self) -> States:
        """Return the states without stages in several nodes."""
        if self._states is None:
            self._states = States.of(self.table.gpus.tolist())
        return self._states

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
        wanted = np.asarray(least.any(0))
        every = self.several(arcs, wanted)
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
        self.b, self.v = pricing.arcs.size, pricing.runs
        graph, self._costs = pricing._costs(prices, scale * self.b)
        self._graph = graph
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
            vectors=use,
            vector_us=us,
            vector_cost=np.minimum(cost, pricing._limit()),
        )

    @property
    def held(self) -> int:
        """Return what a path may earn at the most by what it holds."""
        pricing = self.pricing
        price = max(self.prices.share) + self.prices.held
        units = self.b * (pricing.rows.size_high + pricing.layers)
        each = -(-price * units // (pricing.rows.replicas * UNIT))
        return each + self.b * pricing.layers

    def range(self, span: Span) -> Span:
        """Return the least slowest stage of an interval, and the largest."""
        times = self.pricing.arcs.times
        return int(times[span[0]]), int(times[span[1] - 1])

    def _tables(self, entries: int) -> Whole:
        return self.pricing._kept(entries)

    def need(self, low: int, mean: int) -> int:
        """Return what paths cost that are worth just what they cost.

        `mean` is how much of a sequence's price goes by time, the rest by the limit on
        what any path takes.
        """
        left = self.pricing.limits.left_us
        timed = mean * self.b * (self.v * left + low)
        most = (self._scale - mean) * self.pricing.most(low)
        return timed + self.v * low * (most - self.prices.pipelines)

    def excess(self, spans: list[Span]) -> list[tuple[Fraction | float, int]]:
        """Return by how much a path costs more than it is worth, at the least.

        By interval, with the mean that says most; infinite where there is no path.
        """
        lows, highs = (
            np.array(x, np.int64) for x in zip(*map(self.range, spans), strict=True)
        )
        best: list[tuple[Fraction | float, int]] = [(-inf, 0)] * len(spans)
        some = np.arange(len(spans))
        for part in (2, 1, 0):
            mean = part * self._scale // 2
            costs = self._costs._replace(time=mean * self.b)
            found = kernels.least(
                self._graph, costs, lows[some], highs[some], self.v, self._tables(0)
            )
            limited = []
            for i, cost in zip(some.tolist(), found.tolist(), strict=True):
                low = int(lows[i])
                more = Fraction(cost - self.need(low, mean), self.v * low)
                best[i] = max(best[i], (more if cost < HALF else inf, mean))
                timed = self.b * (self.v * self.pricing.limits.left_us + low)
                if cost < HALF and self.pricing.most(low) * self.v * low < timed:
                    limited.append(i)
            some = np.array(limited, np.int64)
            if not limited:
                break
        return best

    def labels(self, span: Span, mean: int, most_us: Whole, allowed: Fraction) -> Whole:
        """Return the least sums of stage times up to a label.

        They are by [side, next layer, state]: whole paths are those of side 0 behind
        the last layer. Paths are left out that cost too much or take longer than
        `most_us`, which is by state and not more for more GPUs; and also where one of
        fewer GPUs takes no more time.
        """
        low, high = self.range(span)
        graph, costs = self._graph, self._costs._replace(time=mean * self.b)
        lows, highs = np.array([low]), np.array([high])
        priced = self._tables(1)
        kernels.least(graph, costs, lows, highs, self.v, priced)
        if span not in self._timed:
            timed = self._tables(1)
            kernels.least(graph, costs._replace(time=1), lows, highs, 0, timed)
            self._timed[span] = timed
        # Of suffixes that begin in one node, in several, or within a node.
        least = [(x[0], x[1], x[2:]) for (x,) in (self._timed[span], priced)]
        most = self.need(low, mean) + ceil(self.v * low * allowed)
        states = self.states
        sides = 2 + 2 * len(states.gpus) if len(states.vectors) else 1
        shape = sides, graph.run.shape[0], len(most_us)
        given = graph, costs, states, *least, high, self.v * low, most_us
        return kernels.filled("labels", shape, *given, most if most < _CLEAR else _ANY)

    def spans(self, begin: int, end: int, ratio: float) -> list[Span]:
        """Return intervals that grow by a ratio."""
        times, at = self.pricing.arcs.times, [begin]
        while at[-1] < end:
            on = int(np.searchsorted(times, int(times[at[-1]] * ratio), "right"))
            at.append(min(end, max(at[-1] + 1, on)))
        return [*pairwise(at)]

    def divided(self, span: Span) -> list[Span]:
        """Return the parts of an interval of more than one time."""
        begin, end = span
        low, high = self.range(span)
        times = self.pricing.arcs.times
        cuts = {
            int(np.searchsorted(times, low + (high - low) * i // 4)) for i in (1, 2, 3)
        }
        inner = cuts | {(begin + end) // 2}
        at = [begin, *sorted(x for x in inner if begin < x < end), end]
        found = [*pairwise(at)]
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
        n = -(-wanted // self.b)
        most = (
            self.v * self.pricing.limits.left_us
            + low
            - self.v * low * np.minimum(n, 1 << 20)
        )
        return np.where(wanted > self.pricing.most(low), -1, most)


class _Search:
    """The intervals of slowest stages that one box leaves, looked at ever more finely.

    Each has what a pipeline takes at the most, by the GPUs that it uses (`kept`).
    """

    def __init__(
        self,
        master: "IntegerMaster",
        parts: dict[int, _Part],
        allowed: Fraction,
        most_labels: float,
    ) -> None:
        """Begin with nothing; columns may cost so much beyond their worth."""
        self._master, self._parts, self._allowed = master, parts, allowed
        self._most_labels = most_labels
        self._states, scale = master.vectors.states, master.scale
        self.kept: dict[_Interval, Whole] = {}
        #: What a pipeline has to take, so that the batch is taken together.
        self.wanted, self._sure = np.zeros((2, len(self._states.use)), np.int64)
        # What a pipeline takes that is not too dear for it, by part.
        self._least = {}
        for x, part in parts.items():
            cost = self._states.use @ np.array(part.prices.gpu) + part.prices.pipelines
            short = cost - part.held - ceil(allowed)
            self._least[x] = np.maximum(1, -(-short // scale))

    def look(self, some: list[_Interval]) -> bool:
        """Look at some intervals; whether so many labels are allowed."""
        master = self._master
        for x, span, mean in some:
            master.check()
            part, least = self._parts[x], self._least[x]
            asked = np.maximum(self.wanted, least)
            most_us = master.from_above(part.most_us(span, asked))
            labels = part.labels(span, mean, most_us, self._allowed)
            self._most_labels -= np.count_nonzero(labels < BIG)
            if self._most_labels < 0:
                master.exhausted = True
                return False
            sums = labels[0, -1]
            low, high = part.range(span)
            taken = part.taken(low, high, sums)
            taken = master.hosted(np.where(taken >= least, taken, 0))
            self.kept[x, span, mean] = taken
            sure = master.hosted(part.taken(high, high, sums))
            np.maximum(self._sure, sure, out=self._sure)
        return True

    def together(self) -> tuple[Whole, Whole, Whole]:
        """Return what one pipeline takes, so many together, and all but one of them."""
        one = np.max([*self.kept.values()], axis=0)
        fewest, most = self._master.fewest, self._master.most
        return one, *kernels.most_taken(one, self._states, fewest, most)

    def divided(self, one: Whole, others: Whole, packing: list[int]) -> list[_Interval]:
        """Return finer intervals of those that a packing needs, in their place."""
        rest = np.where(others < 0, _NONE, self._master.batch - others)[::-1]
        self.wanted = np.maximum(self.wanted, rest)
        some: list[_Interval] = []
        for (x, span, mean), taken in [*self.kept.items()]:
            taken[taken < self.wanted] = 0
            if not taken.any():
                del self.kept[x, span, mean]
                continue
            open_ = (taken == one)[packing] & (taken > self._sure)[packing]
            if span[1] - span[0] > 1 and open_.any():
                some += [(x, cut, mean) for cut in self._parts[x].divided(span)]
                del self.kept[x, span, mean]
        return some


class IntegerMaster:
    """The integer master of one box for one target time."""

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
        self.parts, self.rows, self.batch, self.scale = parts, rows, batch, scale
        self.fewest, self.most = rows.fewest, rows.pipelines
        self._hosts = hosts
        self.vectors, self.check = vectors, check
        self._schedule = vectors.schedule
        self.looked = 0  # intervals
        self.exhausted = False  # after as many labels as were allowed
        #: Which of the proposed prices served, by number.
        self.chosen = 0

    def refute(
        self,
        proposed: Sequence[Array],
        ends: dict[int, Span],
        most_labels: float = inf,
    ) -> Prices | None:
        """Return prices at which whole pipelines take less than the batch, or None.

        `proposed` are any prices, of which those serve that leave least to columns: of
        the linear master, which may have stopped early, or of another box. `ends` are
        of the slowest stage, by part, as an interval of times. Nothing is returned
        after `most_labels`.
        """
        if any(self.parts[x].arcs.times[begin] == 0 for x, (begin, _) in ends.items()):
            return None  # in no time a pipeline trains any number of sequences
        if not all(self.vectors.able(self.parts[x].arcs) for x in ends):
            return None
        each = [self._priced(prices, ends) for prices in proposed]
        self.chosen = min(range(len(each)), key=lambda i: each[i][2])
        prices, parts, allowed, some = each[self.chosen]
        if not some:
            return prices  # no pipeline is possible
        search = _Search(self, parts, allowed, most_labels)
        while some:
            if not search.look(some):
                return None
            self.looked += len(some)
            one, exactly, others = search.together()
            if exactly[self.fewest :, -1].max(initial=-1) < self.batch:
                return prices
            packing = self._packing(one, exactly)
            some = search.divided(one, others, packing)
            if self.looked + len(some) > self._schedule.counting.intervals:
                break
        return None

    def _priced(
        self, proposed: Array, ends: dict[int, Span]
    ) -> tuple[Prices, dict[int, _Part], Fraction, list[_Interval]]:
        """Return whole prices, parts at these, and what they leave to columns."""
        prices, ratio = self._whole(proposed), self._schedule.counting.first_ratio
        parts = {
            x: _Part(self.parts[x], self.vectors, prices, self.scale) for x in ends
        }
        spans = [(x, parts[x].spans(*ends[x], ratio)) for x in ends]
        gap = self.rows.value(prices) - self.batch * self.scale
        return prices, parts, *self._within(parts, spans, gap)

    def hosted(self, taken: Whole) -> Whole:
        """Return sequences of one pipeline that uses a GPU or more of each host.

        Where a path of no such GPU takes as much, it stands for those that use some.
        """
        found = taken.reshape((self.vectors.table.gpus + 1).tolist())
        for c, least in enumerate(self._hosts):
            by_gpus = np.moveaxis(found, c, 0)
            by_gpus[least] = by_gpus[: least + 1].max(0)
            by_gpus[:least] = 0
        return found.reshape(-1)

    def _packing(self, one: Whole, exactly: Whole) -> list[int]:
        """Return the GPUs of pipelines that take the most together, as states."""
        states = self.vectors.states
        state = len(one) - 1
        number = self.fewest + int(exactly[self.fewest :, -1].argmax())
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

    def _whole(self, proposed: Array) -> Prices:
        """Return whole prices, none below what is proposed that 64 bits carry."""
        whole = np.ceil(np.maximum(proposed, 0.0) * self.scale).tolist()
        every = [[*flat(part.most_prices)] for part in self.parts.values()]
        most = (min(row) for row in zip(*every, strict=True))
        each = [min(int(x), y) for x, y in zip(whole, most, strict=True)]
        count = len(self.rows.gpus)
        gpu, share = tuple(each[:count]), tuple(each[count : 2 * count])
        return Prices(gpu, share, *each[2 * count :])

    def _within(
        self,
        parts: dict[int, _Part],
        spans: list[tuple[int, list[Span]]],
        gap: Fraction,
    ) -> tuple[Fraction, list[_Interval]]:
        """Return what columns may cost beyond their worth, and intervals of them."""
        plan = self._schedule
        excess: list[tuple[int, Span, int, Fraction | float]] = []
        some = [(x, each) for x, each in spans if each]
        enough = Fraction(gap, 4 * max(1, self.most - 1))
        while some:
            self.check()
            finer = []
            for x, each in some:
                cuts: list[Span] = []
                pairs = zip(each, parts[x].excess(each), strict=True)
                for span, (more, mean) in pairs:
                    low, high = parts[x].range(span)
                    if -more > enough and high > low * plan.finest_ratio:
                        cuts += parts[x].divided(span)
                    else:
                        excess.append((x, span, mean, more))
                if cuts:
                    finer.append((x, cuts))
            some = finer
        excess.sort()
        least = min([Fraction(0), *(x for *_, x in excess if isinstance(x, Fraction))])
        allowed = gap - (self.most - 1) * least
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

    def from_above(self, most_us: Whole) -> Whole:
        """Return the most of any state of no fewer GPUs."""
        found = most_us.reshape((self.vectors.table.gpus + 1).tolist())
        for axis in range(found.ndim):
            back = np.flip(found, axis)
            found = np.flip(np.maximum.accumulate(back, axis), axis)
        return np.ascontiguousarray(found).reshape(-1)
