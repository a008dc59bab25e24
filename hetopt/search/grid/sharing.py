"""Replicas of one GPU each that take shares of the batch by their speed.

Trainers that put a whole model on every GPU may still give each its own size of
micro-batches, number of them and rule of recomputation. All GPUs of a kind are told
alike, but for the numbers that make up the batch. Nodes are left out one by one, as
all wait for what replicas exchange.

No plan of D replicas has passes that end before the D fastest GPUs, each told what is
quickest on it and fits there, have done the whole batch; it exchanges and updates at
least what D replicas do. `least_us` is the least of these times over all D. A GPU may
have fewer samples than any size of micro-batches, as several may share one.
"""

from collections import Counter
from collections.abc import Iterator, Sequence
from itertools import islice, product
from math import inf, prod

from ...schema import Recompute
from ..balancing import with_batch
from ..fast_cost import FastCost, Pipe, Slot
from ..symmetric import least_useful
from .least import Least

_MOST_TOLD = 512  # ways to tell all kinds, of a set of nodes
_FASTEST = 3  # ways to tell a kind where there are more
_Told = tuple[int, Recompute]  # a size of micro-batches, and a rule


def plans(cost: FastCost, rules: Sequence[Recompute]) -> Iterator[tuple[Pipe, ...]]:
    """Yield plans that fit, of all nodes and of ever fewer.

    Each kind of GPU may have its own of the `rules` of recomputation. Under ZeRO 2 and
    3 all replicas do as many micro-batches.
    """
    nodes = cost.timed_nodes.copy()
    while nodes:
        yield from _on(cost, nodes, rules)
        nodes.remove(least_useful(cost, nodes))


def least_us(cost: FastCost, least: Least, rules: Sequence[Recompute]) -> float:
    """Return a time that no such plan beats; infinite where no GPU holds the model."""
    batch = cost.instance.workload.global_batch
    sizes = range(1, max(cost.instance.workload.micro_batch_sizes) + 1)
    speakers = {cost.kind[node]: node for node in cost.timed_nodes}
    gpus = Counter[int]()
    for node in cost.timed_nodes:
        gpus[cost.kind[node]] += cost.nodes[node].count
    divides = cost.costs.updates.zero
    best: dict[tuple[int, int], float | None] = {}
    found = inf
    for replicas in range(1 + cost.table.is_paced, min(batch, gpus.total()) + 1):
        cost.check()
        rates = []
        for kind, node in speakers.items():
            key = kind, replicas if divides else 1  # else each weighs alike
            if key not in best:
                best[key] = _rate(cost, node, _ways(cost, node, sizes, rules, key[1]))
            if (rate := best[key]) is not None:
                rates += [rate] * gpus[kind]
        if len(rates) >= replicas:
            passes = batch / sum(sorted(rates)[-replicas:])
            found = min(found, least.shared_us(replicas, passes))
    return found


def _rate(cost: FastCost, node: int, ways: Sequence[_Told]) -> float | None:
    """Return the samples a us of a GPU that is told the first of the ways."""
    if not ways:
        return None
    size, rule = ways[0]
    us = cost.timing(size, (Slot(node, 1, 0, cost.layers, rule),)).slowest
    return size / max(1, us)


def _on(
    cost: FastCost, nodes: list[int], rules: Sequence[Recompute]
) -> Iterator[tuple[Pipe, ...]]:
    """Yield plans on all GPUs of some nodes, by how each kind of them is told."""
    gpus = [node for node in nodes for _ in range(cost.nodes[node].count)]
    ways: dict[int, list[_Told]] = {}
    sizes = cost.instance.workload.micro_batch_sizes
    for node in nodes:
        if cost.kind[node] not in ways:
            ways[cost.kind[node]] = _ways(cost, node, sizes, rules, len(gpus))
    if prod(map(len, ways.values())) > _MOST_TOLD:
        ways = {kind: told[:_FASTEST] for kind, told in ways.items()}
    for told in islice(product(*ways.values()), _MOST_TOLD):
        cost.check()
        by_kind = dict(zip(ways, told, strict=True))
        rows: list[tuple[int, tuple[Slot, ...]]] = []
        for node in gpus:
            size, rule = by_kind[cost.kind[node]]
            rows.append((size, (Slot(node, 1, 0, cost.layers, rule),)))
        shared = with_batch if cost.costs.updates.zero < 2 else _in_step
        pipes = shared(cost, rows)
        if pipes is not None:
            yield pipes


def _ways(
    cost: FastCost,
    node: int,
    sizes: Sequence[int],
    rules: Sequence[Recompute],
    replicas: int,
) -> list[_Told]:
    """Return how a GPU of a node may be told: what fits, the fastest first."""
    found: list[tuple[float, int, _Told]] = []
    for number, (size, rule) in enumerate(product(sizes, rules)):
        slots = (Slot(node, 1, 0, cost.layers, rule),)
        if 1 not in cost.degrees(node, size):
            continue
        if not cost.fits(Pipe(1, size, slots), replicas):
            continue
        each = cost.timing(size, slots).slowest / size
        found.append((each, number, (size, rule)))
    return [told for _, _, told in sorted(found)]


def _in_step(
    cost: FastCost, rows: list[tuple[int, tuple[Slot, ...]]]
) -> tuple[Pipe, ...] | None:
    """Return pipelines of as many micro-batches each; None where these do not fit."""
    whole = sum(size for size, _ in rows)
    number, rest = divmod(cost.instance.workload.global_batch, whole)
    if rest or not number:
        return None
    pipes = tuple(Pipe(number, *row) for row in rows)
    return pipes if all(cost.fits(pipe, len(pipes)) for pipe in pipes) else None
