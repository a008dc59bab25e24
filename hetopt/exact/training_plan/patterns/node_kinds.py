"""What a bound on training plans may assume of nodes: their best case, by kind.

Nodes of one kind have GPUs of one type, equally many, on equal links. Times are the
least that any run of x layers can take there, so a bound from them holds for layers
of any sizes; for equal layers they are exact.
"""

from bisect import bisect_left
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

import numpy as np
import numpy.typing as npt

from ....costs import CostTable
from ....schema import Instance, exact
from ....schema.rates import slower

Array = npt.NDArray[np.float64]

_B = 1  # sequences of a micro-batch: more of them may have several replicas a stage


@dataclass(frozen=True)
class Kind:
    """Nodes that no bound tells apart; arrays are indexed by degree t - 1 and x.

    `run_us[t - 1][x]` is the least time of x layers, `last_us` of the last x layers
    with the head; infinite where x layers do not fit. Hops go to a receiver of one
    GPU, the cheapest there is; `out_us` is None where there is no other node, and
    `within_us` is never above it.
    """

    nodes: tuple[str, ...]
    gpus: int
    run_us: Array
    last_us: Array
    within_us: float
    out_us: float | None


@dataclass(frozen=True)
class Fleet:
    """The kinds of a cluster, and what a spread layer costs.

    `spread_us` is 4 p / beta of a layer of average size: what one replica on one GPU
    pays to synchronise it when nearly all other replicas lie in other nodes.
    `weights[y]` is the least total size of y layers, in average layers.
    """

    kinds: tuple[Kind, ...]
    spread_us: float
    weights: Array


def fleet(instance: Instance) -> Fleet:
    """The fleet of an instance for micro-batches of one sequence."""
    table = CostTable(instance)
    classes: dict[Any, list[str]] = {}
    for node in table.cluster.nodes:
        key = (node.gpu, node.count, node.intra_gbytes_per_s, node.intra_latency_us)
        classes.setdefault(key, []).append(node.name)
    kinds = tuple(_kind(table, names) for names in classes.values())
    sizes = sorted(table.exchanged.layers)
    average = Fraction(sum(sizes), len(sizes))
    weights = np.concatenate([[0.0], np.cumsum(sizes) / float(average or 1)])
    return Fleet(kinds, _spread_us(instance, average), weights)


def _spread_us(instance: Instance, average: Fraction) -> float:
    inter = instance.planned_cluster.inter
    rates = [exact(slower(rate)) for rate in inter.pairs.rates]
    if inter.gbytes_per_s is not None:
        rates.append(exact(inter.gbytes_per_s))
    if not rates:
        return 0.0
    return float(4 * average / (max(rates) * 1000))


def _kind(table: CostTable, names: list[str]) -> Kind:
    node = table.cluster.node[names[0]]
    degrees = range(1, node.count + 1)
    run_us = np.array([_runs(table, node.name, t) for t in degrees])
    last_us = np.array([_last_runs(table, node.name, t) for t in degrees])
    within = table.least_hop_us(node.name, node.name, _B) if node.count > 1 else 0
    out_us = _least_out_us(table, names)
    # Where links between nodes are the faster ones, two visits are not one.
    within_us = float(within) if out_us is None else min(float(within), out_us)
    return Kind(tuple(names), node.count, run_us, last_us, within_us, out_us)


def _least_out_us(table: CostTable, names: list[str]) -> float | None:
    """The cheapest hop from a node of the kind to any other node."""
    everyone = [node.name for node in table.cluster.nodes]
    if len(everyone) == 1:
        return None
    if not table.cluster.inter.pairs:
        other = next(name for name in everyone if name != names[0])
        return float(table.least_hop_us(names[0], other, _B))
    cluster = table.cluster
    mine = {link for x in names for link in {*cluster.links.row(cluster.number[x])}}
    # One pair of nodes speaks for all that are joined by an equal link.
    return float(min(table.hop_over_us(link, _B) for link in mine - {-1}))


def _runs(table: CostTable, node: str, t: int) -> list[float]:
    """Least time of x = 0.. layers in a row, none of whose memory counts twice."""
    if not table.usable(node, t, _B):
        return [0.0] + [float("inf")] * table.layers
    sums = np.concatenate([[0], np.cumsum(table.layer_us(node, t, _B))])

    def too_many(x: int) -> bool:
        # In the middle of a pipeline, one micro-batch in flight: the least memory.
        return not any(
            _fits(table, range(i, i + x), node, t, stages=3, j=1)
            for i in _starts(table, x)
        )

    # A run that fits has shorter ones inside it, which fit as well.
    most = bisect_left(range(1, table.layers + 1), True, key=too_many)
    times = [float((sums[x:] - sums[:-x]).min()) for x in range(1, most + 1)]
    return [0.0, *times, *[float("inf")] * (table.layers - most)]


def _last_runs(table: CostTable, node: str, t: int) -> list[float]:
    """Time of the last x = 0.. layers and the head."""
    if not table.usable(node, t, _B):
        return [0.0] + [float("inf")] * table.layers
    sums = np.concatenate([[0], np.cumsum(table.layer_us(node, t, _B)[::-1])])
    head, layers = table.head_us(node, t, _B), table.layers

    def too_many(x: int) -> bool:
        stages = 1 if x == layers else 2
        span = range(layers - x, layers)
        return not _fits(table, span, node, t, stages=stages, j=stages - 1)

    # All layers, of which the first stage has more to hold, are looked at apart.
    most = bisect_left(range(1, layers), True, key=too_many)
    out = [0.0] + [float(sums[x] + head) for x in range(1, most + 1)]
    out += [float("inf")] * (layers - 1 - most)
    return [*out, float("inf") if too_many(layers) else float(sums[layers] + head)]


def _starts(table: CostTable, x: int) -> range:
    """First layers of the runs to look at: one where all layers are equal."""
    if table.even:
        return range(1)
    return range(table.layers - x + 1)


def _fits(
    table: CostTable, span: range, node: str, t: int, *, stages: int, j: int
) -> bool:
    parts = table.stage_mib(node, span, t, _B, 1, stages, j)
    return sum(parts.values()) <= table.memory_mib(node)
