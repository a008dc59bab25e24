"""A count whether the memory of a cluster holds any plan at all.

A plan has no more pipelines than its states have room, so one of them takes at least
so many sequences, in micro-batches of some size b, n of them or more. Its stage at
position i from the end keeps min(n, i + 1) of these (1F1B). A replica of t GPUs with
s of b samples holds at most y(kind, t, s, i) layers, and is worth s / b of them
(`blocks`). For any prices of GPUs and of positions that no replica is worth
more than, all replicas are worth no more than the prices of all GPUs and positions; is
that less than the layers, there is no such pipeline. A linear programme proposes the
prices, and what it rounds counts against the proof.

`hetopt.capability` names the settings of which it is said.
"""

from bisect import bisect_left
from itertools import product
from typing import NamedTuple

import numpy as np

from ... import capability
from ...bounds.training_plan import most_pipelines
from ...costs import CostTable, Position
from ...schema import Instance
from ..one_pipeline.shares import sums
from ..pipelines.simplex import Array, maximise

_SURE = 1e-6  # layers
_MOST = 20_000  # replicas that are looked at


class _Replicas(NamedTuple):
    """Rows: share of a micro-batch, kind, GPUs, position, and layers at the most."""

    share: Array
    kind: Array
    gpus: Array
    position: Array
    layers: Array


