"""A cheap proved lower bound on the iteration time of every training plan.

It holds for whatever the judge accepts: any number of pipelines, several replicas a
stage with unequal samples, any degree, idle GPUs. Four arguments, the best counts:

work      a stage is busy for each of its micro-batches, so n tau <= pipeline, and all
          GPUs together do all the work (`_work_us`);
chain     a micro-batch passes all layers one after another (`_chain_us`); interleaved
          pipelines fill faster, and only the slowest layer counts;
crossing  samples that stay in one node need the layers in many nodes, whose gradients
          cross links; samples that do not, cross links themselves. It is proved (in
          `crossing`) for stages of one replica, that is, where all
          micro-batches are one sequence, for analytic layer times, and for
          synchronisation that nothing hides;
ports     the same for clusters whose nodes tell their network ports, whatever the
          stages and times (in `ports`).

None is above the best plan on a single GPU, which may be faster than tables of several
say (`single_gpu`).

To each comes the optimiser, which all GPUs together run for every parameter.

Where stages choose how they recompute, every layer costs what it costs at the least
and fits where it fits at all, whatever its stage chooses. Every stage of ZeRO that a
plan may have has a bound of its own, as none takes the least of everything: the highest
divides all states, and gathers what others need not.

What an iteration takes beside its pipelines counts where it is the same for all plans
(`iteration_overhead_us`); updates and tied embeddings only add to it.

Lockstep pipelines are never shorter than critical ones: in the slot k < j before the
slowest stage j, stage k is active; then j is, n times; then each stage behind it.
"""

from collections import Counter
from collections.abc import Container, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from itertools import product
from math import fsum
from typing import Any

import numpy as np

from ..caching import kept_by_digest
from ..costs import CostTable, Position, compute, memory
from ..costs.compute import ceil
from ..problems.training_plan import settings
from ..result import Bound
from ..schema import Instance, exact
from .crossing import Crossing
from .ports import Ports
from .single_gpu import single_gpu_plans, single_gpu_us

_WORTH = 1 + 1e-6  # a smaller gain is not worth another round


@dataclass(frozen=True)
class _Column:
    """Layers that cost the same: their number, and us by kind of GPU.

    None where a kind cannot hold such a layer in any tensor-parallel group.
    """

    layers: int
    work_us: tuple[Fraction | None, ...]  # GPU time of a sample, at the least
    pass_us: tuple[Fraction | None, ...]  # time of a micro-batch, at the least


@kept_by_digest
def training_plan_bound(instance: Instance) -> Bound:
    """No plan that the judge accepts has a shorter iteration, in us.

    `InstanceError` where the instance has no cluster. An instance without any plan
    has bounds too: those of its work. Planners, searches, exact method and judge all
    ask for it: the latest ones are kept.
    """
    if len(ways := _ways(instance)) > 1:
        # Of every one by itself, the least.
        return min(map(training_plan_bound, ways), key=lambda bound: bound.value)
    (instance,) = ways
    workload = instance.workload
    own = CostTable(instance)
    tables = [own.under(rule) for rule in workload.recomputes]
    # With the fewest FLOPs; what else is asked of it does not depend on the choice.
    table = min(tables, key=lambda t: compute.passes(t.workload.costs))
    kinds, columns = _columns(tables)
    work = _work_us(table, list(kinds.values()), columns)
    chain = _chain_us(table, columns)
    factor = exact(workload.costs.schedule.pipeline_factor)
    update, over = own.least_update_us, table.overhead_us
    end = update + over
    found = [
        Bound(ceil(factor * work) + end, "total work over total speed"),
        Bound(ceil(factor * chain) + end, "layers of one pipeline in sequence"),
    ]
    if (crossing := Crossing.of(table)) is not None:
        value = crossing.least_us(float(max(work, chain))) + update
        found.append(Bound(value + over, "total work, plus traffic between nodes"))
    works = Counter[tuple[Fraction | None, ...]]()
    for column in columns:
        works[column.work_us] += column.layers
    if (ports := Ports.of(own, list(kinds), works)) is not None:
        value = ports.least_us(max(work, chain)) + end
        found.append(Bound(value, "total work, plus traffic through network ports"))
    best = max(found, key=lambda bound: bound.value)
    return replace(best, value=min([best.value, *single_gpu_us(instance)]))


def _ways(instance: Instance) -> list[Instance]:
    """Return variants one of which has plans as good as any."""
    every = settings.variants(instance)
    return [every[i] for i in sorted({*settings.lightest(instance)})]


