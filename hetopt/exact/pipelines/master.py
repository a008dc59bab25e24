"""The master of one box, by column generation: a refutation in whole prices, or not.

The linear programme over the columns found so far proposes prices, as floats. They are
scaled until all rows are worth just less than the batch, and rounded down to whole
numbers; pricing then looks for a path that is worth more than it costs. Where there is
none, the whole prices prove that no plan of the box takes the batch in time.
"""

from bisect import bisect_left, bisect_right
from collections.abc import Callable
from dataclasses import dataclass, field
from itertools import pairwise

import numpy as np

from .arcs import Span
from .pricing import Array, Column, Prices, Pricing, Rows, carried
from .schedule import Schedule
from .simplex import maximise

_OWED = 2.0  # batches, that a programme pays for held sizes that it does not have
_USED = 1e-9  # columns of which a programme takes less are in none
_BELOW = 1 - 2e-6  # of the batch, that proposed prices are worth


@dataclass
class State:
    """Columns and prices of a box, from its last target or from the box around it.

    Proposed prices; the edges of intervals of each part, as indices of its times; and
    columns.
    """

    prices: Array | None = None
    edges: dict[int, list[int]] = field(default_factory=dict)
    columns: list[Column] = field(default_factory=list)

    def inherited(self) -> "State":
        """Return what parts of a box begin with; columns use other amounts there."""
        return State(self.prices, {part: list(x) for part, x in self.edges.items()})


@dataclass(frozen=True)
class Verdict:
    """Prices that refute the box; or None, and what a packing takes in their place."""

    prices: Prices | None
    taken: float = 0.0


