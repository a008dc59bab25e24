"""Can the pipelines that are possible within a time take the whole batch together?

A *pattern* is what one pipeline uses of each group of nodes. Within the time T for
all its micro-batches and with bottleneck M it can take

    samples(u) <= 1 + (T - sum of stage times) / M

samples, one a micro-batch. The master linear program packs patterns into the GPUs.
Prices y_g >= 0 per GPU of each group refute T where  sum_g y_g GPUs_g < batch  and
every pattern is worth its price,  samples(u) <= y . gpus(u):  whatever is packed, the
batch is not reached. That is checked over all patterns by dynamic programming
(`_priced`), so the linear program, in floats, only proposes prices. Float32 sums of at
most a few hundred terms are within 1e-5 of the largest, which `_MARGIN` gives away.

Where the replicas are is scarce too. A visit of k of a node's C GPUs with y layers
claims at least  y - k rate  of the node's share (`bound`). With weights k / C,
which are at most 1 over the visits of a node,

    sum over visits of (k / C) max(0, y - k rate)  <=  share of the node,

all shares together are L, and with D pipelines a node's share is what its visits hold,
divided by D. So the goods are, in this order: the GPUs of each group; for each group
the difference of claims and layers held / D, of which there is nothing; the shares, L
in all; and the pipelines, of which there are at most so many.
"""

from collections.abc import Callable
from dataclasses import dataclass
from math import fsum

import numpy as np

from .programme import Array, maximise
from .visits import Grid, Table, Visits

_MARGIN = np.float32(1e-5)
_ROUNDS = 60
_COLUMNS_A_ROUND = 6
_APART = 5  # intervals between two columns of one round


@dataclass(frozen=True)
class Group:
    """Nodes that a case treats alike: how many, of how many GPUs, their visits."""

    nodes: int
    gpus: int
    visits: Visits
    claims: Table  # of the share, by [k - 1, y]
    held: Table  # of the share at the most, by [y]


@dataclass(frozen=True)
class Pricing:
    """Groups of nodes, and the grid of bottlenecks.

    `shares` is what all nodes' shares sum to, in average layers; `pipelines` is the
    most that there can be.
    """

    batch: int
    layers: int
    shares: float
    pipelines: float
    grid: Grid
    groups: tuple[Group, ...]
    check: Callable[[], None] = lambda: None  # before what takes long; may raise

    @property
    def goods(self) -> int:
        """Number of goods that have a price."""
        return 2 * len(self.groups) + 2

    def refute(self, time_us: float, start: tuple[float, ...] | None) -> "Verdict":
        """Whether no packing of pipelines takes the batch within `time_us`."""
        if time_us <= 0:
            return Verdict(True, (0.0,) * self.goods)
        return _Search(self, time_us).run(start)


@dataclass(frozen=True)
class Verdict:
    """Refuted, with prices per GPU of each group that prove it; or not (yet)."""

    refuted: bool
    prices: tuple[float, ...]


@dataclass(frozen=True)
class _Step:
    """One choice of the dynamic program: visits of a group, or of several, lowest."""

    members: tuple[int, ...]
    onward: Table
    final: Table
    before: tuple[Table, Table] | None  # None: any number of visits


