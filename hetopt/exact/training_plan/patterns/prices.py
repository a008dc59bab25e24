"""Can the pipelines that are possible within a time take the whole batch together?

A *pattern* is what one pipeline uses of each group of nodes. Within the time T for
all its micro-batches of b sequences and with bottleneck M it can take

    sequences(u) <= b (1 + (T - sum of stage times) / M),

(with v runs of layers a GPU, b (1 / v + (T - sum of stage times / v) / M).)
The master linear program packs patterns into the GPUs.
Prices y_g >= 0 per GPU of each group refute T where  sum_g y_g GPUs_g < batch  and
every pattern is worth its price, sequences(u) <= y . gpus(u):  whatever is packed, the
batch is not reached. That is checked over all patterns by dynamic programming
(`_priced`), so the linear program, in floats, only proposes prices. Float32 sums of at
most a few hundred terms are within 1e-5 of the largest, which `_MARGIN` gives away.

Where the replicas are is scarce too. A visit of k of a node's C GPUs claims of the
node's share what its replicas are larger than they can synchronise (`visits`). With
weights k / C, which are at most 1 over the visits of a node,

    sum over visits of (k / C) claim  <=  share of the node,

all shares together are L, and where every layer has D replicas or more a node's share
is at most what its visits hold, divided by D, and all visits hold D L. So the goods
are, in this order: the GPUs of each group; for each group the difference of claims and
layers held / D, of which there is nothing; the shares, L in all; the pipelines, of
which there are at most so many; and layers held / D, of which a packing owes L: they
are worth something, and what is owed counts against the prices of all goods.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from math import fsum
from typing import NamedTuple

import numpy as np

from ...pipelines.simplex import Array, maximise
from .convolution import Table, cheapest, extend
from .visits import Grid, Visits

_MARGIN = np.float32(1e-5)
_ROUNDED = 2e-9  # relative, of all that prices are summed of
_ROUNDS = 60
_COLUMNS_A_ROUND = 6
_APART = 5  # intervals between two columns of one round, looked at first
_OWED = 2.0  # batches, for all layers that a packing owes, where it holds none
_NEAR = 1e-6  # of what is owed: as good as held
_SHARES, _PIPELINES, _HELD = -3, -2, -1  # goods after those of the groups
# A pipeline that has no end, half of one, its end; one that leaves a site, and one with
# half of an end in several.
_ENDS = 5
# A state and a visit, by what they have of the end, and the state that they make.
_STEPS = (
    *((0, 0, 0), (0, 1, 1), (1, 0, 1), (1, 1, 2), (0, 2, 2), (2, 0, 2)),
    *((0, 3, 3), (3, 0, 3), (0, 4, 4), (4, 0, 4)),
)
_AT_WILL = ((0, 0, 0), (0, 1, 1), (0, 2, 2), (1, 1, 2), (0, 3, 3), (0, 4, 4))
_IN_SITE = (3, 4, 2)  # states within a site: without the end, pipelines leave it


@dataclass(frozen=True)
class Group:
    """Nodes that a case treats alike: how many, of how many GPUs, how fast, where."""

    nodes: int
    gpus: int
    speed: float  # cells that a GPU does in a us, about
    site: int = 0


@dataclass(frozen=True)
class Part:
    """Pipelines of one size of micro-batches: worth of all layers, and every visit.

    `spent_us` of the time are gone before bottlenecks count. The lists are of groups.
    `claims` of the share by [k - 1, w], `held` of the share
    at the most, likewise. `exact` says that worths are no more than they should be.
    `most` cells are what a pipeline holds in each site, where there are several; stages
    may be `bridged`, and lie in two.
    """

    sequences: int
    cells: int
    exact: bool
    spent_us: float
    grid: Grid
    visits: tuple[Visits, ...]
    claims: tuple[Table, ...]
    held: tuple[Table, ...]
    most: tuple[int, ...] = ()
    bridged: bool = False

    def every(self, step: int) -> "Part":
        """The same with some of the intervals."""
        some = slice(None, None, step)
        visits = tuple(each.within(some, copy=True) for each in self.visits)
        return replace(self, grid=self.grid.of(some), visits=visits)


@dataclass(frozen=True)
class Pricing:
    """Groups of nodes, and the patterns of each size of micro-batches.

    `shares` is what all nodes' shares sum to, in average layers, and `owed` what they
    hold at the least, a replica of each layer; `pipelines` is the most that there can
    be; `first` is what the first micro-batch saves of filling.
    """

    batch: int
    shares: float
    owed: float
    pipelines: float
    first: float
    groups: tuple[Group, ...]
    parts: tuple[Part, ...]
    check: Callable[[], None] = lambda: None  # before what takes long; may raise

    @property
    def goods(self) -> int:
        """Number of goods that have a price."""
        return 2 * len(self.groups) + 3

    def refute(
        self,
        time_us: float,
        start: tuple[float, ...] | None,
        limited: Iterable[int] = (),
    ) -> "Verdict":
        """Whether no packing of pipelines takes the batch within `time_us`.

        It starts from these prices, and visits nodes of the `limited` groups once.
        """
        if time_us < 0:
            return Verdict(True, (0.0,) * self.goods)
        return _Search(self, time_us, limited).run(start)


@dataclass(frozen=True)
class Verdict:
    """Refuted, with prices per GPU of each group that prove it; or not (yet).

    `taken` is then what some packing takes in place of the batch. `limited` are the
    groups that packings wanted to visit more often than they have nodes.
    """

    refuted: bool
    prices: tuple[float, ...]
    taken: float = 0.0
    limited: frozenset[int] = frozenset()


_States = list[Table | None]  # least prices by what there is of the end: [w, interval]


@dataclass(frozen=True)
class _Step:
    """One choice of the dynamic program: visits of a group, or of several, lowest.

    Or of a site, with what is `inside`.
    """

    members: tuple[int, ...]
    lowest: _States
    before: _States | None  # None: any number of visits
    inside: "_Walk | None" = None


class _Walk(NamedTuple):
    """Steps of the dynamic program, and its tables: least prices by worth held."""

    steps: list[_Step]
    states: _States


class _Search:
    def __init__(
        self, pricing: Pricing, time_us: float, limited: Iterable[int]
    ) -> None:
        self.pricing = pricing
        gpus = [g.nodes * g.gpus for g in pricing.groups]
        none = [0.0] * len(gpus)
        rest = [pricing.shares, pricing.pipelines, -pricing.owed]
        supply = [*gpus, *none, *rest]
        self.supply = np.array(supply, float)
        self._time = time_us
        self._parts = {1: pricing.parts}
        self.limited = set(limited)
        self.owing = False
        self.columns: dict[tuple[object, ...], tuple[float, tuple[float, ...]]] = {}

    def worth(self, part: Part) -> Table:
        """Sequences of pipelines in no time but that of bottlenecks, by interval."""
        inverse = part.grid.inverse
        left = max(0.0, self._time - part.spent_us)
        most = self.pricing.first + np.float32(left) * inverse
        every = np.float32(self.pricing.batch)
        return np.where(inverse > 0, np.float32(part.sequences) * most, every)

    def run(self, start: tuple[float, ...] | None) -> Verdict:
        prices, value = np.array(start) if start else self._fair_prices(), 0.0
        for _ in range(_ROUNDS):
            prices = self._scaled(prices)
            if not self._add_columns(prices):
                return self._verdict(True, prices, 0.0)
            value, amounts, prices = self._packed()
            if value < self.pricing.batch:
                continue
            if not (self._limit_more(amounts) or self._owe_more(amounts)):
                break
        return self._verdict(False, prices, value)

    def _packed(self) -> tuple[float, Array, Array]:
        """What a packing takes, how much of each column, and prices of the goods.

        What is owed is looked at when a packing did not hold it: the share of it that
        is held is a column then, of which there is one, and the rest costs `_OWED`.
        """
        worth = np.array([row[0] for row in self.columns.values()])
        uses = np.array([row[1] for row in self.columns.values()], float).T
        if not self.owing:
            value, amounts, prices = maximise(worth, uses[:-1], self.supply[:-1])
            return value, amounts, np.append(prices, 0.0)
        most = _OWED * self.pricing.batch
        held = np.zeros((len(uses) + 1, 1))
        held[-2:, 0] = self.pricing.owed, 1.0
        uses = np.hstack([np.vstack([uses, np.zeros(uses.shape[1])]), held])
        supply = np.array([*self.supply[:-1], 0.0, 1.0])
        value, amounts, prices = maximise(np.append(worth, most), uses, supply)
        return value - most, amounts[:-1], prices[:-1]

    def _owe_more(self, amounts: Array) -> bool:
        """Look at what is owed from now on, if this packing does not hold it."""
        if self.owing:
            return False
        held = [-row[1][_HELD] for row in self.columns.values()]
        self.owing = float(np.dot(held, amounts)) < self.pricing.owed * (1 - _NEAR)
        return self.owing

    def _verdict(self, refuted: bool, prices: Array, taken: float) -> Verdict:
        return Verdict(refuted, tuple(prices), taken, frozenset(self.limited))

    def _fair_prices(self) -> Array:
        """In proportion to speed: what one GPU does of one layer's work."""
        speeds = [group.speed for group in self.pricing.groups]
        return np.array(speeds + [0.0] * (self.pricing.goods - len(speeds)))

    def _scaled(self, prices: Array) -> Array:
        """Prices at which all goods together are worth just less than the batch."""
        prices = np.maximum(prices, 1e-9 * self._fair_prices())
        value = _value(prices, self.supply)
        if value <= 0:  # more is owed than there can be
            return prices
        # A check gives away what is rounded of goods that cancel out.
        value += _ROUNDED * _value(np.abs(prices), np.abs(self.supply))
        return prices * (self.pricing.batch * (1 - 1e-7) / value)

    def _add_columns(self, prices: Array) -> bool:
        """Add patterns worth more than their price; False where there is none."""
        return self._add_some(prices, _APART) or self._add_some(prices, 1)

    def _add_some(self, prices: Array, step: int) -> bool:
        """The same, of some of the intervals."""
        if step not in self._parts:
            self._parts[step] = tuple(part.every(step) for part in self._parts[1])
        found = False
        for number, part in enumerate(self._parts[step]):
            programme = _Programme(self, part, prices)
            surplus = programme.surplus
            taken: list[int] = []
            for place in np.argsort(-surplus, kind="stable")[: 40 * _COLUMNS_A_ROUND]:
                if surplus[place] <= 0 or len(taken) == _COLUMNS_A_ROUND:
                    break
                g = int(programme.intervals[place])
                if all(abs(g - other) * step >= _APART for other in taken):
                    taken.append(g)
                    self._add((number, g * step), programme, int(place))
            found = found or bool(taken)
        return found

    def _add(self, key: tuple[int, int], programme: "_Programme", place: int) -> None:
        """Keep the cheapest pattern of an interval as a column."""
        g = int(programme.intervals[place])
        part, groups = programme.part, self.pricing.groups
        uses = [0.0] * self.pricing.goods
        uses[_PIPELINES] = 1.0
        spent = 0.0
        seen = []
        for members, y, end in programme.pattern(place):
            i, k, w, least = programme.visit(members, y, end, g)
            claim, held = float(part.claims[i][k, w]), float(part.held[i][k, w])
            uses[i] += k + 1
            uses[len(groups) + i] += claim - held
            uses[_SHARES] += claim
            uses[_HELD] -= held
            spent += least
            seen.append((i, k, w, end))
        worth = float(programme.worth[g]) - part.sequences * spent
        self.columns[(*key, *sorted(seen))] = (worth, tuple(uses))

    def _limit_more(self, amounts: Array) -> bool:
        """Limit groups that a packed pattern visits more often than it has nodes.

        Whether there were any: then their columns go, and pricing obeys the limit.
        """
        groups = self.pricing.groups
        over = set()
        kept = {}
        for amount, (key, row) in zip(amounts, self.columns.items(), strict=True):
            often = [0] * len(groups)
            for visit in key[2:]:
                often[visit[0]] += 1  # type: ignore[index]
            worse = {i for i, n in enumerate(often) if n > groups[i].nodes}
            if not worse:
                kept[key] = row
            elif amount > 1e-9:
                over |= worse
        if not over - self.limited:
            return False
        self.limited |= over
        self.columns = kept
        return True


