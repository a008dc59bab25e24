"""Can the pipelines that are possible within a time take the whole batch together?

A *pattern* is what one pipeline uses of each group of nodes. Within the time T for
all its micro-batches and with bottleneck M it can take

    samples(u) <= b (1 + (T - sum of stage times) / M)

samples. The master linear program packs patterns into the GPUs. Prices y_g >= 0 per
GPU of each group refute T where  sum_g y_g GPUs_g < batch  and every pattern is worth
its price,  samples(u) <= y . gpus(u):  whatever is packed, the batch is not reached.
That is checked over all patterns by dynamic programming (`_priced`), so the linear
program, in floats, only proposes prices. Float32 sums of at most a few hundred terms
are within 1e-5 of the largest, which `_MARGIN` gives away.

Where the replicas are is scarce too. A visit of k of a node's C GPUs with y layers
claims at least  y - k rate  of the node's share (`_pattern_bound`). With weights k / C,
which are at most 1 over the visits of a node,

    sum over visits of (k / C) max(0, y - k rate)  <=  share of the node,

all shares together are L, and with D pipelines a node's share is what its visits hold,
divided by D. So the goods are, in this order: the GPUs of each group; for each group
the difference of claims and layers held / D, of which there is nothing; the shares, L
in all; and the pipelines, of which there are at most so many.
"""

from dataclasses import dataclass

import numpy as np

from ._small_lp import Array, maximise
from ._visit_tables import Grid, Table, Visits

_MARGIN = np.float32(1e-5)
_ROUNDS = 60
_COLUMNS_A_ROUND = 6
_APART = 5  # intervals between two columns of one round


@dataclass(frozen=True)
class Group:
    """Nodes that a case treats alike: how many, of how many GPUs, their visits."""

    nodes: int
    gpus: int
    visits: tuple[Visits, ...]  # one for each micro-batch size
    claims: Table  # of the share, by [k - 1, y]
    held: Table  # of the share at the most, by [y]


