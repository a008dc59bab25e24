"""The least that crosses links between nodes: activations or gradients.

For stages of one replica, analytic times, synchronisation that nothing hides.
N GPUs, F_v the FLOP/s of a GPU of node v, w the FLOPs of a sample, B samples, Tp the
time of the slowest pipeline, Ts the synchronisation. A pipeline that visits m nodes
has at least m - 1 hops between nodes, each of which keeps a GPU of the sender busy.

Activations.  Let m = 1 + h on the average of the samples, and k the least of F_v times
the hop of a sample out of v. All GPUs together: sum F Tp >= B (w + k h), so
    h <= (sum F Tp / B - w) / k.
Layers held.  Let node v hold layers worth X_v FLOPs a sample, see B_v samples and do
the share a_v of all work. It does at most X_v B_v, and sum B_v = B (1 + h), so by
Cauchy and Schwarz
    sum X_v >= sum a_v w B / B_v >= w (sum sqrt a_v)^2 / (1 + h),
where a_v <= F_v count_v Tp / (B w) and sum a_v = 1. The sum of roots is concave, so it
is least where the fastest nodes are full.
Gradients.  A layer of p parameters held in q nodes by n replicas has a node with at
most n / q of them, so  sync >= 2 (1 - 1/q) 2 p / (t_min beta)  for the ring, and for
the slowest link too. A stage of t GPUs has t >= t_min of its layers: summing t Ts over
all replicas, at least q for each layer,  N Ts >= sum_l 2 (q_l - 1) 2 p_l / beta, and
sum_l (q_l - 1) w_l = sum X_v - w. The embedding is left out, the head goes with the
last layer.

So Ts is at least a function of Tp that falls, and the least of  a Tp + b Ts  over Tp
is bounded piece by piece of a grid.
"""

from dataclasses import dataclass
from math import floor, sqrt
from typing import Self

import numpy as np

from .. import capability
from ..costs import CostTable, compute
from ..schema import exact

_STEP = 1.001  # of the grid on pipeline times; a finer one raises the bound little
_ROUNDING = 1 - 1e-9  # what float arithmetic may cost, generously


@dataclass(frozen=True)
class Crossing:
    """The constants of one instance, in FLOPs and us."""

    pipeline_factor: float
    sync_factor: float
    per_sample: float  # w
    hop: float  # k, in FLOPs
    samples: int  # B
    powers: tuple[float, ...]  # F_v count_v in FLOP/us, falling
    spread_us: float  # N Ts for one more copy of all layers, over N

    @classmethod
    def of(cls, table: CostTable) -> Self | None:
        """The constants, None where the proof does not hold."""
        workload, cluster = table.workload, table.cluster
        costs = workload.costs
        if not capability.carries("proof crossing", table.instance):
            return None
        if len(cluster.nodes) < 2 or not costs.shown_hop_factor:
            return None
        flops, parameters = layer_flops(table), list(table.model.parameters)
        if costs.compute.head == "include":
            parameters[-1] += table.model.embedding_parameters
        if not any(flops):  # nothing takes time
            return None
        # 2 p_l >= least w_l for each layer turns parameters into FLOPs.
        least = min(2 * p / w for p, w in zip(parameters, flops, strict=True) if w)
        names = [node.name for node in cluster.nodes]
        speeds = {x: float(compute.flops_per_s(table.gpu(x)) / 10**6) for x in names}
        links = _links(table)
        fastest = max(bandwidth for _, bandwidth in links.values())
        extra = 2 * least * sum(flops) / fastest * 1e6
        return cls(
            pipeline_factor=float(exact(costs.schedule.pipeline_factor)),
            sync_factor=float(exact(costs.updates.sync_factor)),
            per_sample=float(sum(flops)),
            hop=min(
                speeds[node] * _hop_us(table, latency, bandwidth)
                for node, (latency, bandwidth) in links.items()
            ),
            samples=workload.global_batch,
            powers=tuple(
                sorted((speeds[n.name] * n.count for n in cluster.nodes), reverse=True)
            ),
            spread_us=extra / cluster.gpu_count,
        )

    def least_us(self, pipeline_us: float) -> int:
        """Least iteration time, if no plan's slowest pipeline ends before that."""
        total = sum(self.powers)
        low = max(pipeline_us, self.samples * self.per_sample / total)
        best = float("inf")
        while self.pipeline_factor * low < best:
            high = low * _STEP  # Ts falls: between low and high it is at least that
            sync = self.sync_factor * self._sync_us(high, total)
            best = min(best, self.pipeline_factor * low + sync)
            low = high
        return floor(best * _ROUNDING)

    def _sync_us(self, pipeline_us: float, total: float) -> float:
        each = pipeline_us / self.samples
        hops = max(0.0, total * each - self.per_sample) / self.hop
        left, roots = 1.0, 0.0
        for power in self.powers:
            share = min(left, power * each / self.per_sample)
            roots += sqrt(share)
            left -= share
            if left <= 0:
                break
        return max(0.0, roots**2 / (1 + hops) - 1) * self.spread_us


def layer_flops(table: CostTable) -> list[int]:
    """Return the FLOPs of a sample in each layer, both passes; the last has the head's.

    The head counts where the costs include it.
    """
    model, workload = table.model, table.workload
    passes, each = compute.passes(workload.costs), range(table.layers)
    found = [passes * compute.forward_flops(model, workload, x, 1) for x in each]
    if workload.costs.compute.head == "include":
        found[-1] += 6 * model.embedding_parameters * workload.sequence_length
    return found


def _links(table: CostTable) -> dict[str, tuple[float, float]]:
    """Return each node's least latency and greatest bandwidth to another node."""
    cluster = table.cluster
    inter, links = cluster.inter, cluster.links
    least = np.full(len(cluster.nodes), np.inf)
    most = np.zeros(len(cluster.nodes))
    if inter.gbytes_per_s is not None:
        # Taken along although every pair of the node may be an exception: that
        # can only lower the bound.
        least[:] = float(exact(inter.latency_us) / 10**6)
        most[:] = float(exact(inter.gbytes_per_s) * 10**9)
    if inter.pairs:
        exactly = [links.exactly(k) for k in range(links.classes)]
        latency = np.array([float(seconds) for seconds, _ in exactly])
        bandwidth = np.array([float(rate) for _, rate in exactly])
        ends, classes = links.listed()
        np.minimum.at(least, ends, latency[classes])
        np.maximum.at(most, ends, bandwidth[classes])
    rows = zip(cluster.nodes, least.tolist(), most.tolist(), strict=True)
    return {node.name: (seconds, rate) for node, seconds, rate in rows}


def _hop_us(table: CostTable, latency: float, bandwidth: float) -> float:
    size = 2 * table.workload.sequence_length * table.model.hidden
    factor = float(exact(table.workload.costs.shown_hop_factor))
    return factor * 2 * (latency + size / bandwidth) * 1e6