class _Search:
    def __init__(self, pricing: Pricing, time_us: float) -> None:
        self.pricing = pricing
        gpus = [g.nodes * g.gpus for g in pricing.groups]
        none = [0.0] * len(gpus)
        supply = [*gpus, *none, pricing.shares, pricing.pipelines]
        self.supply = np.array(supply, float)
        inverse = pricing.grid.inverse
        self.samples = np.where(
            inverse > 0,
            1 + np.float32(time_us) * inverse,
            np.float32(pricing.batch),
        )
        self.limited: set[int] = set()
        self.columns: dict[tuple[object, ...], tuple[float, tuple[float, ...]]] = {}

    def run(self, start: tuple[float, ...] | None) -> Verdict:
        prices = np.array(start) if start else self._fair_prices()
        for _ in range(_ROUNDS):
            prices = self._scaled(prices)
            if not self._add_columns(prices):
                return Verdict(True, tuple(prices))
            worth = np.array([row[0] for row in self.columns.values()])
            uses = np.array([row[1] for row in self.columns.values()], float).T
            value, amounts, prices = maximise(worth, uses, self.supply)
            if value >= self.pricing.batch and not self._limit_more(amounts):
                break
        return Verdict(False, tuple(prices))

    def _fair_prices(self) -> Array:
        """In proportion to speed: what one GPU does of one layer's work."""
        fastest = [np.nanmin(g.visits.final[:, 1, -1]) for g in self.pricing.groups]
        speeds = [1 / v if 0 < v < np.inf else 1e-6 for v in fastest]
        return np.array(speeds + [0.0] * (self.pricing.goods - len(speeds)))

    def _scaled(self, prices: Array) -> Array:
        """Prices at which all goods together are worth just less than the batch."""
        prices = np.maximum(prices, 1e-9 * self._fair_prices())
        return prices * (self.pricing.batch * (1 - 1e-7) / _value(prices, self.supply))

    def _add_columns(self, prices: Array) -> bool:
        """Add patterns worth more than their price; False where there is none."""
        goods = [
            self._price_of_visits(i, prices) for i in range(len(self.pricing.groups))
        ]
        steps, tables = self._priced(goods)
        cost = tables[1][-1] + np.float32(prices[-1])
        most = max(np.abs(each).max() for each in goods)
        room = _MARGIN * (self.samples + most)
        surplus = self.samples - cost * (1 - np.copysign(_MARGIN, cost)) + room
        taken: list[int] = []
        for g in np.argsort(-surplus, kind="stable")[: 40 * _COLUMNS_A_ROUND]:
            if surplus[g] <= 0 or len(taken) == _COLUMNS_A_ROUND:
                break
            if all(abs(int(g) - other) >= _APART for other in taken):
                taken.append(int(g))
                visits = _read_back(steps, tables, self.pricing.layers, int(g))
                self._add(int(g), visits, goods)
        return bool(taken)

    # -- pricing -----------------------------------------------------------------

    def _price_of_visits(self, i: int, prices: Array) -> Table:
        """Price of the goods that a visit of group `i` takes, by [k - 1, y]."""
        group = self.pricing.groups[i]
        gpus = np.arange(1, group.gpus + 1)[:, None]
        balance = prices[len(self.pricing.groups) + i]
        claims = (prices[-2] + balance) * group.claims - balance * group.held
        priced: Table = (prices[i] * gpus + claims).astype(np.float32)
        return priced

    def _priced(self, goods: list[Table]) -> tuple[list[_Step], tuple[Table, Table]]:
        """Steps of the dynamic program, and its tables: least prices by layers held.

        The first table is of pipelines that go on, the second of those that ended.
        """
        groups = self.pricing.groups
        lowest = [
            (
                (group.visits.onward + each[:, :, None]).min(0),
                (group.visits.final + each[:, :, None]).min(0),
            )
            for group, each in zip(groups, goods, strict=True)
        ]
        free = [i for i in range(len(groups)) if i not in self.limited]
        steps = []
        shape = lowest[0][0].shape
        going = np.full(shape, np.inf, np.float32)
        going[0] = 0
        ended = np.full(shape, np.inf, np.float32)
        if free:
            onward = np.minimum.reduce([lowest[i][0] for i in free])
            final = np.minimum.reduce([lowest[i][1] for i in free])
            for y in range(1, shape[0]):
                self.pricing.check()
                going[y] = (onward[1 : y + 1] + going[y - 1 :: -1]).min(0)
            for y in range(1, shape[0]):
                ended[y] = (final[1 : y + 1] + going[y - 1 :: -1]).min(0)
            steps.append(_Step(tuple(free), onward, final, None))
        for i in sorted(self.limited):
            for _ in range(groups[i].nodes):
                steps.append(_Step((i,), *lowest[i], (going, ended)))
                self.pricing.check()
                going, ended = _one_more(going, ended, *lowest[i])
        return steps, (going, ended)

    def _add(self, g: int, visits: list["_Visit"], goods: list[Table]) -> None:
        """Keep the cheapest pattern of interval `g`, made of `visits`, as a column."""
        groups = self.pricing.groups
        uses = [0.0] * self.pricing.goods
        uses[-1] = 1.0
        spent = 0.0
        seen = []
        for members, y, final in visits:
            _, i, k, least = min(
                (times[k] + goods[i][k, y], i, k, float(times[k]))
                for i in members
                for times in [_times(groups[i].visits, final)[:, y, g]]
                for k in [int(np.argmin(times + goods[i][:, y]))]
            )
            claim = float(groups[i].claims[k, y])
            uses[i] += k + 1
            uses[len(groups) + i] += claim - float(groups[i].held[y])
            uses[-2] += claim
            spent += least
            seen.append((i, k, y, final))
        worth = float(self.samples[g]) - spent
        self.columns[(g, *sorted(seen))] = (worth, tuple(uses))

    def _limit_more(self, amounts: Array) -> bool:
        """Limit groups that a packed pattern visits more often than it has nodes.

        Whether there were any: then their columns go, and pricing obeys the limit.
        """
        groups = self.pricing.groups
        over = set()
        kept = {}
        for amount, (key, row) in zip(amounts, self.columns.items(), strict=True):
            often = [0] * len(groups)
            for visit in key[1:]:
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