def spending_bound(instance: Instance, prices: Mapping[str, Fraction]) -> Bound:
    """No plan spends less on an iteration, at `prices` of a GPU's us by its type.

    A GPU is paid while the iteration lasts, and so for no less than it is busy; what
    all GPUs do on layer l, in shares x[c, l] of the batch on each kind c, takes at
    least w[c, l] x[c, l]. Each layer's work done where it is cheapest is the least.
    """
    if len(ways := _ways(instance)) > 1:
        bounds = (spending_bound(way, prices) for way in ways)
        return min(bounds, key=lambda bound: bound.value)
    (instance,) = ways
    workload = instance.workload
    own = CostTable(instance)
    kinds, columns = _columns([own.under(rule) for rule in workload.recomputes])
    nodes = instance.planned_cluster.node
    each = [prices[nodes[speaker].gpu] for speaker in kinds]
    spent = Fraction(0)
    for column in columns:
        pairs = zip(column.work_us, each, strict=True)
        spent += column.layers * min(w * price for w, price in pairs if w is not None)
    value = (
        exact(workload.costs.schedule.pipeline_factor) * workload.global_batch * spent
    )
    for gpu, single in single_gpu_plans(instance).items():
        value = min(value, single.us * prices[gpu])
    return Bound(value, "all work where it is cheapest")


# --- what a layer costs at the least ---------------------------------------------


def _columns(tables: Sequence[CostTable]) -> tuple[Counter[str], list[_Column]]:
    """GPUs of each kind (by a node that speaks for it), and columns over kinds."""
    table = tables[0]
    speakers: dict[object, str] = {}
    kinds: Counter[str] = Counter()
    for node in table.cluster.nodes:
        key = (table.node_class[node.name], node.count)
        kinds[speakers.setdefault(key, node.name)] += node.count
    columns = _cheapest(tables, list(kinds), fits=True)
    if any(set(column.work_us) == {None} for column in columns):
        # Some layer fits nowhere: there is no plan, and the work alone is a bound.
        columns = _cheapest(tables, list(kinds), fits=False)
    head = [_head_us(table, node) for node in kinds]
    if table.workload.costs.compute.head == "include":
        columns.append(_Column(1, *zip(*head, strict=True)))
    return kinds, columns


def _cheapest(
    tables: Sequence[CostTable], nodes: list[str], *, fits: bool
) -> list[_Column]:
    """The least of each entry over tables, whose layers are alike in all of them."""
    each = [_layer_columns(table, nodes, fits=fits) for table in tables]
    return [
        _Column(
            alike[0].layers,
            _least_of(column.work_us for column in alike),
            _least_of(column.pass_us for column in alike),
        )
        for alike in zip(*each, strict=True)
    ]


def _least_of(
    rows: Iterable[tuple[Fraction | None, ...]],
) -> tuple[Fraction | None, ...]:
    return tuple(
        min((value for value in values if value is not None), default=None)
        for values in zip(*rows, strict=True)
    )


def _layer_columns(table: CostTable, nodes: list[str], *, fits: bool) -> list[_Column]:
    model = table.model
    costs: dict[object, list[int]] = {}
    profile = table.workload.costs.compute.profile
    sorts = table.calibrated.sorts if table.calibrated else (None,) * table.layers
    for layer in range(table.layers):
        size = (model.parameters[layer], model.active_parameters[layer])
        alike = (*size, model.kinds[layer], sorts[layer])
        held = table.profile.least_of_rows(layer)
        key = (alike, tuple(row.layer_us[layer] for row in profile), held)
        costs.setdefault(key, []).append(layer)
    timed = (
        _layer_us
        if table.workload.costs.compute.layer_times == "analytic"
        else _listed_us
    )
    columns = []
    for layers in costs.values():
        pairs = [timed(table, node, layers[0], fits=fits) for node in nodes]
        columns.append(_Column(len(layers), *zip(*pairs, strict=True)))
    return columns


_Least = tuple[Fraction | None, Fraction | None]


