"""Shapes of grids: a tensor-parallel degree, replicas, stages, micro-batches."""

from collections.abc import Iterator
from typing import NamedTuple

from ...schema.targets import Rule
from ..fast_cost import FastCost


class Shape(NamedTuple):
    """`replicas` x `stages` groups of `t` GPUs, each of which takes `size` samples.

    `together` of the replicas share a micro-batch of a size that the workload lists.
    """

    t: int
    replicas: int
    stages: int
    size: int
    micro_batches: int
    together: int = 1


def shapes(cost: FastCost) -> Iterator[Shape]:
    """Every shape for which the cluster has groups, and the batch micro-batches."""
    workload, model = cost.instance.workload, cost.instance.model
    target = workload.target
    rules = target.rules
    alone = (Rule.TIED_TOGETHER in rules and model.tied_embeddings) or target.whole
    runs = cost.costs.schedule.interleave
    sizes = set(workload.micro_batch_sizes)
    # Without experts in any layer there is nothing that GPUs divide.
    e = cost.costs.compute.expert_parallel if any(cost.table.divided_parameters) else 1
    for size in sorted({d for whole in sizes for d in _divisors(whole)}):
        shares, rest = divmod(workload.global_batch, size)
        if rest:
            continue
        most = 1 if target.whole else max(node.count for node in cost.nodes)
        for t in range(1, most + 1):
            groups = sum(groups_of(cost, t, size))
            for replicas in range(1, min(groups, shares) + 1):
                if shares % replicas or replicas * t % e:
                    continue
                if not cost.makes_groups(replicas):
                    continue
                n = shares // replicas
                several = (k for k in _divisors(replicas) if k * size in sizes)
                if (together := next(several, None)) is None:
                    continue
                for stages in range(1, min(groups // replicas, cost.layers) + 1):
                    if Rule.FILLED in rules and n < stages:
                        break
                    if alone and stages > 1:
                        break
                    if runs > 1 and (n % stages or stages * runs > cost.layers):
                        continue
                    if cost.table.is_paced and t * replicas * stages == 1:
                        continue  # judged one by one
                    yield Shape(t, replicas, stages, size, n, together)


def groups_of(cost: FastCost, t: int, size: int) -> list[int]:
    """How many groups of `t` GPUs each node has, by its number."""
    return [
        node.count // t if t in cost.degrees(i, size) else 0
        for i, node in enumerate(cost.nodes)
    ]


def nodes_by_kind(cost: FastCost, t: int, size: int) -> list[list[int]]:
    """Nodes by kind, each once for every group of `t` GPUs that it has.

    In the order of their names, as launchers sort hosts; kinds by their first node.
    """
    found: dict[int, list[int]] = {}
    groups = groups_of(cost, t, size)
    for node in sorted(range(len(groups)), key=cost.names.__getitem__):
        if groups[node]:
            found.setdefault(cost.kind[node], []).extend([node] * groups[node])
    return list(found.values())


def _divisors(number: int) -> list[int]:
    return [d for d in range(1, number + 1) if number % d == 0]