_Visit = tuple[tuple[int, ...], int, bool]  # groups to choose from, layers, final


def _value(prices: Array, amounts: Array) -> float:
    """What the amounts are worth, rounded alike on every processor."""
    return fsum(map(float, prices * amounts))


def _times(visits: Visits, final: bool) -> Table:
    return visits.final if final else visits.onward


def _one_more(
    going: Table, ended: Table, onward: Table, final: Table
) -> tuple[Table, Table]:
    """Allow one more visit, at these least prices by layers held."""
    more_going, more_ended = going.copy(), ended.copy()
    layers = len(going) - 1
    for y in range(1, layers + 1):
        rest = slice(0, layers + 1 - y)
        np.minimum(more_going[y:], going[rest] + onward[y], out=more_going[y:])
        np.minimum(more_ended[y:], ended[rest] + onward[y], out=more_ended[y:])
        np.minimum(more_ended[y:], going[rest] + final[y], out=more_ended[y:])
    return more_going, more_ended


def _read_back(
    steps: list[_Step], tables: tuple[Table, Table], layers: int, g: int
) -> list[_Visit]:
    """The visits of the cheapest pattern that holds all layers and ends."""
    left, finished = layers, False
    visits: list[_Visit] = []
    for step in reversed(steps):
        if step.before is None:
            visits += _visits_of_any_number(step, tables[0], left, finished, g)
            break
        y, final = _last_visit(step, tables, left, finished, g)
        if y:
            visits.append((step.members, y, final))
        finished, left, tables = finished or final, left - y, step.before
    return visits


def _visits_of_any_number(
    step: _Step, going: Table, left: int, finished: bool, g: int
) -> list[_Visit]:
    visits: list[_Visit] = []
    while left:
        last = step.onward if finished else step.final
        costs = last[1 : left + 1, g] + going[left - 1 :: -1, g]
        y = 1 + int(np.argmin(costs))
        visits.append((step.members, y, not finished))
        finished, left = True, left - y
    return visits


def _last_visit(
    step: _Step, tables: tuple[Table, Table], left: int, finished: bool, g: int
) -> tuple[int, bool]:
    """Layers of the visit that this step allowed, 0 if none, and whether it ends."""
    assert step.before is not None
    going, ended = step.before
    now = (tables[0] if finished else tables[1])[left, g]
    same = going if finished else ended
    options = [(same[left, g], 0, False)]
    for y in range(1, left + 1):
        options.append((same[left - y, g] + step.onward[y, g], y, False))
        if not finished:
            options.append((going[left - y, g] + step.final[y, g], y, True))
    _, y, final = min(options, key=lambda option: abs(option[0] - now))
    return y, final
