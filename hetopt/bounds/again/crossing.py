"""Bytes that cross links between nodes beside the total work, derived again.

The argument is that of `bounds.crossing`: with Tp the longest pipeline and B samples of
w FLOPs, samples make h <= (sum F Tp / B - w) / k hops between nodes on the average,
and all nodes together hold layers worth w (sum of the roots of their shares of the
work)^2 / (1 + h), each copy of which beyond the first is synchronised over some link.
Links are asked of the cluster pair by pair (where links are not given by pair, of two
nodes of each class), and the least over Tp is found by halving intervals.
"""

from heapq import heapify, heappop, heappush
from itertools import permutations
from math import floor, inf, sqrt

from ...costs import CostTable, compute
from ...schema import exact

_NEAR = 1e-8  # relative, between the ends of the interval that is left
_ROUNDED = 1 - 1e-9  # what doubles may cost, generously
_MOST_NODES = 200  # all pairs of which are asked for


def least_us(table: CostTable, pipeline_us: float) -> int | None:
    """No iteration is shorter if no plan's pipelines are all done before `pipeline_us`.

    Without the optimiser, in us; None where the argument does not hold: micro-batches
    of several sequences, measured times, synchronisation that something hides.
    """
    costs, nodes = table.workload.costs, table.cluster.nodes
    alone = max(table.workload.micro_batch_sizes) == 1 and costs.updates.lora is None
    plain = (
        costs.updates.sync_overlap == "none" and costs.compute.layer_times == "analytic"
    )
    if table.cluster.inter.pairs and len(nodes) > _MOST_NODES:
        return None
    if not (alone and plain and costs.shown_hop_factor and len(nodes) > 1):
        return None
    shares = _Shares(table)
    return shares.least_us(pipeline_us) if shares.flops else None


class _Shares:
    """FLOPs, FLOP/us and links of one instance."""

    def __init__(self, table: CostTable) -> None:
        costs, batch = table.workload.costs, table.workload.global_batch
        self.batch = batch
        self.pipelines = float(exact(costs.schedule.pipeline_factor))
        self.sync = float(exact(costs.updates.sync_factor))
        flops, least = _flops(table)
        self.flops = flops
        speed = {
            node.name: float(compute.flops_per_s(table.gpu(node.name)) / 10**6)
            for node in table.cluster.nodes
        }
        power = [speed[node.name] * node.count for node in table.cluster.nodes]
        self.power = sorted(power, reverse=True)
        self.hop, rate = _links(table, speed)
        sent = 2 * min(2, costs.memory.gradient_bytes) / 2 * least * flops / rate * 1e6
        self.copy_us = sent / table.cluster.gpu_count

    def least_us(self, low: float) -> int:
        """The least over all longest pipelines, by halving the interval it may be in.

        Pipelines between two times last the one at least, and synchronise as if the
        other at least: no less is synchronised in a shorter time.
        """
        low = max(low, self.batch * self.flops / sum(self.power))
        least = self._whole_us(low, low)
        left = [(self._whole_us(low, 2 * low), low, 2 * low)]
        while self.pipelines * (low := left[-1][2]) < least:
            left.append((self._whole_us(low, 2 * low), low, 2 * low))
        heapify(left)
        while True:
            value, low, high = heappop(left)
            if high - low <= _NEAR * low:
                return floor(value * _ROUNDED)
            middle = (low + high) / 2
            for part in ((low, middle), (middle, high)):
                heappush(left, (self._whole_us(*part), *part))

    def _whole_us(self, low: float, high: float) -> float:
        return self.pipelines * low + self.sync * self._sync_us(high)

    def _sync_us(self, pipeline_us: float) -> float:
        each = pipeline_us / self.batch
        hops = max(0.0, (sum(self.power) * each - self.flops) / self.hop)
        roots, left = 0.0, 1.0
        for power in self.power:  # the sum of roots is least where the fastest are full
            share = min(left, power * each / self.flops)
            roots, left = roots + sqrt(share), left - share
            if left <= 0:
                break
        return max(0.0, roots**2 / (1 + hops) - 1) * self.copy_us


def _flops(table: CostTable) -> tuple[float, float]:
    """FLOPs of a sample, and bytes of half its gradients for each of them at least."""
    model, workload, costs = table.model, table.workload, table.workload.costs
    flops = [
        compute.passes(costs) * compute.forward_flops(model, workload, layer, 1)
        for layer in range(table.layers)
    ]
    held = list(model.parameters)
    if costs.compute.head == "include":
        flops[-1] += 6 * model.embedding_parameters * workload.sequence_length
        held[-1] += model.embedding_parameters
    rates = (float(2 * p / w) for p, w in zip(held, flops, strict=True) if w)
    return float(sum(flops)), min(rates, default=0.0)


def _links(table: CostTable, speed: dict[str, float]) -> tuple[float, float]:
    """FLOPs that a hop costs at the least, and bytes/s between nodes at the most."""
    cheapest, fastest, asked = inf, 0.0, list(speed)
    if not table.cluster.inter.pairs:
        alike: dict[object, list[str]] = {}
        for name in speed:
            alike.setdefault(table.node_class[name], []).append(name)
        asked = [name for names in alike.values() for name in names[:2]]
    for a, b in permutations(asked, 2):
        cheapest = min(cheapest, speed[a] * table.least_hop_us(a, b, 1))
        fastest = max(fastest, float(table.link(a, b)[1]))
    return cheapest, fastest