def _layer_us(table: CostTable, node: str, layer: int, *, fits: bool) -> _Least:
    """Least GPU time a sample and least time a micro-batch of a layer on a kind."""
    first = _least_degree(table, node, layer) if fits else 1
    if first is None:
        return None, None
    gpu, link = table.gpu(node), table.node_class[node].intra
    free = link and (Fraction(0), link[1])

    def sample_us(t: int, link: tuple[Fraction, Fraction] | None) -> Fraction:
        given = table.model, table.workload, layer, gpu, link if t > 1 else None
        return compute.layer_s(*given, t, 1) * 10**6

    # s samples take at least s times one sample without latencies, and t such GPUs
    # t times as much, which grows with t: the least degree does the least work.
    work = first * sample_us(first, free)
    # One sample takes X / t + A (t - 1) (alpha + Y / t) = (X - A Y) / t + A alpha t
    # and a constant: convex in t, or growing. The first rise ends the search.
    quickest = sample_us(first, link)
    for t in range(first + 1, table.cluster.node[node].count + 1):
        if (time := sample_us(t, link)) >= quickest:
            break
        quickest = time
    return work, quickest


def _listed_us(table: CostTable, node: str, layer: int, *, fits: bool) -> _Least:
    """From a profile or calibrated times, whose sizes and degrees are listed."""
    degrees = _degrees(table, node, layer, fits=fits)
    timed = _calibrated if table.calibrated else _measured
    rows = [row for row in timed(table, node, layer) if row[0] in degrees]
    if not rows:
        # No plan puts the layer there. It is asked for without memory only where no
        # kind can hold it: then it proves nothing.
        return (None, None) if fits else (Fraction(0), Fraction(0))
    works = (Fraction(t * us, samples) for t, samples, us in rows)
    return min(works), Fraction(min(us for _, _, us in rows))


_Rows = Iterable[tuple[int, int, int]]  # degree, samples, us


def _measured(table: CostTable, node: str, layer: int) -> _Rows:
    """From a profile. A sum of rows costs a sample at least its cheapest row."""
    largest = max(table.workload.micro_batch_sizes)
    gpu = table.cluster.node[node].gpu
    for row in table.workload.costs.compute.profile:
        if row.gpu == gpu and row.micro_batch <= largest:
            yield row.tensor_parallel, row.micro_batch, row.layer_us[layer]


def _calibrated(table: CostTable, node: str, layer: int) -> _Rows:
    """One sample takes the least time; the largest size the least of each sample.

    That holds for exact times. Rounded up, any other size takes less than 1 us less
    than it would in proportion.
    """
    largest = max(table.workload.micro_batch_sizes)
    for t in range(1, table.cluster.node[node].count + 1):
        yield t, 1, table.layer_us(node, t, 1)[layer]
        if largest > 1:
            yield t, largest, max(0, table.layer_us(node, t, largest)[layer] - 1)


def _degrees(table: CostTable, node: str, layer: int, *, fits: bool) -> Container[int]:
    """Degrees at which a profiled layer may be held; with `fits`, if it fits."""
    spec = table.cluster.node[node]
    every = range(1, spec.count + 1)
    if not fits:
        return every
    if not table.profile.weighs:
        first = _least_degree(table, node, layer)
        return range(first or spec.count + 1, spec.count + 1)
    # Measured memory may grow with the degree: each one is looked at.
    room = table.memory_mib(node) - table.workload.costs.memory.reserve_mib
    needs = ((t, table.profile.least_mib(spec.gpu, t, layer)) for t in every)
    return {t for t, need in needs if need is not None and need <= room}


def _least_degree(table: CostTable, node: str, layer: int) -> int | None:
    """The least permitted degree at which the layer fits, alone amid a pipeline.

    Or all layers in one stage, which sends to no other. With one sample and one
    micro-batch in flight: memory never falls when there are more samples, layers or
    micro-batches, and never grows with the degree.
    """
    room = table.memory_mib(node)
    for t in filter(table.permitted, range(1, table.cluster.node[node].count + 1)):
        amid = table.stage_mib(node, range(layer, layer + 1), (t, 1), Position(1, 3, 1))
        if sum(amid.values()) <= room:
            return t
        alone = table.stage_mib(node, range(table.layers), (t, 1), Position(1, 1, 0))
        if sum(alone.values()) <= room:
            return t
    return None


def _head_us(table: CostTable, node: str) -> tuple[Fraction, Fraction]:
    gpu, count = table.gpu(node), table.cluster.node[node].count
    if table.calibrated:
        return _calibrated_head_us(table, node)
    work = compute.head_s(table.model, table.workload, gpu, 1, 1) * 10**6
    return work, work / count