class Master:
    """Column generation in one box for one target time."""

    def __init__(
        self,
        parts: dict[int, Pricing],
        rows: Rows,
        batch: int,
        scale: int,
        fair: Array,
        schedule: Schedule,
        check: Callable[[], None],
    ) -> None:
        """Price the `parts`, by number, against `rows`.

        `scale` is what one sequence is in whole prices, `fair` are prices of GPUs in
        proportion to their speed; `check()` is called before each round and may raise.
        """
        self.parts, self.rows, self.batch, self.scale = parts, rows, batch, scale
        self._fair, self._schedule, self._check = fair, schedule, check
        self._supply = np.array(rows.supply)
        self._fewest = self._supply.copy()
        self._fewest[-2] = rows.fewest
        #: Parts whose columns count by their time alone, whatever else limits them.
        self._lines: set[int] = set()

    def refute(self, state: State, ranges: dict[int, Span]) -> Verdict:
        """Try to refute that the parts take the batch.

        `ranges` are of the slowest stage in us, by part. The state is changed.
        """
        plan = self._schedule
        self._set_edges(state, ranges)
        state.columns = [
            self._moved(x, state) for x in state.columns if self._fits(x, state)
        ]
        proposed = self._fair if state.prices is None else state.prices
        value = 0.0
        for number in range(plan.rounds):
            self._check()
            prices = self._whole(proposed)
            found = self._violated(prices, state, 5 if number else 1)
            if not found and number:
                found = self._violated(prices, state, 1)
            if not found:
                state.prices = proposed
                return Verdict(prices)
            if not self._add_columns(prices, found, state):
                # Both limits on what a path takes hold back paths, but no single one.
                self._lines |= {part for _, part, _ in found}
            value, amounts, proposed = self._solve(state.columns)
            state.prices = proposed
            if value < self.batch * (1 - _USED):
                continue
            if self._stands(amounts, state) or not self._refine(amounts, state):
                break
            value, amounts, proposed = self._solve(state.columns)
            state.prices = proposed
        state.columns = state.columns[-plan.pool :]
        return Verdict(None, value)

    # -- intervals of the slowest stage ---------------------------------------------

    def _set_edges(self, state: State, ranges: dict[int, Span]) -> None:
        """Cover the ranges with intervals: those that are known, others at the ends."""
        plan = self._schedule
        edges = {}
        for part, ends in ranges.items():
            arcs = self.parts[part].arcs
            begin, end = arcs.span(*ends)
            if begin < end:
                known = state.edges.get(part, ())
                edges[part] = arcs.edges((begin, end), plan.first_ratio, known)
        state.edges = edges

    def _fits(self, column: Column, state: State) -> bool:
        edges = state.edges.get(column.part)
        if edges is None:
            return False
        times = self.parts[column.part].arcs.times
        at = int(np.searchsorted(times, column.slowest_us))
        return at < edges[-1]

    def _moved(self, column: Column, state: State) -> Column:
        """Return the column in the interval of its slowest stage.

        In the first one where the box is of slower stages.
        """
        edges, times = state.edges[column.part], self.parts[column.part].arcs.times
        at = int(np.searchsorted(times, column.slowest_us))
        j = bisect_right(edges, max(at, edges[0]))
        return column._replace(span=(edges[j - 1], edges[j]))

    def _stands(self, amounts: Array, state: State) -> bool:
        """Tell whether a packing takes the batch, however fine intervals are.

        Its pipelines count with their own slowest stages.
        """
        taken = 0.0
        for column, amount in zip(state.columns, amounts, strict=True):
            if amount > _USED:
                part = self.parts[column.part]
                taken += amount * part.worth(column.sum_us, max(1, column.slowest_us))
        return taken >= self.batch

    def _refine(self, amounts: Array, state: State) -> bool:
        """Divide wide intervals of columns that are taken; tell if there are any."""
        pairs = zip(state.columns, amounts, strict=True)
        used = {(x.part, x.span) for x, amount in pairs if amount > _USED}
        divided = False
        for part, (begin, end) in sorted(used):
            low, high = self.parts[part].arcs.range((begin, end))
            if end - begin < 2 or high <= low * self._schedule.finest_ratio:
                continue
            self._divide(part, state, (begin, end), 4 if high > low * 1.01 else 2)
            divided = True
        if divided:
            state.columns = [self._moved(x, state) for x in state.columns]
        return divided

    def _divide(self, part: int, state: State, span: Span, count: int) -> list[Span]:
        edges, cuts = state.edges[part], self.parts[part].arcs.cuts(span, count)
        j = bisect_left(edges, span[1])
        edges[j:j] = cuts
        return [*pairwise([span[0], *cuts, span[1]])]

    # -- pricing ----------------------------------------------------------------------

    def _violated(
        self, prices: Prices, state: State, step: int
    ) -> list[tuple[float, int, Span]]:
        """Return intervals in which a path may be worth more than it costs.

        Some of the intervals are looked at, `step` apart; wide ones are divided first.
        """
        found = []
        for part, edges in state.edges.items():
            pricing, spans = self.parts[part], [*pairwise(edges)][::step]
            while spans:
                self._check()
                excess, _ = pricing.excess(prices, self.scale, spans)
                parts: list[Span] = []
                for i in np.flatnonzero(excess > 0).tolist():
                    (begin, end), (low, high) = spans[i], pricing.arcs.range(spans[i])
                    if end - begin > 1 and high > low * self._schedule.priced_ratio:
                        parts += self._divide(part, state, spans[i], 4)
                    else:
                        more = int(excess[i]) / (self.scale * pricing.runs * low)
                        found.append((more, part, spans[i]))
                spans = parts
        return found

    def _add_columns(
        self, prices: Prices, found: list[tuple[float, int, Span]], state: State
    ) -> bool:
        """Add the paths that are worth most beyond their cost, of intervals apart.

        Whether any of them is new.
        """
        taken: list[tuple[int, int]] = []
        known, count = set(state.columns), len(state.columns)
        for _, part, span in sorted(found, key=lambda x: -x[0]):
            self._check()
            pricing = self.parts[part]
            low = int(pricing.arcs.times[span[0]])
            if any(part == other and abs(low - at) < 0.03 * at for other, at in taken):
                continue
            taken.append((part, low))
            time = self.scale * pricing.arcs.size
            for mean in (time, time // 2, 0):  # cheap ones serve as well
                column = pricing.column(part, prices, mean, span)
                if column is None:
                    break
                if column not in known:
                    known.add(column)
                    state.columns.append(column)
                if pricing.worth(column.sum_us, low) < pricing.most(low):
                    break
            if len(taken) == self._schedule.columns:
                break
        return len(state.columns) > count

    # -- the linear programme ---------------------------------------------------------

    def _solve(self, columns: list[Column]) -> tuple[float, Array, Array]:
        """Return what a packing takes, how much of each column, and prices.

        What is owed of held sizes and of pipelines are columns that there is one of
        each: held, or paid.
        """
        worth = [self._worth(x) for x in columns]
        uses = np.array([x.uses for x in columns]).T
        most = _OWED * self.batch
        owed = np.zeros((len(uses) + 3, 2))
        owed[-4:, 0] = -self._supply[-1], 0.0, 1.0, 0.0
        owed[-4:, 1] = 0.0, self.rows.fewest, 0.0, 1.0
        none = np.zeros((2, uses.shape[1]))
        uses = np.hstack([np.vstack([uses, -uses[-2:-1], none]), owed])
        supply = np.array([*self._supply[:-1], 0.0, 0.0, 1.0, 1.0])
        profit = np.array([*worth, most, most])
        value, amounts, prices = maximise(profit, uses, supply)
        found = prices[: len(self._supply)].copy()
        found[-2] -= prices[len(self._supply)]
        return value - 2 * most, amounts[:-2], found

    def _worth(self, column: Column) -> float:
        part = self.parts[column.part]
        low = int(part.arcs.times[column.span[0]])
        if column.part in self._lines:
            return part.line(column.sum_us, low)
        return part.worth(column.sum_us, low)

    def _whole(self, proposed: Array) -> Prices:
        """Return whole prices at which all rows are worth just less than the batch.

        What is worth so little is checked of the very prices that paths are priced at:
        none is above what 64 bits carry in any part.
        """
        whole, (lowest, most) = self.batch * self.scale, carried(self.parts.values())
        aim = _BELOW * whole
        scaled = np.clip(proposed * self.scale, lowest, most)
        value = self._value(scaled)
        if value < 0.7 * aim:  # as much more on GPUs, in proportion to speed
            more = (aim - value) / float(self._fair @ self._supply)
            scaled = np.minimum(scaled + more * self._fair, most)
            value = self._value(scaled)
        if value <= 0:  # held sizes are priced beyond all that GPUs may cost
            scaled = np.minimum(self._fair * self.scale, most)
            value = self._value(scaled)
        scaled = np.clip(scaled * (aim / value), lowest, most)
        while True:
            pairs = zip(np.floor(scaled).tolist(), lowest, most, strict=True)
            found = Prices.of([max(low, min(int(x), high)) for x, low, high in pairs])
            if (worth := self.rows.value(found)) < whole:
                return found
            scaled *= min(_BELOW, aim / float(worth))

    def _value(self, prices: Array) -> float:
        supply = self._supply if prices[-2] > 0 else self._fewest
        return float(prices @ supply)
