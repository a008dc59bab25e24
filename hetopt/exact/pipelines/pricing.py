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

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property
from typing import Any, NamedTuple, TypeVar

import numpy as np
import numpy.typing as npt

from ...errors import InternalError
from ...stages import StageTable
from ...stages.classes import Whole
from ...stages.runs import Flags
from ...stages.sync import UNIT
from . import kernels
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
    span: tuple[int, int]
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

    def excess(self, prices: Prices, scale: int, spans: list[tuple[int, int]]) -> Array:
        """Return by how many sequences a path may be worth more than it costs.

        By interval: index ranges of the times of stages. `scale` is what a sequence is
        in prices. 0 or less where prices refute every path.
        """
        self._checked(prices)
        times = self.arcs.times
        lows = times[[x for x, _ in spans]]
        highs = times[[y - 1 for _, y in spans]]
        found = np.zeros(len(spans))
        some = np.arange(len(spans))
        b, v = self.arcs.size, self.runs
        for parts in (2, 1, 0):  # halves of the mean that are the limit by time
            if not len(some):
                break
            mean = parts * scale // 2
            costs = self.least(prices, mean * b, lows[some], highs[some])
            need = mean * b * (v * self.limits.left_us + lows[some])
            most = np.array([self.most(int(low)) for low in lows[some]], np.int64)
            need = need + (scale - mean) * most * v * lows[some]
            need = need - v * lows[some] * prices.pipelines
            short = (need - costs) / (scale * v * lows[some])
            short[costs >= HALF] = 0.0
            found[some] = short if parts == 2 else np.minimum(found[some], short)
            bound = most * v * lows[some] < b * (v * self.limits.left_us + lows[some])
            some = some[(found[some] > 0) & bound]
        return found

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
        units = self._held_most()
        # What each replica earns is rounded up.
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

    def _held_most(self) -> int:
        """Return the most units that stages of a path hold, one replica each."""
        return self.rows.size_high + self.layers  # each stage's are rounded up

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
        """Return the graph with its states, and what arcs cost."""
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
        shape = entries, states, self.layers + 1
        return np.zeros(shape, np.int64)

    def stages(
        self, prices: Prices, time: int, span: tuple[int, int]
    ) -> list[tuple[int, Placed]]:
        """Return the stages of the cheapest path of an interval, with their times.

        None where there is no path.
        """
        graph, costs = self._costs(prices, time)
        low, high = self.arcs.times[span[0]], self.arcs.times[span[1] - 1]
        kept = self._kept(1)
        lows, highs = np.array([low]), np.array([high])
        found = kernels.least(graph, costs, lows, highs, self.runs, kept)
        if found[0] >= HALF:
            return []
        trace = Trace(
            self, prices, graph, costs, int(high), self.runs * int(low), kept[0]
        )
        return trace.stages(int(found[0]))

    def column(
        self, number: int, prices: Prices, time: int, span: tuple[int, int]
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
        """Add what a stage uses of each row."""
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


class Trace:
    """The way back along the potentials of one interval."""

    def __init__(
        self,
        pricing: Pricing,
        prices: Prices,
        graph: Graph,
        costs: Costs,
        high: int,
        scale: int,
        kept: Whole,
    ) -> None:
        """Read the potentials."""
        self.pricing, self.prices = pricing, prices
        self.graph, self.costs = graph, costs
        self.high, self.scale = high, scale
        self.node, self.across, self.chain = kept[0], kept[1], kept[2:]

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
