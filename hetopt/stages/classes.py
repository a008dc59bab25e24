"""Classes of equal nodes, and the least that a transfer to the next stage takes there.

A transfer is timed at its cheapest: to one GPU, over the fastest link that the node
has. Where all samples of a stage lie in one node, the next stage begins in that node or
in another one; a stage in several nodes hands on from whichever is nearest.
"""

from collections.abc import Container, Iterable
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from ..costs import CostTable

Whole = npt.NDArray[np.int64]

NEVER = 1 << 49  # us, 18 years: longer than any time that a plan is looked for in


class NodeClass(NamedTuple):
    """Nodes that no method tells apart: equal GPUs, equally many, on equal links.

    Transfers are in us by samples, from 0 on; `NEVER` where there is none.
    """

    nodes: tuple[str, ...]
    gpus: int
    inner_us: Whole  # to a stage in the node
    outer_us: Whole  # to a stage in another node
    least_us: Whole  # from any node that a stage lies in, to anywhere


def node_classes(
    table: CostTable, samples: int, apart: Container[str] = ()
) -> tuple[NodeClass, ...]:
    """Return the classes of a cluster, in the order of their first nodes.

    Nodes `apart` are classes of their own. They stand for as many of their class,
    whichever these are: so transfers are the least of all nodes of it.
    """
    groups: dict[tuple[object, int], list[str]] = {}
    for node in table.cluster.nodes:
        key = (table.node_class[node.name], node.count)
        groups.setdefault(key, []).append(node.name)
    sides = [_transfers(table, names, samples) for names in groups.values()]
    least = np.min([inner for inner, _ in sides], axis=0)
    found = []
    for ((_, count), names), side in zip(groups.items(), sides, strict=True):
        others = tuple(name for name in names if name not in apart)
        mine = tuple(name for name in names if name in apart)
        parts = [part for part in (others, mine) if part]
        found += [NodeClass(part, count, *side, least) for part in parts]
    return tuple(found)


def whole_us(times: Iterable[int]) -> Whole:
    """Return times as 64 bits carry them; those beyond `NEVER` are of no plan."""
    return np.array([min(us, NEVER) for us in times], np.int64)


def _transfers(table: CostTable, names: list[str], samples: int) -> tuple[Whole, Whole]:
    """Return the least transfers inside such a node, and out of it.

    By samples. Interleaved stages send as often as they have runs. A stage may also
    leave its node and come back in the next one, so what is inside never costs more
    than what leaves.
    """
    often = table.workload.costs.schedule.interleave
    sizes = range(1, samples + 1)
    outer = whole_us([0, *(_least_out(table, names, s) for s in sizes)])
    inner = outer
    if table.cluster.node[names[0]].count > 1:
        one = names[0]
        near = [0, *(table.least_hop_us(one, one, s) for s in sizes)]
        inner = np.minimum(whole_us(near), outer)
    return np.minimum(often * inner, NEVER), np.minimum(often * outer, NEVER)


def _least_out(table: CostTable, names: list[str], samples: int) -> int:
    """Return the cheapest transfer from a node of the class to any other node."""
    cluster = table.cluster
    if len(cluster.nodes) == 1:
        return NEVER
    if not cluster.inter.pairs:
        other = next(node.name for node in cluster.nodes if node.name != names[0])
        return table.least_hop_us(names[0], other, samples)
    rows = ({*cluster.links.row(cluster.number[name])} for name in names)
    links = set[int]().union(*rows) - {-1}
    return min(table.hop_over_us(link, samples) for link in links)