_Visit = tuple[tuple[int, ...], int, int]  # groups to choose from, cells, end


class _Programme:
    """The least prices of all patterns of one size, and how they come about.

    `surplus` is what a pattern is worth more than its price, at the most, in each of
    the `intervals`. Where nodes can be visited but once, only those are looked at that
    had any as if they could be visited at will.
    """

    def __init__(self, search: _Search, part: Part, prices: Array) -> None:
        self.part, self.pricing = part, search.pricing
        self.goods = [
            self._price_of_visits(i, prices) for i in range(len(self.pricing.groups))
        ]
        self.worth = search.worth(part)
        lowest = [self._lowest(i) for i in range(len(self.pricing.groups))]
        self.walk = self._priced(lowest, set())
        self.intervals = np.arange(len(self.worth))
        self.surplus = self._surplus(prices)
        hard = np.flatnonzero(self.surplus > 0)
        if search.limited and len(hard):
            some = [
                [None if table is None else table[:, hard] for table in states]
                for states in lowest
            ]
            self.intervals = hard
            self.walk = self._priced(some, search.limited)
            self.surplus = self._surplus(prices)

    def _surplus(self, prices: Array) -> Table:
        ended = self.walk.states[2]
        assert ended is not None
        cost = ended[-1] + np.float32(prices[_PIPELINES])
        worth = self.worth[self.intervals]
        groups = zip(self.pricing.groups, self.goods, strict=True)
        most = sum(group.nodes * np.abs(each).max() for group, each in groups)
        room = _MARGIN * (worth + most)
        surplus: Table = worth - cost * (1 - np.copysign(_MARGIN, cost)) + room
        return surplus

    def _price_of_visits(self, i: int, prices: Array) -> Table:
        """Price of the goods that a visit of group `i` takes, by [k - 1, w]."""
        groups, part = self.pricing.groups, self.part
        gpus = np.arange(1, groups[i].gpus + 1)[:, None]
        balance = prices[len(groups) + i]
        claims = (prices[_SHARES] + balance) * part.claims[i]
        held = (prices[_HELD] + balance) * part.held[i]
        priced: Table = (prices[i] * gpus + claims - held).astype(np.float32)
        return priced

    def _table(self, i: int, end: int) -> Table | None:
        visits = self.part.visits[i]
        return visits[end]

    def _lowest(self, i: int) -> _States:
        """Least prices of a visit of group `i`, by its end."""
        found: _States = []
        for end in range(_ENDS):
            table = self._table(i, end)
            if table is None:
                found.append(None)
                continue
            times = np.float32(self.part.sequences)
            least = cheapest(table, times, self.goods[i])
            if not self.part.exact:  # what is worth more serves as well
                least[::-1] = np.minimum.accumulate(least[::-1], 0)
            found.append(least)
        return found

    def _priced(self, lowest: list[_States], limited: set[int]) -> _Walk:
        """All pipelines; where there are several sites, each is visited once."""
        every = range(len(self.pricing.groups))
        if not self.part.most:
            return self._visiting(every, lowest, limited)
        states, steps = _nowhere([*lowest[0][:3], None, None]), []
        for site, most in enumerate(self.part.most):
            there = [i for i in every if self.pricing.groups[i].site == site]
            if not there or not most:
                continue
            few = [
                [None if table is None else table[: most + 1] for table in each]
                for each in lowest
            ]
            inside = self._visiting(there, few, limited)
            whole = [inside.states[end] for end in _IN_SITE]
            if not self.part.bridged:  # the last stage lies in one site
                whole[1] = None
            steps.append(_Step(tuple(there), [*whole, None, None], states, inside))
            states = _one_more(states, steps[-1].lowest)
        return _Walk(steps, states)

    def _visiting(
        self, members: Sequence[int], lowest: list[_States], limited: set[int]
    ) -> _Walk:
        """Pipelines on nodes of some groups."""
        free = [i for i in members if i not in limited]
        states, steps = _nowhere(lowest[members[0]]), []
        if free:
            any_of = [_least_of([lowest[i][end] for i in free]) for end in range(_ENDS)]
            self._any_number(any_of, states)
            steps.append(_Step(tuple(free), any_of, None))
        for i in sorted(limited.intersection(members)):
            for _ in range(self.pricing.groups[i].nodes):
                self.pricing.check()
                more = _one_more(states, lowest[i])
                if all(map(_same, more, states)):  # nor would further visits help
                    break
                steps.append(_Step((i,), lowest[i], states))
                states = more
        return _Walk(steps, states)

    def _any_number(self, visits: _States, states: _States) -> None:
        """Fill `states` with any number of visits, of which the last ends them."""
        for from_, end, to in _AT_WILL:
            visit, before, after = visits[end], states[from_], states[to]
            if visit is None or before is None or after is None:
                continue
            self.pricing.check()
            extend(after, before, visit)

    def pattern(self, g: int) -> list[_Visit]:
        """The visits of the cheapest pattern that holds all layers and ends."""
        return _visits(self.walk, self.part.cells, 2, g)

    def visit(
        self, members: tuple[int, ...], y: int, end: int, g: int
    ) -> tuple[int, int, int, float]:
        """Group, GPUs less 1, cells and time of the cheapest such visit."""
        best: tuple[float, int, int, int, float] | None = None
        cells = slice(y, y + 1 if self.part.exact else None)
        for i in members:
            table = self._table(i, end)
            assert table is not None
            times = table[:, cells, g]
            price = np.float32(self.part.sequences) * times + self.goods[i][:, cells]
            k, w = divmod(int(np.argmin(price)), price.shape[1])
            found = (float(price[k, w]), i, k, y + w, float(times[k, w]))
            best = found if best is None else min(best, found)
        assert best is not None
        return best[1:]