def _calibrated_head_us(table: CostTable, node: str) -> tuple[Fraction, Fraction]:
    """Return the least of the head: least work in the largest micro-batch."""
    largest = max(table.workload.micro_batch_sizes)
    degrees = range(1, table.cluster.node[node].count + 1)
    works = [
        Fraction(t * max(0, table.head_us(node, t, largest) - 1), largest)
        for t in degrees
    ]
    return min(works), Fraction(min(table.head_us(node, t, 1) for t in degrees))


# --- work and chain --------------------------------------------------------------


def _work_us(
    table: CostTable, gpus: Sequence[int], columns: Sequence[_Column]
) -> Fraction:
    """Least time in which all GPUs can do all the work.

    A replica of t GPUs is busy n times for its stage's time, and the pipeline lasts
    at least as long. So sum over layers of w[c, l] x[c, l] <= N_c T for each kind c,
    where x samples of layer l are done on kind c, B of each layer in all. For *any*
    prices y >= 0 weak duality gives  T >= B sum_l min_c w[c, l] y_c / sum_c N_c y_c.
    """
    prices = [Fraction(price) for price in _good_prices(gpus, columns)]
    earned = Fraction(0)
    for column in columns:
        pairs = zip(column.work_us, prices, strict=True)
        earned += column.layers * min(w * y for w, y in pairs if w is not None)
    paid = sum((n * y for n, y in zip(gpus, prices, strict=True)), Fraction(0))
    return table.workload.global_batch * earned / paid


def _good_prices(gpus: Sequence[int], columns: Sequence[_Column]) -> list[float]:
    """Prices of kinds: their speeds, which are optimal for layers in proportion.

    Where layers are not (uneven profiles, layers too large for one GPU), better ones
    are looked for, a kind at a time. In floats: any prices prove a bound.
    """
    work = np.array(
        [[np.inf if w is None else float(w) for w in c.work_us] for c in columns]
    )
    count = np.array([float(column.layers) for column in columns])
    many = np.array(gpus, dtype=float)
    held = np.isfinite(work)
    # `fsum` rounds once, where `@` rounds as the processor likes: one bound for all.
    total = np.array([fsum(one) for one in (np.where(held, work, 0.0).T * count)])
    timed = (held.T * count).sum(axis=1)
    prices = np.where(total > 0, timed / np.where(total > 0, total, 1.0), 1.0)

    def dual(y: np.ndarray[Any, Any]) -> float:
        return fsum(count * (work * y).min(axis=1)) / fsum(many * y)

    best = dual(prices)
    for step in (1.5, 1.1, 1.01):
        improved = len(gpus) > 1 and len(columns) > 1
        while improved:
            improved = False
            for kind, factor in product(range(len(gpus)), (step, 1 / step)):
                trial = prices.copy()
                trial[kind] *= factor
                if (value := dual(trial)) > best * _WORTH:
                    best, prices, improved = value, trial, True
    return [float(price) for price in prices]


def most_pipelines(table: CostTable) -> int:
    """Pipelines of a GPU and a sequence each, whose states have room, at the most.

    Of experts that e GPUs divide a pipeline may have an e-th: others lie elsewhere.
    """
    costs, nodes = table.workload.costs, table.cluster.nodes
    if table.profile.weighs:
        states = sum(map(table.profile.least_group_mib, range(table.layers)))
    else:
        routed = sum(table.divided_parameters)
        own = sum(table.model.parameters) - routed
        held = own + Fraction(routed, table.split.experts)
        states = int(costs.kept_bytes * held // memory.MIB)
    most = min(table.cluster.gpu_count, table.workload.global_batch)
    room = sum(n.count * table.memory_mib(n.name) for n in nodes)
    return max(1, min(most, room // states)) if states else most


def _chain_us(table: CostTable, columns: Sequence[_Column]) -> Fraction:
    """Least time of the pipeline with the most sequences.

    Its first micro-batch passes all layers; each of the others keeps the slowest
    stage busy for at least the dearest layer. D pipelines need D GPUs, D sequences and
    D times the memory of the states, so one has at least B / D sequences.
    """
    workload = table.workload
    passes = [min(t for t in c.pass_us if t is not None) for c in columns]
    once = Fraction(0)
    for column, us in zip(columns, passes, strict=True):
        once += column.layers * us
    sequences = -(-workload.global_batch // most_pipelines(table))
    micro_batches = -(-sequences // max(workload.micro_batch_sizes))
    if workload.costs.schedule.interleave > 1:
        once = max(passes)
    return once + (micro_batches - 1) * max(passes)
