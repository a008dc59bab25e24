"""AutoHet's node and stage mapping: which node serves which stage of which group.

For its Algorithm 1, line 10. A device is a tensor-parallel group of t GPUs.
"""

from collections import Counter
from collections.abc import Mapping, Sequence
from heapq import heapify, heapreplace

from ...search.fast_cost import FastCost

Group = Mapping[str, int]  # devices of each GPU type


def compute_of(cost: FastCost) -> dict[str, float]:
    """Effective TFLOP/s of a GPU of each type."""
    gpus = cost.instance.planned_cluster.gpus
    return {name: gpu.peak_tflops * gpu.efficiency for name, gpu in gpus.items()}


def devices_of(cost: FastCost, t: int) -> dict[int, int]:
    """Free devices of each node."""
    return {i: node.count // t for i, node in enumerate(cost.nodes)}


def map_stages(cost: FastCost, groups: Sequence[Group], t: int) -> list[list[int]]:
    """Return the nodes of the stages of each group, in order.

    Types by ascending compute. While every group has a device of the type left and
    one node has one free for each group, these become the next stage of every group:
    the replicas of its layers share the links of that node. What is left follows,
    group by group, in the same order of types, from the node that has most free.
    """
    power = compute_of(cost)
    types = sorted(power, key=lambda name: (power[name], name))
    left = [Counter(group) for group in groups]
    free = devices_of(cost, t)
    rows: list[list[int]] = [[] for _ in groups]
    nodes = {name: _of(cost, name) for name in types}
    for name in types:
        while all(group[name] for group in left):
            node = next((i for i in nodes[name] if free[i] >= len(groups)), None)
            if node is None:
                break
            free[node] -= len(groups)
            for group, row in zip(left, rows, strict=True):
                group[name] -= 1
                row.append(node)
    # Of each type the node that has most free comes first, then the first one.
    heaps = {name: [(-free[i], i) for i in nodes[name]] for name in types}
    for heap in heaps.values():
        heapify(heap)
    for group, row in zip(left, rows, strict=True):
        cost.check()
        for name in types:
            for _ in range(group[name]):
                used, node = heaps[name][0]
                heapreplace(heaps[name], (used + 1, node))
                row.append(node)
    return rows


def in_order(cost: FastCost, groups: Sequence[Group], t: int) -> list[list[int]]:
    """The mapping switched off: devices by the order of nodes, and stages too."""
    free = devices_of(cost, t)
    rows = []
    waiting = {
        name: iter([i for i in _of(cost, name) for _ in range(free[i])])
        for name in compute_of(cost)
    }
    for group in groups:
        row = [next(waiting[name]) for name, n in group.items() for _ in range(n)]
        rows.append(sorted(row))
    return rows


def _of(cost: FastCost, name: str) -> list[int]:
    return [i for i, node in enumerate(cost.nodes) if node.gpu == name]