def no_room(instance: Instance) -> str | None:
    """Why no plan fits, in words; None where that is not seen.

    Nor can there be one where no micro-batch can be taken, whatever the memory.
    """
    workload = instance.workload
    if (tables := least_memory(instance)) is None:
        return None
    own, sizes = tables[0], sorted(set(workload.micro_batch_sizes))
    if not any(taken(own, b) for b in sizes):
        return unusable(instance)
    sequences = -(-workload.global_batch // max(map(most_pipelines, tables)))
    for b in sizes:
        found = _replicas(tables, b, -(-sequences // b))
        if found is None or _most_layers(own, found) >= own.layers - _SURE:
            return None
    return (
        "memory: no pipeline fits that takes its part of the batch, wherever its "
        "stages lie: activations of the micro-batches in flight leave too little room "
        f"for {own.layers} layers; add memory or smaller micro-batches"
    )


def least_memory(instance: Instance) -> list[CostTable] | None:
    """Tables of which one has the least memory, for each rule of recomputation.

    The highest stage of ZeRO has, but for what calibrated activations gather.
    None where a number of layers does not say what a stage of some pipeline needs.
    """
    workload, own = instance.workload, CostTable(instance)
    if not capability.carries("proof memory", instance):
        return None
    zeros = {max(workload.zeros)}
    if workload.costs.memory.activations == "calibrated":
        zeros = {*workload.zeros}
    choices = product(sorted(zeros, reverse=True), workload.recomputes)
    tables = [own.under(rule, zero) for zero, rule in choices]
    return tables if counted(tables) else None


def counted(tables: list[CostTable]) -> bool:
    """Tell whether a number of layers says what they need."""
    return all(table.even and not table.profile.weighs for table in tables)


def unusable(instance: Instance) -> str:
    """Say that no GPUs take a micro-batch, whatever their memory."""
    sizes = sorted(set(instance.workload.micro_batch_sizes))
    groups = instance.workload.costs.compute.context_parallel
    largest = max(node.count for node in instance.planned_cluster.nodes)
    return (
        f"batch: no GPUs take all of a micro-batch of {sizes}, whatever their memory: "
        f"replicas have a multiple of {groups} GPUs of one node "
        f"(workload.costs.context_parallel), nodes {largest} at the most, and the "
        "times of their shares must be known (workload.costs.profile)"
    )


def _kinds(table: CostTable) -> dict[object, list[str]]:
    kinds: dict[object, list[str]] = {}
    for node in table.cluster.nodes:
        kinds.setdefault((table.node_class[node.name], node.count), []).append(
            node.name
        )
    return kinds


def _replicas(tables: list[CostTable], b: int, n: int) -> _Replicas | None:
    """All that a replica can be; None where these are too many to look at."""
    rows = []
    positions = min(tables[0].cluster.gpu_count, tables[0].layers)
    for kind, names in enumerate(_kinds(tables[0]).values()):
        for t in range(1, tables[0].cluster.node[names[0]].count + 1):
            for s in range(1, b + 1):
                if not tables[0].usable(names[0], t, s):
                    continue
                most = tables[0].layers
                for i in range(positions):
                    # What lies further from the end holds no more.
                    limit = most if i > 1 else tables[0].layers
                    most = max(
                        _layers(x, names[0], (t, s), n, i, limit) for x in tables
                    )
                    rows.append((s / b, kind, t, i, most))
                    if len(rows) > _MOST:
                        return None
    return _Replicas(*np.array(rows, float).reshape(-1, 5).T)


def taken(table: CostTable, b: int) -> bool:
    """Tell whether GPUs can share micro-batches of b sequences, in numbers.

    With memory for everything one stage does what a pipeline does.
    """
    kinds = _kinds(table).values()
    each = [_samples(table, names[0], b) for names in kinds]
    able = [[s for s in range(b + 1) if bits >> s & 1] for bits in each]
    # No more than b nodes take any.
    return bool(sums(able, [min(b, len(names)) for names in kinds], b)[-1] >> b & 1)


def _samples(table: CostTable, node: str, b: int) -> int:
    """Bit s is set where replicas in a node can take s of b sequences together."""
    gpus = table.cluster.node[node].count
    able = {
        t: [s for s in range(1, b + 1) if table.usable(node, t, s)]
        for t in range(1, gpus + 1)
    }
    by_gpus = [1]
    for count in range(1, gpus + 1):
        reached = by_gpus[-1]
        for t in range(1, count + 1):
            for s in able[t]:
                reached |= by_gpus[count - t] << s
        by_gpus.append(reached & (1 << b + 1) - 1)
    return by_gpus[-1]


def _layers(
    table: CostTable, node: str, group: tuple[int, int], n: int, i: int, limit: int
) -> int:
    """The most layers of a stage at position `i` from the end, up to a limit.

    It is the first one or not; alone it has all layers, and sends to no other.
    """
    t, s = group

    def fits(x: int, stages: int, j: int) -> bool:
        last = range(table.layers - x, table.layers)
        span = last if i == 0 else range(x)
        parts = table.stage_mib(node, span, (t, s), Position(n, stages, j))
        return sum(parts.values()) <= table.memory_mib(node)

    if i == 0 and fits(table.layers, 1, 0):
        return table.layers
    places = [(i + 2, 1)] if i == 0 else [(i + 1, 0), (i + 2, 1)]

    def is_too_much(x: int) -> bool:
        return not any(fits(x, *place) for place in places)

    return bisect_left(range(1, limit + 1), True, key=is_too_much)


def _most_layers(table: CostTable, replicas: _Replicas) -> float:
    """No pipeline holds more layers: what all GPUs and positions are worth."""
    share, kind, gpus, position, layers = replicas
    if not len(share):
        return 0.0
    kinds = list(_kinds(table).values())
    counts = [len(x) * table.cluster.node[x[0]].count for x in kinds]
    places = int(position.max()) + 1
    uses = np.zeros((len(counts) + places, len(share)))
    each = np.arange(len(share))
    uses[kind.astype(int), each] = gpus
    uses[len(counts) + position.astype(int), each] = share
    supply = np.array([*counts, *[1.0] * places], float)
    _, _, prices = maximise(share * layers, uses, supply)
    prices = np.maximum(prices, 0.0)
    # A replica may be worth a little more than its price: as often as there are GPUs.
    short = float(np.maximum(0.0, share * layers - prices @ uses).max())
    return float(prices @ supply) * (1 + 1e-9) + short * sum(counts)
