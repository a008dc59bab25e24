"""Pricing: a path that is worth more than it costs, or the proof that there is none.

Prices are whole numbers, in sequences / Q. The rows of the master that have one are

    gpu[c]      GPUs of class c                          sum r_pc x_p <= N_c
    share[c]    demands less held sizes / D, of class c  <= 0
    shares      demands, of all nodes                    <= e, the size of all layers
    pipelines   their number                             >= F and <= P
    held        held sizes / D, of all nodes             >= e

Sizes are in units (`stages.sync`). A node's part of the replicas of all layers, summed
by size, is at least what any one pipeline demands of it there: weighted with k of its C
GPUs, pipelines may be added up. It is at most what its replicas hold, divided by D; and
of all nodes together it is e. A box has F pipelines or more: as many as it says, and so
many that D replicas are in them, where none has more of a layer than a micro-batch has
sequences.

In the interval [m, m'] of the slowest stage a path of stages tau_j <= m' takes no more
than b (T + m - sum tau) / m sequences, and b (T v + m - sum tau) / (m v) where stages
have v virtual stages. The slowest stage is that of the pipeline in truth, which takes
as long as its stages here, or longer: so an interval reaches up to where the next one
begins, and m' is the last time of stages in it. So prices refute T where every path has

    b Q sum tau + v m price  >=  b Q (v T + m).

There may be a limit W on what a path takes besides: then a mean of both will do.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property
from typing import Any, NamedTuple, Self, TypeVar

import numpy as np
import numpy.typing as npt

from ...errors import InternalError
from ...stages import StageTable
from ...stages.classes import Whole
from ...stages.runs import Flags
from ...stages.sync import UNIT
from . import kernels
from .arcs import Span
from .coupling import Coupling
from .kernels import BIG, HALF, MOST, Costs, Graph

Array = npt.NDArray[np.float64]
Made = TypeVar("Made")


class Prices(NamedTuple):
    """Prices of the rows, in sequences / Q (sizes: by average layer).

    None is below 0, but that of pipelines may be: then it is paid for the fewest.
    """

    gpu: tuple[int, ...]
    share: tuple[int, ...]
    shares: int
    pipelines: int
    held: int

    @classmethod
    def of(cls, each: Sequence[int]) -> Self:
        """Return the prices of all rows, in their order."""
        count = len(each) // 2 - 1
        return cls(tuple(each[:count]), tuple(each[count : 2 * count]), *each[-3:])


def flat(prices: Prices) -> Iterator[int]:
    """Yield the prices of all rows, in their order."""
    yield from prices.gpu
    yield from prices.share
    yield from prices[2:]


@dataclass(frozen=True)
class Rows:
    """The rows of a master: GPUs, the size of all layers, pipelines."""

    gpus: tuple[int, ...]
    size_low: int
    size_high: int
    replicas: int
    pipelines: int
    fewest: int

    def value(self, prices: Prices) -> Fraction:
        """Return what all rows are worth at the prices."""
        whole = sum(y * n for y, n in zip(prices.gpu, self.gpus, strict=True))
        number = self.pipelines if prices.pipelines > 0 else self.fewest
        whole += prices.pipelines * number
        sizes = prices.shares * self.size_high - prices.held * self.size_low
        return whole + Fraction(sizes, UNIT)

    @property
    def supply(self) -> tuple[float, ...]:
        """Return what there is of each row, in the order of prices, for a programme."""
        none = (0.0,) * len(self.gpus)
        sizes = self.size_high / UNIT, self.size_low / UNIT
        gpus = map(float, self.gpus)
        return (*gpus, *none, sizes[0], float(self.pipelines), -sizes[1])


def carried(parts: Iterable["Pricing"]) -> tuple[list[int], list[int]]:
    """Return the lowest and the highest prices of rows that all parts can carry."""
    ends = [(flat(part.lowest_prices), flat(part.most_prices)) for part in parts]
    lowest, most = (zip(*rows, strict=True) for rows in zip(*ends, strict=True))
    return [max(row) for row in lowest], [min(row) for row in most]


class Limits(NamedTuple):
    """Limits of the pipelines of a part: their time, and sequences in all cases.

    A pipeline has `left_us` for its micro-batches, of which `spent_us` are gone before
    its slowest stage counts, if any; it takes `most` sequences or fewer.
    """

    left_us: int
    most: int
    spent_us: int = 0


class Placed(NamedTuple):
    """A stage of a column: its layers, and its arc, or replicas.

    The pipeline uses `together` GPUs of the node of an arc. For a stage in several
    nodes the arc is -1, and `items` are the numbers of its replicas.
    """

    first: int
    last: int
    arc: int
    together: int = 0
    items: tuple[int, ...] = ()


class Column(NamedTuple):
    """A pipeline of one part of a box: what it uses of each row, and how long it takes.

    `uses` are in the order of `Prices`, sizes in average layers.
    """

    part: int
    span: Span
    uses: tuple[float, ...]
    sum_us: int
    slowest_us: int


class Pricing:
    """Paths of one part of a box: stages that are distinguished by layers and order."""

    def __init__(
        self, table: StageTable, coupling: Coupling, limits: Limits, rows: Rows
    ) -> None:
        """Bind the stages of a part, what the box says of them, and their limits."""
        self.table, self.coupling, self.limits = table, coupling, limits
        self.arcs, self.rows = coupling.arcs, rows
        self.runs = table.instance.workload.costs.schedule.interleave
        self.layers = table.layers
        #: Sizes of runs, rounded up: what holding them earns.
        self.high = table.sync.high
        #: What was made of the prices that were asked for last.
        self._asked: Prices | None = None
        self._made: dict[Any, Any] = {}

    def _at(self, prices: Prices, make: Callable[..., Made], *given: Any) -> Made:
        """Return what a method makes of prices, and keep it until others are asked."""
        if self._asked != prices:
            self._asked, self._made = prices, {}
        key = make.__name__, *given
        if key not in self._made:
            self._made[key] = make(prices, *given)
        found: Made = self._made[key]
        return found

    # -- what a path is worth ------------------------------------------------------

    def worth(self, sum_us: int, low_us: int) -> float:
        """Return the most sequences of a path with no faster a slowest stage."""
        return min(self.line(sum_us, low_us), self.most(low_us))

    def line(self, sum_us: int, low_us: int) -> float:
        """Return the most sequences of such a path that there is time for."""
        v, b = self.runs, self.arcs.size
        return b * (v * self.limits.left_us + low_us - sum_us) / (v * low_us)

    def most(self, low_us: int) -> int:
        """Return the most sequences of any path with such a slowest stage."""
        limits = self.limits
        if not limits.spent_us:
            return limits.most
        spare = limits.left_us - limits.spent_us
        return min(limits.most, self.arcs.size * max(0, 1 + spare // low_us))

    def need(self, prices: Prices, scale: int, mean: int, lows: Whole) -> Whole:
        """Return what paths cost that are worth just what they cost, by interval.

        `mean` is how much of a sequence's price goes by time, the rest by the limit on
        what any path takes.
        """
        b, v = self.arcs.size, self.runs
        timed = mean * b * (v * self.limits.left_us + lows)
        most = np.array([self.most(low) for low in lows.tolist()], np.int64)
        found: Whole = timed + v * lows * ((scale - mean) * most - prices.pipelines)
        return found

    def excess(
        self, prices: Prices, scale: int, spans: Sequence[Span], enough: int = 0
    ) -> tuple[Whole, Whole]:
        """Return by how much a path may be worth more than it costs, at the most.

        By interval, times v m, with the mean that says least; 0 or less where prices
        refute every path, -`BIG` where there is none. `scale` is what a sequence is in
        prices. Where it is `enough` or less no other mean is tried.
        """
        self._checked(prices)
        begins, ends = np.array(spans).T
        lows, highs = self.arcs.times[begins], self.arcs.times[ends - 1]
        found, means = np.full(len(spans), BIG), np.zeros(len(spans), np.int64)
        some, b, v = np.arange(len(spans)), self.arcs.size, self.runs
        for parts in (2, 1, 0):  # halves of the mean that are the limit by time
            if not len(some):
                break
            mean, low = parts * scale // 2, lows[some]
            costs = self.least(prices, mean * b, low, highs[some])
            more = self.need(prices, scale, mean, low) - costs
            more[costs >= HALF] = -BIG
            less = more < found[some]
            found[some[less]], means[some[less]] = more[less], mean
            most = np.array([self.most(x) for x in low.tolist()], np.int64)
            bound = most * v * low < b * (v * self.limits.left_us + low)
            some = some[bound & (found[some] > enough)]
        return found, means

    # -- prices of arcs -------------------------------------------------------------

    def _limit(self) -> int:
        """Return what prices of arcs are lowered to where they are above."""
        return (1 << 59) // (self.runs * max(1, self.limits.left_us))

    @cached_property
    def most_prices(self) -> Prices:
        """The highest prices that 64 bits carry here.

        Whoever proposes prices keeps to them: lowered here, a price of held sizes
        would make rows worth more than they were checked to be. With them, one stage
        or node costs up to 2^59, and all that a path holds earns up to 2^57. So a path
        any end of which is at `HALF` or above costs 2^57 or more, and no path is worth
        that much.
        """
        limit, size, widest = self._limit(), self.arcs.size, self.coupling.widest
        units = self.rows.size_high + self.layers  # held by a path, one replica each
        # What each replica earns is rounded up, and what each stage holds.
        earned = (limit // 4 - self.layers * size) * self.rows.replicas * UNIT
        most = max(0, earned // (2 * size * units))
        most = min(most, limit, (1 << 61) // (units * max(size, widest)))
        count = len(self.rows.gpus)
        gpu, share = (limit // widest,) * count, (most,) * count
        return Prices(gpu, share, most, limit, most)

    @property
    def lowest_prices(self) -> Prices:
        """The lowest prices: so low that what a path has to pay stays below 2^57."""
        none = (0,) * len(self.rows.gpus)
        return Prices(none, none, 0, -(self._limit() // 16), 0)

    def _checked(self, prices: Prices) -> None:
        most = self.most_prices
        lowest = self.lowest_prices
        for given, *ends in zip(flat(prices), flat(lowest), flat(most), strict=True):
            low, highest = ends
            if not low <= given <= highest:
                raise InternalError(f"a price of {given}, expected {low} to {highest}")

    def _earnings(self, price: Whole, units: Whole) -> Whole:
        """Return what holding so many units earns, rounded up."""
        found: Whole = -(-price * units // (self.rows.replicas * UNIT))
        return found

    # -- paths ----------------------------------------------------------------------

    @cached_property
    def graph(self) -> Graph:
        """Return the arcs as kernels read them."""
        table, arcs, layers = self.table, self.arcs, self.layers
        gpus = table.node_gpus
        state = np.zeros((len(gpus), int(gpus.max()) + 1), np.int64)
        for c, k in np.ndindex(*state.shape):
            state[c, k] = self._states(c) + k * (k + 1) // 2
        low = table.sync.low[table.runs.number]
        limits = self.coupling.light
        light = np.zeros((*limits.shape, layers), np.int64)
        for first in range(layers):
            found = np.searchsorted(low[first, first + 1 :], limits.ravel(), "right")
            light[..., first] = first + found.reshape(limits.shape)
        return Graph(
            begin=arcs.begin(len(gpus)),
            gpus=arcs.gpus,
            inner=arcs.inner,
            outer=arcs.outer,
            fits=arcs.fits,
            light=light,
            node_gpus=gpus,
            state=state,
            run=table.runs.number,
        )

    def _states(self, kind: int) -> int:
        """Return how many states the classes before have."""
        gpus = self.table.node_gpus[:kind]
        return int(((gpus + 1) * (gpus + 2) // 2).sum())

    def _costs(self, prices: Prices, time: int) -> tuple[Graph, Costs]:
        graph, costs = self._at(prices, self._priced)
        return graph, costs._replace(time=time)

    def _priced(self, prices: Prices) -> tuple[Graph, Costs]:
        table, arcs = self.table, self.arcs
        runs, graph = table.runs, self.graph
        gpu, paid = np.array(prices.gpu), self._paid(prices)
        layers = self.layers
        arc = np.zeros((*paid.shape[:2], layers, layers + 1), np.int64)
        first, last = np.nonzero(runs.number[:layers] >= 0)
        arc[..., first, last] = paid[..., runs.number[first, last]]
        state = graph.state.copy()
        for c, most in enumerate(table.node_gpus.tolist()):
            mine = slice(graph.begin[c], graph.begin[c + 1])
            same = (graph.light[mine] == graph.light[mine, most : most + 1]).all(2)
            same &= (paid[mine] == paid[mine, most : most + 1]).all(2)
            needless = np.arange(same.shape[1])[None] < arcs.gpus[mine, None]
            if (same | needless)[:, 1 : most + 1].all():
                state[c, : most + 1] = state[c, most]
        costs = Costs(0, gpu, arc, *self._fronts(prices))
        return graph._replace(state=state), costs

    def _paid(self, prices: Prices) -> Whole:
        """Return prices of stages in one node, without GPUs: [arc, GPUs, run].

        A stage pays for what it demands of its node's share, weighted with the GPUs
        that the pipeline uses there, and earns what its replicas hold.
        """
        table, arcs, coupling = self.table, self.arcs, self.coupling
        share, kind = np.array(prices.share), arcs.kind
        earned = (share[kind] + prices.held)[:, None]
        held = self._earnings(earned, arcs.replicas[:, None] * self.high)
        demand = (share[kind] + prices.shares)[:, None] * coupling.demand
        k = np.arange(coupling.light.shape[1])[None, :, None]
        paid = demand[:, None] * k // (table.node_gpus[kind][:, None, None] * UNIT)
        found: Whole = np.minimum(paid - held[:, None], self._limit())
        return found

    def _shared_cost(self, prices: Prices) -> Whole:
        """Return what replicas of stages in several nodes cost: [run, replica]."""
        table, coupling = self.table, self.coupling
        kind, gpus, _ = self.arcs.shared.T
        gpu, share = np.array(prices.gpu), np.array(prices.share)
        held = self._earnings((share[kind] + prices.held)[None], self.high[:, None])
        demand = (share[kind] + prices.shares) * coupling.shared_demand
        paid = demand * gpus // (table.node_gpus[kind] * UNIT)
        found: Whole = gpu[kind] * gpus + paid - held
        return np.minimum(found, self._limit() // self.arcs.size)

    def shared_items(self, prices: Prices, run: int, most_us: int) -> list[int]:
        """Return the cheapest replicas of a stage, none of which takes longer."""
        arcs, size = self.arcs, self.arcs.size
        cost = self._at(prices, self._shared_cost)[run]
        able = (arcs.shared_us[run] <= most_us) & self._able[run]
        best: list[tuple[int, int]] = [(0, -1)] + [(BIG, -1)] * size
        for item in np.flatnonzero(able).tolist():
            own = int(arcs.shared[item, 2])
            for s in range(own, size + 1):
                found = best[s - own][0] + int(cost[item])
                if best[s - own][0] < BIG and found < best[s][0]:
                    best[s] = (found, item)
        items, left = [], size
        while left:
            items.append(best[left][1])
            left -= int(arcs.shared[items[-1], 2])
        return items

    def _fronts(self, prices: Prices) -> tuple[Whole, Whole]:
        """Return fronts of stages in several nodes: times, and least costs.

        Both are by [run, i], ascending times and falling costs; `BIG` where there are
        no more. A knapsack over samples grows by one replica at a time.
        """
        arcs = self.arcs
        us, price = np.full((2, *arcs.shared_us.shape), BIG, np.int64)
        if len(arcs.shared):
            cost = self._at(prices, self._shared_cost)
            given = arcs.order, arcs.shared_us, arcs.shared[:, 2], cost, self._able
            kernels.compiled("fronts", *given, arcs.size, us, price)
        most = int((us < BIG).sum(1).max(initial=0))
        return np.ascontiguousarray(us[:, :most]), np.ascontiguousarray(price[:, :most])

    @cached_property
    def _able(self) -> Flags:
        """Tell which replicas stages in several nodes may have, by [run, replica]."""
        found: Flags = self.table.sync.low[:, None] <= self.coupling.shared_light
        return found

    def least(self, prices: Prices, time: int, lows: Whole, highs: Whole) -> Whole:
        """Return the least cost of a path, by interval."""
        graph, costs = self._costs(prices, time)
        return kernels.least(graph, costs, lows, highs, self.runs, self._kept(0))

    def _kept(self, entries: int) -> Whole:
        """Return a table for potentials of so many intervals."""
        states = 2 + self._states(len(self.table.node_gpus))
        return np.zeros((entries, states, self.layers + 1), np.int64)

    def potentials(
        self, prices: Prices, time: int, span: Span, price: int
    ) -> tuple[int, Whole]:
        """Return the least cost of a path of an interval, and its potentials.

        Prices count `price` times for each us of the slowest stage.
        """
        graph, costs = self._costs(prices, time)
        low, high = np.array(self.arcs.range(span))[:, None]
        kept = self._kept(1)
        found = kernels.least(graph, costs, low, high, price, kept)
        return int(found[0]), kept[0]

    def stages(self, prices: Prices, time: int, span: Span) -> list[tuple[int, Placed]]:
        """Return the stages of the cheapest path of an interval, with their times.

        None where there is no path.
        """
        value, kept = self.potentials(prices, time, span, self.runs)
        if value >= HALF:
            return []
        low, high = self.arcs.range(span)
        given = self, prices, *self._costs(prices, time), high, self.runs * low
        return Trace(*given, kept[0], kept[1], kept[2:]).stages(value)

    def column(
        self, number: int, prices: Prices, time: int, span: Span
    ) -> Column | None:
        """Return the cheapest path of an interval as a column of part `number`."""
        found = self.stages(prices, time, span)
        if not found:
            return None
        uses = np.zeros(2 * len(self.rows.gpus) + 3)
        uses[-2] = 1.0
        for _, stage in found:
            self._use(uses, stage)
        times = [us for us, _ in found]
        return Column(number, span, tuple(uses), sum(times), max(times))

    def _use(self, uses: Array, stage: Placed) -> None:
        arcs, classes = self.arcs, len(self.rows.gpus)
        run = int(self.table.runs.number[stage.first, stage.last])
        if stage.arc >= 0:
            kind = int(arcs.kind[stage.arc])
            demand = self.coupling.demand[stage.arc, run]
            held, gpus = int(arcs.replicas[stage.arc]), int(arcs.gpus[stage.arc])
            each = [(kind, gpus, stage.together * float(demand), held)]
        else:
            shared = arcs.shared[[*stage.items]].tolist()
            demands = self.coupling.shared_demand[run, [*stage.items]].tolist()
            each = [
                (kind, t, t * float(demand), 1)
                for demand, (kind, t, _) in zip(demands, shared, strict=True)
            ]
        for kind, gpus, weighed, held in each:
            demand = weighed / (int(self.table.node_gpus[kind]) * UNIT)
            holds = held * float(self.high[run]) / (self.rows.replicas * UNIT)
            uses[kind] += gpus
            uses[classes + kind] += demand - holds
            uses[-3] += demand
            uses[-1] -= holds


class Trace(NamedTuple):
    """The way back along the potentials of one interval."""

    pricing: Pricing
    prices: Prices
    graph: Graph
    costs: Costs
    high: int
    scale: int
    node: Whole
    across: Whole
    chain: Whole

    def stages(self, value: int) -> list[tuple[int, Placed]]:
        """Return the stages of a path of that cost, with their times."""
        found: list[tuple[int, Placed]] = []
        layers, first, at = self.pricing.layers, 0, None
        in_node = value < int(self.across[0])
        while first < layers:
            if at is None and in_node:
                at = self._begun(first)
            if at is None:
                us, stage, in_node = self._several(first)
            else:
                us, stage, in_node, at = self._in_a_node(at, first)
            found.append((us, stage))
            first = stage.last
        return found

    def _begun(self, first: int) -> tuple[int, int, int]:
        """Return class, GPUs and GPUs left of the node that a suffix begins in."""
        graph = self.graph
        for c, most in enumerate(graph.node_gpus.tolist()):
            for k in range(1, most + 1):
                found = int(self.chain[graph.state[c, k] + k, first])
                paid = min(self.scale * int(self.costs.gpu[c]) * k, MOST)
                if found < HALF and found + paid == self.node[first]:
                    return c, k, k
        raise InternalError("a path has no first stage")

    def _in_a_node(
        self, at: tuple[int, int, int], first: int
    ) -> tuple[int, Placed, bool, tuple[int, int, int] | None]:
        """Return the next stage, what follows it, and where the path goes on."""
        graph, (c, k, left), layers = self.graph, at, self.pricing.layers
        aim = int(self.chain[graph.state[c, k] + left, first])
        for arc in range(graph.begin[c], graph.begin[c + 1]):
            used = int(graph.gpus[arc])
            if used > left:
                break
            end = int(min(graph.fits[arc, first], graph.light[arc, k, first]))
            last = np.arange(first + 1, end + 1)
            price, inner = self.costs.arc[arc, k, first], graph.inner[arc, first]
            outer = graph.outer[arc, first].copy()
            outer[layers] = inner[layers]
            sides = [(outer, self.node, True), (inner, self.across, False)]
            if used < left:
                sides = [(inner, self.chain[graph.state[c, k] + left - used], True)]
            for us, rest, to in sides:
                cost = self.costs.time * us[last] + self.scale * price[last]
                able = (us[last] <= self.high) & (rest[last] < HALF)
                same = able & (np.minimum(cost, MOST) + rest[last] == aim)
                if same.any():
                    at_last = int(last[same.argmax()])
                    on = (c, k, left - used) if used < left else None
                    return int(us[at_last]), Placed(first, at_last, arc, k), to, on
        raise InternalError("a path has no next stage")

    def _several(self, first: int) -> tuple[int, Placed, bool]:
        """Return a stage in several nodes, and if what follows is in one."""
        costs, pricing, aim = self.costs, self.pricing, int(self.across[first])
        for last in range(first + 1, pricing.layers + 1):
            rest = min(int(self.node[last]), int(self.across[last]))
            run = int(self.graph.run[first, last])
            us = costs.front_us[run]
            able = us <= self.high
            cost = costs.time * us[able] + self.scale * costs.front_cost[run][able]
            same = np.minimum(cost, MOST) + rest == aim
            if rest < HALF and same.any():
                took = int(us[int(same.argmax())])
                items = pricing.shared_items(self.prices, run, took)
                stage = Placed(first, last, -1, 0, tuple(items))
                return took, stage, rest < int(self.across[last])
        raise InternalError("a path has no next stage in several nodes")