def _value(prices: Array, amounts: Array) -> float:
    """What the amounts are worth, rounded alike on every processor."""
    return fsum(map(float, prices * amounts))


def _least_of(tables: list[Table | None]) -> Table | None:
    known = [table for table in tables if table is not None]
    return np.minimum.reduce(known) if known else None


def _one_more(states: _States, visits: _States) -> _States:
    """Allow one more visit, at these least prices by worth held."""
    more: _States = [None if table is None else table.copy() for table in states]
    for from_, end, to in _STEPS:
        before, visit, after = states[from_], visits[end], more[to]
        if before is None or visit is None or after is None:
            continue
        extend(after, before, visit)
    return more


def _nowhere(like: _States) -> _States:
    """Before any visit, with tables such as these."""
    states: _States = [
        None if table is None else np.full(table.shape, np.inf, np.float32)
        for table in like
    ]
    assert states[0] is not None
    states[0][0] = 0
    return states


def _same(one: Table | None, other: Table | None) -> bool:
    if one is None or other is None:
        return one is other
    return np.array_equal(one, other)


def _into(state: int) -> Iterator[tuple[int, int]]:
    """Visits by their end, and states before them, that make a state."""
    yield from ((end, from_) for from_, end, to in _STEPS if to == state)


def _visits(walk: _Walk, left: int, state: int, g: int) -> list[_Visit]:
    """The visits of the cheapest way to a state with so many cells."""
    states = walk.states
    visits: list[_Visit] = []
    for step in reversed(walk.steps):
        if step.before is None:
            visits += _visits_of_any_number(step, states, left, state, g)
            break
        y, end, before = _last_visit(step, states, left, state, g)
        if y and step.inside is not None:
            visits += _visits(step.inside, y, _IN_SITE[end], g)
        elif y:
            visits.append((step.members, y, end))
        state, left, states = before, left - y, step.before
    return visits


