"""A valid plan as what the engine of proofs must leave possible: a packing of columns.

The figures of a plan are the judge's; which stages of the engine stand for its stages,
what they use and what they are worth is written down here anew. Whatever a box of the
engine says of a plan that lies in it, three things must hold:

    arcs      each stage is there, allowed, and no slower than it is in truth
    rows      the plan's columns keep to every row of the master
    worth     each column is worth the sequences that its pipeline trains

so that at any prices at which all rows are worth less than the batch, some column of
the plan is worth more than it costs.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from fractions import Fraction
from itertools import pairwise
from random import Random

import numpy as np

from hetopt.costs import CostTable
from hetopt.exact.pipelines.bound import PipelineBound
from hetopt.exact.pipelines.boxes import Box
from hetopt.exact.pipelines.master import Master, State
from hetopt.exact.pipelines.pricing import Prices, Pricing
from hetopt.exact.pipelines.unordered import Unordered
from hetopt.plans import TrainingPlan
from hetopt.problems import training_plan as judge
from hetopt.problems.training_plan.shapes import split_of
from hetopt.schema import Instance
from hetopt.stages.sync import UNIT


@dataclass(frozen=True)
class StageFacts:
    """A stage: its layers, replicas (node, GPUs, samples), times in us."""

    first: int
    last: int
    replicas: tuple[tuple[str, int, int], ...]
    us: int
    sync_us: int

    @property
    def nodes(self) -> set[str]:
        return {node for node, _, _ in self.replicas}

    @property
    def gpus(self) -> int:
        return sum(t for _, t, _ in self.replicas)


@dataclass(frozen=True)
class PipelineFacts:
    """A pipeline as the judge times it; `sum_us` is of one micro-batch, sent on."""

    micro_batches: int
    size: int
    stages: tuple[StageFacts, ...]
    slowest_us: int
    us: int

    @property
    def sequences(self) -> int:
        return self.micro_batches * self.size

    @property
    def sync_us(self) -> int:
        return max(stage.sync_us for stage in self.stages)


@dataclass(frozen=True)
class PlanFacts:
    """What boxes have ranges of: iteration, synchronisation, least replicas."""

    iteration_us: int
    sync_us: int
    replicas: int
    pipelines: tuple[PipelineFacts, ...]


def facts(instance: Instance, plan: TrainingPlan) -> PlanFacts:
    """Return the figures of a valid plan of an instance."""
    judged = judge.evaluate(instance, plan)
    assert judged.valid
    assert judged.objective is not None
    table = CostTable(instance).under(zero=plan.zero, split=split_of(instance, plan))
    costs = table.workload.costs
    holders: list[list[tuple[str, int]]] = [[] for _ in range(table.layers)]
    for pipeline in plan.pipelines:
        for stage in pipeline.stages:
            for layer in stage.span:
                holders[layer] += [(r.node, r.degree) for r in stage.replicas]
    found = []
    for number, pipeline in enumerate(plan.pipelines):
        rows = judged.parts["stages"][number]
        last, entering, stages, busy = len(rows) - 1, rows[-1]["hop_us"], [], []
        for j, (stage, row) in enumerate(zip(pipeline.stages, rows, strict=True)):
            us = row["compute_us"] + row["hop_us"]
            sync = sum(
                _exchanged_us(table, table.exchanged.layers[x], holders[x], x)
                for x in stage.span
            )
            if table.exchanged.end is not None:
                ends = (j == 0) * [0] + (j == last) * [-1]
                sync += sum(
                    _exchanged_us(table, table.exchanged.end, holders[at], None)
                    for at in ends
                )
            replicas = tuple((r.node, r.degree, r.samples) for r in stage.replicas)
            stages.append(StageFacts(*stage.layers, replicas, us, sync))
            busy.append(us + (entering if costs.hops == "both" else 0))
            entering = row["hop_us"]
        found.append(
            PipelineFacts(
                pipeline.micro_batches,
                pipeline.micro_batch_size,
                tuple(stages),
                max(busy),
                judged.parts["pipeline_us"][number],
            )
        )
    return PlanFacts(
        judged.objective,
        max(pipeline.sync_us for pipeline in found),
        min(map(len, holders)),
        tuple(found),
    )


def _exchanged_us(
    table: CostTable, parameters: int, holders: list[tuple[str, int]], layer: int | None
) -> int:
    """Return how long replicas exchange what all of them have of a layer."""
    if layer is not None and table.split.experts > 1:
        parameters -= table.exchanged.routed[layer]
    if table.split.groups > 1:
        return 0  # the engine is asked of instances whose replicas exchange for free
    seconds = judge._layer_sync_s(table, parameters, tuple(sorted(holders)))
    return -int(-(seconds * 10**6) // 1)


def boxes(
    bound: PipelineBound, plan: PlanFacts, rng: Random, count: int
) -> Iterator[Box]:
    """Yield boxes that hold the plan, from all there is to its own figures."""
    most = max(1, min(int(bound.table.gpus.sum()), bound.batch))
    sizes = len(bound.table.sizes) - 1
    pipelines = len(plan.pipelines)
    wide = bound.division.most_sync_us
    for number in range(count):
        near = number / max(1, count - 1)  # 1: nothing but the plan's own figures
        low, high = 0, None
        if bound.priced:
            around = int(wide * (1 - near) * rng.random())
            low = max(0, plan.sync_us - around)
            high = plan.sync_us + int(wide * (1 - near) * rng.random())
            if rng.random() < 0.1:
                high = None
        count_low = rng.randint(1, pipelines) if near < 1 else pipelines
        count_high = rng.randint(pipelines, max(most, pipelines))
        if rng.random() < near:
            count_high = pipelines
        replicas_low = rng.randint(1, plan.replicas) if near < 1 else plan.replicas
        replicas_high = max(plan.replicas, rng.randint(1, most))
        if rng.random() < near:
            replicas_high = plan.replicas
        size_low, size_high, slow_low, slow_high = 0, sizes, 0, None
        if count_high == 1:
            (one,) = plan.pipelines
            at = bound.table.sizes.index(one.size)
            if rng.random() < 0.3 + 0.7 * near:
                size_low, size_high = rng.randint(0, at), rng.randint(at, sizes)
            if rng.random() < 0.3 + 0.7 * near:
                share = (1 - near) * rng.random()
                slow_low = int(one.slowest_us * (1 - share))
                slow_high = one.slowest_us + int(one.slowest_us * share)
        hosts = _hosts_around(bound, plan, count_low, rng)
        yield Box(
            *(low, high, replicas_low, replicas_high, count_low, count_high),
            *(size_low, size_high, slow_low, slow_high),
            **hosts,
        )


def _hosts_around(
    bound: PipelineBound, plan: PlanFacts, count_low: int, rng: Random
) -> dict[str, tuple[int, ...]]:
    """Return ranges of hosts by class, where boxes of several pipelines have any."""
    if not bound.priced or count_low < 2 or rng.random() < 0.3:
        return {}
    found = host_numbers(bound, plan)
    nodes = bound.table.nodes.tolist()
    pairs = [*zip(found, nodes, strict=True)]
    low = tuple(rng.choice([0, min(1, n), n]) for n in found)
    high = tuple(rng.choice([n, n, most]) for n, most in pairs)
    return {"hosts_low": low, "hosts_high": high}


def host_numbers(bound: PipelineBound, plan: PlanFacts) -> list[int]:
    """Return how many nodes of each class hold all replicas of some layer."""
    hosts = set()
    for layer in range(bound.table.layers):
        here = {
            node
            for one in plan.pipelines
            for stage in one.stages
            if stage.first <= layer < stage.last
            for node, *_ in stage.replicas
        }
        hosts |= here if len(here) == 1 else set()
    return [len(hosts & {*each.nodes}) for each in bound.table.classes]


def holds(box: Box, bound: PipelineBound, plan: PlanFacts) -> bool:
    """Tell whether a plan lies in a box."""
    count, sizes = len(plan.pipelines), bound.table.sizes

    def within(low: int, value: int | Fraction, high: int | None) -> bool:
        return low <= value and (high is None or value <= high)

    if bound.priced and not within(box.sync_low_us, plan.sync_us, box.sync_high_us):
        return False
    if not within(box.replicas_low, plan.replicas, box.replicas_high):
        return False
    if not within(box.count_low, count, box.count_high):
        return False
    hosts = host_numbers(bound, plan) if box.hosts_high else []
    if not all(map(within, box.hosts_low, hosts, box.hosts_high)):
        return False
    return all(
        within(box.size_low, sizes.index(one.size), box.size_high)
        and within(box.slowest_low_us, one.slowest_us, box.slowest_high_us)
        for one in plan.pipelines
    )


@dataclass(frozen=True)
class Mapped:
    """The stages that stand for a pipeline in a part of a box, and what they use."""

    part: int
    interval: tuple[int, int]
    sum_us: int
    gpus: dict[int, int]
    demand: dict[int, Fraction]
    held: dict[int, Fraction]


class Packing:
    """A plan in a box: its columns, or why it has none."""

    def __init__(self, bound: PipelineBound, box: Box, plan: PlanFacts) -> None:
        """Map the pipelines of the plan; `faults` say what is missing."""
        self.bound, self.box, self.plan = bound, box, plan
        time_us = plan.iteration_us
        left = bound._left(time_us, box.sync_low_us)
        self.rows = bound._rows(box)
        parts, ranges = {}, {}
        for number, pricing, span in bound._parts(box, time_us, left, self.rows):
            parts[number], ranges[number] = pricing, span
        self.parts = parts
        self.master = Master(
            *(parts, self.rows, bound.batch, bound.scale, bound.fair),
            *(bound.schedule, bound.check),
        )
        self.state = State()
        self.master._set_edges(self.state, ranges)
        self.columns: list[Mapped] = []
        self.faults: list[str] = []
        self.reached: set[str] = set()
        gpus = sum(stage.gpus for one in plan.pipelines for stage in one.stages)
        open_ways = {
            "no time": any(low == 0 for low, _ in ranges.values()),
            "too long": not bound.scale,
            "one GPU": gpus == 1 and time_us >= bound._single_us,
        }
        if any(open_ways.values()):  # nothing is refuted there
            self.reached |= {way for way, is_so in open_ways.items() if is_so}
            return
        most = bound._left(time_us, plan.sync_us if bound.priced else 0)
        for number, pipeline in enumerate(plan.pipelines):
            self._map(number, pipeline)
            if pipeline.us > most:
                self.faults.append(f"pipeline {number}: {pipeline.us} us of {most}")
        if not self.faults:
            self.faults += self._rows_broken()

    def _map(self, number: int, pipeline: PipelineFacts) -> None:
        reasons = []
        for part, pricing in self.parts.items():
            try:
                mapped = self._mapped(part, pricing, pipeline)
            except _Missing as missing:
                reasons.append(f"part {part}: {missing}")
                continue
            self.columns.append(mapped)
            kind = "unordered" if isinstance(pricing, Unordered) else "ordered"
            self.reached.add(kind)
            self.reached |= {"hidden"} if pricing.limits.spent_us else set()
            if pricing.coupling.sent is not None:
                self.reached.add("limited sync")
                if pricing.coupling.box.bare:
                    self.reached.add("no host")
                if (pricing.coupling.demand > 0).any():
                    self.reached.add("demand")
            if sum(mapped.demand.values()):
                self.reached.add("own demand")
            return
        self.faults.append(f"pipeline {number} has no part: {reasons}")

    def _mapped(self, part: int, pricing: Pricing, pipeline: PipelineFacts) -> Mapped:
        arcs, limits, box = pricing.arcs, pricing.limits, pricing.coupling.box
        if arcs.size != pipeline.size:
            raise _Missing("other size")
        if box.sync_us is not None and pipeline.sync_us > box.sync_us:
            raise _Missing(f"synchronises {pipeline.sync_us}, not {box.sync_us} us")
        runs = self.bound.table.runs
        chains = _chains(pipeline, whole=isinstance(pricing, Unordered))
        total = 0
        column = Mapped(part, (0, 0), 0, {}, {}, {})
        count = len(pipeline.stages)
        slowest = 0
        for j, stage in enumerate(pipeline.stages):
            run = int(runs.number[stage.first, stage.last])
            follower = pipeline.stages[j + 1] if j + 1 < count else None
            if len(stage.nodes) > 1:
                us = self._shared(pricing, stage, run, column)
                self.reached.add("several nodes")
            else:
                used = chains[j]
                us = self._alone(pricing, stage, run, follower, used, column)
            if us > stage.us:
                raise _Missing(f"stage {j} takes {us}, in truth {stage.us} us")
            total, slowest = total + us, max(slowest, us)
        interval = self._interval(part, pipeline.slowest_us, slowest)
        low = int(arcs.times[interval[0]])
        v, b = pricing.runs, arcs.size
        worth = Fraction(b * (v * limits.left_us + low - total), v * low)
        worth = min(worth, Fraction(pricing.most(low)))
        if worth < pipeline.sequences:
            raise _Missing(f"is worth {float(worth)}, trains {pipeline.sequences}")
        used = column.gpus, column.demand, column.held
        return Mapped(part, interval, total, *used)

    def _interval(self, part: int, slowest_us: int, mapped_us: int) -> tuple[int, int]:
        """Return the interval that such a slowest stage lies in."""
        times, edges = self.parts[part].arcs.times, self.state.edges.get(part, [])
        for begin, end in pairwise(edges):
            beyond = int(times[end]) if end < len(times) else None
            low, high = int(times[begin]), int(times[end - 1])
            if low <= slowest_us and (beyond is None or slowest_us < beyond):
                if mapped_us > high:
                    raise _Missing(f"{mapped_us} us are beyond {high}")
                return begin, end
        raise _Missing(f"no interval has {slowest_us} us: {edges}, {times[:9]}")

    def _alone(
        self,
        pricing: Pricing,
        stage: StageFacts,
        run: int,
        follower: StageFacts | None,
        used: int,
        column: Mapped,
    ) -> int:
        arcs, coupling = pricing.arcs, pricing.coupling
        (node,) = stage.nodes
        kind = self._kind(node)
        least = min(t for _, t, _ in stage.replicas)
        times = arcs.outer
        if follower is None or node in follower.nodes or len(follower.nodes) > 1:
            times = arcs.inner
        low = int(self.bound.table.sync.low[run])
        found, why = [], []
        for arc in range(len(arcs.gpus)):
            right = (
                int(arcs.kind[arc]) == kind
                and int(arcs.gpus[arc]) <= stage.gpus
                and int(arcs.degree[arc]) >= least
                and int(arcs.replicas[arc]) >= len(stage.replicas)
            )
            us = int(times[arc, stage.first, stage.last])
            if not right or us > stage.us:
                why.append((arc, us))
                continue
            if arcs.fits[arc, stage.first] < stage.last:
                raise _Missing(f"{stage} is said not to fit")
            if low > int(coupling.light[arc, used]):
                why.append((arc, "heavy"))
                continue
            found.append((us, arc))
        if not found:
            raise _Missing(f"{stage}: no arc is as good: {why}")
        us, arc = min(found)
        weight = Fraction(used, int(self.bound.table.node_gpus[kind]))
        demand = int(coupling.demand[arc, run])
        held = int(arcs.replicas[arc]) * int(self.bound.table.sync.high[run])
        self._add(column, kind, stage.gpus, weight * demand, held)
        return us

    def _shared(
        self,
        pricing: Pricing,
        stage: StageFacts,
        run: int,
        column: Mapped,
    ) -> int:
        arcs, coupling = pricing.arcs, pricing.coupling
        number = {tuple(row): i for i, row in enumerate(arcs.shared.tolist())}
        slowest, sync = 0, self.bound.table.sync
        for node, t, s in stage.replicas:
            kind = self._kind(node)
            item = number.get((kind, t, s))
            if item is None:
                raise _Missing(f"{stage}: no replica of class {kind}, {t} GPUs, {s}")
            if int(sync.low[run]) > int(coupling.shared_light[item]):
                raise _Missing(f"{stage} is too heavy: {coupling.shared_light[item]}")
            slowest = max(slowest, int(arcs.shared_us[run, item]))
            weight = Fraction(t, int(self.bound.table.node_gpus[kind]))
            demand = int(coupling.shared_demand[run, item])
            self._add(column, kind, t, weight * demand, int(sync.high[run]))
        return slowest

    def _add(
        self, column: Mapped, kind: int, gpus: int, demand: Fraction, held: int
    ) -> None:
        for into, value in (
            (column.gpus, gpus),
            (column.demand, demand),
            (column.held, Fraction(held, self.rows.replicas)),
        ):
            into[kind] = into.get(kind, 0) + value  # type: ignore[index, operator]

    def _kind(self, node: str) -> int:
        classes = self.bound.table.classes
        return next(c for c, each in enumerate(classes) if node in each.nodes)

    def _rows_broken(self) -> Iterator[str]:
        rows, total = self.rows, Fraction(0)
        held_all = Fraction(0)
        for c, gpus in enumerate(rows.gpus):
            used = sum(column.gpus.get(c, 0) for column in self.columns)
            demand = sum(
                (column.demand.get(c, Fraction(0)) for column in self.columns),
                Fraction(0),
            )
            held = sum(
                (column.held.get(c, Fraction(0)) for column in self.columns),
                Fraction(0),
            )
            if used > gpus:
                yield f"{used} of {gpus} GPUs of class {c}"
            if demand > held:
                yield f"class {c} demands {float(demand)} of {float(held)} units"
            total, held_all = total + demand, held_all + held
        if total > rows.size_high:
            yield f"demands of {float(total)} units, there are {rows.size_high}"
        if held_all < rows.size_low:
            yield f"holds {float(held_all)} units of {rows.size_low}"
        if len(self.columns) < rows.fewest:
            yield f"{len(self.columns)} pipelines, not {rows.fewest} or more"
        if len(self.columns) > rows.pipelines:
            yield f"{len(self.columns)} pipelines of {rows.pipelines}"

    def prices(self, rng: Random) -> Prices:
        """Draw prices at which all rows are worth less than the batch."""
        count, batch = len(self.rows.gpus), self.bound.batch
        which = rng.choice(["gpus", "all", "wild"])

        def some(most: float) -> float:
            wide = 10 ** rng.randint(0, 12) if which == "wild" else 1
            return rng.choice([0, 0, 1]) * rng.random() * most * wide

        gpu = [rng.random() * batch / max(1, n) for n in self.rows.gpus]
        rest = [0.0] * (count + 3)
        if which != "gpus":
            each = batch / self.bound.table.layers
            rest = [some(each) for _ in range(count + 1)]
            number = some(batch / self.rows.pipelines) * rng.choice([1, 1, -1])
            rest += [number, some(each)]
        found = self.master._whole(np.array([*gpu, *rest]))
        assert self.rows.value(found) < batch * self.bound.scale
        return found

    def any_prices(self, rng: Random) -> Prices:
        """Draw any prices that can be carried, the highest among them."""

        def some(most: int) -> int:
            return rng.choice([0, most, most >> rng.randint(0, 40)])

        most = self.master._most_prices()
        each, count = [*map(some, most)], len(self.rows.gpus)
        if rng.random() < 0.3:
            each[-2] = -some(-self.master._lowest_prices()[-2])
        gpu, share = tuple(each[:count]), tuple(each[count : 2 * count])
        return Prices(gpu, share, *each[2 * count :])

    def undercut(self, prices: Prices, rng: Random) -> list[str]:
        """Return columns of the plan that cost less than the cheapest path is said to.

        Costs are added up here in numbers of any size.
        """
        found = []
        for column in self.columns:
            pricing, (begin, end) = self.parts[column.part], column.interval
            low, high = (int(pricing.arcs.times[i]) for i in (begin, end - 1))
            time = rng.choice([0, 1, self.bound.scale // 2, self.bound.scale])
            time *= pricing.arcs.size
            paid = Fraction(0)
            for c, used in column.gpus.items():
                units = (prices.share[c] + prices.shares) * column.demand[c]
                units -= (prices.share[c] + prices.held) * column.held[c]
                paid += prices.gpu[c] * used + units / UNIT
            cost = time * column.sum_us + pricing.runs * low * paid
            lows, highs = np.array([low]), np.array([high])
            (least,) = pricing.least(prices, time, lows, highs).tolist()
            if cost < min(least, 1 << 57):
                found.append(f"{float(cost)} is less than {least}")
        return found

    def refuted(self, prices: Prices) -> bool:
        """Tell whether prices refute every column of the plan, which they must not."""
        for column in self.columns:
            pricing = self.parts[column.part]
            excess = pricing.excess(prices, self.bound.scale, [column.interval])
            if excess[0] > 0:
                return False
        return True


class _Missing(Exception):
    """A pipeline that has no column in a part."""


def _chains(pipeline: PipelineFacts, *, whole: bool) -> list[int]:
    """Return for each stage the GPUs of the consecutive stages in its node.

    Or of all stages in its node, where their order does not matter.
    """
    found: list[int] = []
    stages = pipeline.stages
    for j, stage in enumerate(stages):
        begin = end = j
        if len(stage.nodes) == 1:
            while begin and stages[begin - 1].nodes == stage.nodes:
                begin -= 1
            while end + 1 < len(stages) and stages[end + 1].nodes == stage.nodes:
                end += 1
        others = stages if whole else stages[begin : end + 1]
        found.append(sum(x.gpus for x in others if x.nodes == stage.nodes))
    return found
