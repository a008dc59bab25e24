"""Valid plans, and boxes of the engine of proofs that hold them.

The figures of a plan are the judge's. No box that holds a valid plan may be refuted at
its time, and of the parts of such a box one holds the plan.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from fractions import Fraction
from random import Random

from hetopt.costs import CostTable
from hetopt.exact.pipelines.bound import PipelineBound
from hetopt.exact.pipelines.boxes import Box
from hetopt.plans import TrainingPlan
from hetopt.problems import training_plan as judge
from hetopt.problems.training_plan.shapes import split_of
from hetopt.schema import Instance


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