def _visits_of_any_number(
    step: _Step, states: _States, left: int, state: int, g: int
) -> list[_Visit]:
    visits: list[_Visit] = []
    while left:
        options = []
        for end, from_ in _into(state):
            before, visit = states[from_], step.lowest[end]
            # The last visits of such a pattern are those that end it.
            if before is None or visit is None or (state > 0 and end == 0):
                continue
            costs = visit[1 : left + 1, g] + before[left - 1 :: -1, g]
            y = 1 + int(np.argmin(costs))
            options.append((float(costs[y - 1]), y, end, from_))
        _, y, end, from_ = min(options)
        visits.append((step.members, y, end))
        state, left = from_, left - y
    return visits


def _last_visit(
    step: _Step, states: _States, left: int, state: int, g: int
) -> tuple[int, int, int]:
    """Cells of the visit that this step allowed, or 0; its end; the state before."""
    assert step.before is not None
    now, same = states[state], step.before[state]
    assert now is not None
    assert same is not None
    aim = float(now[left, g])
    options = [(abs(float(same[left, g]) - aim), 0, 0, state)]
    for end, from_ in _into(state):
        before, visit = step.before[from_], step.lowest[end]
        if before is None or visit is None or not (most := min(left, len(visit) - 1)):
            continue
        costs = visit[1 : most + 1, g] + before[left - most : left, g][::-1]
        off = np.abs(costs.astype(float) - aim)
        y = 1 + int(np.argmin(off))
        options.append((float(off[y - 1]), y, end, from_))
    return min(options, key=lambda option: option[0])[1:]
