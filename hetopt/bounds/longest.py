"""How long the pipelines and the synchronisation of any plan can last.

Matrices of the search on small clusters hold times of 64 bits. An instance whose
longest plan is beyond `MOST_US` is left to the methods for large clusters.
"""

from fractions import Fraction
from typing import NamedTuple

from ..costs import CostTable
from ..costs.compute import ceil
from ..schema import Instance, exact

MOST_US = 1 << 46  # two years; far below `NEVER`, so that no sum or product overflows
_PASSES = 3  # over the gradients, under any stage of ZeRO


class Longest(NamedTuple):
    """No pipeline, synchronisation or optimiser of any plan takes longer; in us."""

    pipeline_us: int
    sync_us: int
    update_us: int

    @property
    def fit(self) -> bool:
        """Return whether all are within `MOST_US`."""
        return max(self) <= MOST_US

    def whole_us(self, instance: Instance) -> int:
        """No iteration takes longer."""
        costs = instance.workload.costs
        whole = ceil(exact(costs.schedule.pipeline_factor) * self.pipeline_us)
        whole += ceil(exact(costs.updates.sync_factor) * self.sync_us)
        whole = max(whole, ceil(costs.sync_floor * self.sync_us))
        overhead_us = ceil(exact(costs.schedule.iteration_overhead_us))
        return whole + self.update_us + overhead_us


def longest(instance: Instance) -> Longest:
    """Return what no plan exceeds, whatever its replicas, sizes and rules.

    What ends an iteration (tied embeddings, the optimiser) is not in it.
    """
    table = CostTable(instance)
    sizes = instance.workload.micro_batch_sizes
    batch = min(instance.workload.global_batch, max(sizes))
    tables = [table.under(rule) for rule in table.workload.recomputes]
    places = [
        (node.name, t) for node in table.cluster.nodes for t in range(1, node.count + 1)
    ]
    stage = max(_stage_us(each, *place, batch) for each in tables for place in places)
    hops = (
        table.hop_us(node, receiver, t, batch, 1)
        for node in table.cluster.node
        for receiver, t in places
        if node != receiver or table.cluster.node[node].count > 1
    )
    # n micro-batches in s stages take no more than n + s - 1 slots of the slowest.
    slots = table.workload.global_batch + table.cluster.gpu_count
    pipeline = slots * (stage + max(hops, default=0))
    return Longest(pipeline, _sync_us(table), _update_us(table))


def _stage_us(table: CostTable, node: str, t: int, b: int) -> int:
    """All layers and the head on one place, for at most `b` samples."""
    head = table.head_us(node, t, b)
    if not table.profile:
        return sum(table.layer_us(node, t, b)) + head
    # A size is one row, or one for each of its binary digits: no row counts twice.
    gpu = table.cluster.node[node].gpu
    rows = table.workload.costs.compute.profile
    mine = (row for row in rows if (row.gpu, row.tensor_parallel) == (gpu, t))
    return head + sum(sum(row.layer_us) for row in mine)


def _sync_us(table: CostTable) -> int:
    """Every layer, embedding and head, each among all GPUs on the slowest link."""
    nodes = table.cluster.nodes
    pairs = ((a, b) for a in nodes for b in nodes if a is not b or a.count > 1)
    links = [table.link(a.name, b.name) for a, b in pairs]
    if not links:
        return 0
    latency = max(seconds for seconds, _ in links)
    rate = min(bytes_per_s for _, bytes_per_s in links)
    # A ring reaches one of its node's adapters at the least.
    rate /= max((n or 1 for n in table.adapters.values()), default=1)
    costs = table.workload.costs
    sizes = [*table.exchanged.layers, *[table.exchanged.end or 0] * 2]
    # A replica sends less than all gradients, in one message to each of the others.
    messages = table.cluster.gpu_count * latency
    each = (messages + Fraction(costs.memory.gradient_bytes * p) / rate for p in sizes)
    return sum(ceil(_PASSES * seconds * 10**6) for seconds in each)


def _update_us(table: CostTable) -> int:
    """Every layer and both ends on one GPU, which divides nothing."""
    own = table.trained
    held = Fraction(sum(own.layers) + 2 * (own.end or 0))
    nodes = table.cluster.nodes
    return max(table.update_us(node.name, [(held, 1)], node.count) for node in nodes)