@dataclass(frozen=True)
class Market:
    """Groups, and the grid of bottlenecks for each micro-batch size.

    `shares` is what all nodes' shares sum to, in average layers; `pipelines` is the
    most that there can be.
    """

    batch: int
    layers: int
    shares: float
    pipelines: float
    sizes: tuple[int, ...]
    grids: tuple[Grid, ...]
    groups: tuple[Group, ...]

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
    def __init__(self, market: Market, time_us: float) -> None:
        self.market = market
        gpus = [g.nodes * g.gpus for g in market.groups]
        none = [0.0] * len(gpus)
        goods = [*gpus, *none, market.shares, market.pipelines]
        self.goods = np.array(goods, float)
        self.samples = [
            np.where(
                grid.inverse > 0,
                np.float32(b) * (1 + np.float32(time_us) * grid.inverse),
                np.float32(market.batch),
            )
            for b, grid in zip(market.sizes, market.grids, strict=True)
        ]
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
            value, amounts, prices = maximise(worth, uses, self.goods)
            if value >= self.market.batch and not self._limit_more(amounts):
                break
        return Verdict(False, tuple(prices))

    def _fair_prices(self) -> Array:
        """In proportion to speed: what one GPU does of one layer's work."""
        groups = self.market.groups
        fastest = [np.nanmin(g.visits[0].final[:, 1, -1]) for g in groups]
        speeds = [1 / v if 0 < v < np.inf else 1e-6 for v in fastest]
        return np.array(speeds + [0.0] * (self.market.goods - len(speeds)))

    def _scaled(self, prices: Array) -> Array:
        """Prices at which all GPUs together are worth just less than the batch."""
        prices = np.maximum(prices, 1e-9 * self._fair_prices())
        return prices * (self.market.batch * (1 - 1e-7) / float(prices @ self.goods))

    def _add_columns(self, prices: Array) -> bool:
        """Add patterns worth more than their price; False where there is none."""
        found = False
        for size, samples in enumerate(self.samples):
            steps, cost = self._priced(size, prices)
            cost = cost + np.float32(prices[-1])
            room = _MARGIN * (samples + self._most)
            surplus = samples - cost * (1 - np.copysign(_MARGIN, cost)) + room
            taken: list[int] = []
            for g in np.argsort(-surplus)[: 40 * _COLUMNS_A_ROUND]:
                if surplus[g] <= 0 or len(taken) == _COLUMNS_A_ROUND:
                    break
                if any(abs(int(g) - other) < _APART for other in taken):
                    continue
                taken.append(int(g))
                self._add(size, int(g), steps, prices)
            found = found or bool(taken)
        return found

    # -- pricing -----------------------------------------------------------------

    def _priced(
        self,
        size: int,
        prices: Array,
    ) -> tuple[list[_Step], Table]:
        """Least price of a pattern for each interval, and the steps to read it."""
        market = self.market
        lowest = []
        self._most = np.float32(0)
        b = np.float32(market.sizes[size])
        for i, group in enumerate(market.groups):
            each = self._price_of_visits(i, prices)[:, :, None]
            self._most = max(self._most, np.abs(each).max())
            visits = group.visits[size]
            lowest.append(
                ((visits.onward * b + each).min(0), (visits.final * b + each).min(0))
            )
        free = [i for i in range(len(market.groups)) if i not in self.limited]
        steps = []
        shape = lowest[0][0].shape
        going = np.full(shape, np.inf, np.float32)
        going[0] = 0
        ended = np.full(shape, np.inf, np.float32)
        if free:
            onward = np.minimum.reduce([lowest[i][0] for i in free])
            final = np.minimum.reduce([lowest[i][1] for i in free])
            for y in range(1, shape[0]):
                going[y] = (onward[1 : y + 1] + going[y - 1 :: -1]).min(0)
            for y in range(1, shape[0]):
                ended[y] = (final[1 : y + 1] + going[y - 1 :: -1]).min(0)
            steps.append(_Step(tuple(free), onward, final, None))
        for i in sorted(self.limited):
            for _ in range(market.groups[i].nodes):
                steps.append(_Step((i,), *lowest[i], (going, ended)))
                going, ended = _one_more(going, ended, *lowest[i])
        self._tables = (going, ended)
        return steps, ended[-1]

    def _price_of_visits(self, i: int, prices: Array) -> Table:
        """Price of the goods that a visit of group `i` takes, by [k - 1, y]."""
        group = self.market.groups[i]
        gpus = np.arange(1, group.gpus + 1)[:, None]
        balance = prices[len(self.market.groups) + i]
        claims = (prices[-2] + balance) * group.claims - balance * group.held
        priced: Table = (prices[i] * gpus + claims).astype(np.float32)
        return priced

    def _add(
        self,
        size: int,
        g: int,
        steps: list[_Step],
        prices: Array,
    ) -> None:
        """Read back the cheapest pattern of interval `g` and keep it as a column."""
        visits = _read_back(steps, self._tables, self.market.layers, g)
        count = len(self.market.groups)
        uses = [0.0] * self.market.goods
        uses[-1] = 1.0
        spent = 0.0
        seen = []
        for members, y, final in visits:
            best = None
            for i in members:
                pair = self.market.groups[i].visits[size]
                column = (pair.final if final else pair.onward)[:, y, g]
                goods = self._price_of_visits(i, prices)[:, y]
                costs = column * self.market.sizes[size] + goods
                k = int(np.argmin(costs))
                if best is None or costs[k] < best[0]:
                    best = (costs[k], i, k + 1, float(column[k]))
            assert best is not None
            uses[best[1]] += best[2]
            group = self.market.groups[best[1]]
            claim = float(group.claims[best[2] - 1, y])
            uses[count + best[1]] += claim - float(group.held[y])
            uses[-2] += claim
            spent += best[3] * self.market.sizes[size]
            seen.append((best[1], best[2], y, final))
        key = (size, g, *sorted(seen))
        self.columns[key] = (float(self.samples[size][g]) - spent, tuple(uses))

    def _limit_more(self, amounts: Array) -> bool:
        """Limit groups that a packed pattern visits more often than it has nodes.

        Whether there were any: then their columns go, and pricing obeys the limit.
        """
        groups = self.market.groups
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
) -> list[tuple[tuple[int, ...], int, bool]]:
    """Visits (groups to choose from, layers, whether final) of the cheapest pattern."""
    going, ended = tables
    left, finished = layers, False
    out = []
    for step in reversed(steps):
        if step.before is not None:
            before_going, before_ended = step.before
            now = (going if finished else ended)[left, g]
            options = [
                ((before_going if finished else before_ended)[left, g], 0, False)
            ]
            for y in range(1, left + 1):
                if finished:
                    options.append(
                        (before_going[left - y, g] + step.onward[y, g], y, False)
                    )
                else:
                    options.append(
                        (before_ended[left - y, g] + step.onward[y, g], y, False)
                    )
                    options.append(
                        (before_going[left - y, g] + step.final[y, g], y, True)
                    )
            _, y, final = min(options, key=lambda option: abs(option[0] - now))
            if y:
                out.append((step.members, y, final))
            finished, left = finished or final, left - y
            going, ended = before_going, before_ended
            continue
        while left:
            if not finished:
                costs = step.final[1 : left + 1, g] + going[left - 1 :: -1, g]
            else:
                costs = step.onward[1 : left + 1, g] + going[left - 1 :: -1, g]
            y = 1 + int(np.argmin(costs))
            out.append((step.members, y, not finished))
            finished, left = True, left - y
    return out
