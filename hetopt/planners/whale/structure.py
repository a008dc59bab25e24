"""Whale's plans are made of structures, FLOPs of layers and compute of GPUs."""

from collections.abc import Iterator, Sequence
from itertools import accumulate
from typing import NamedTuple

from ...costs import compute
from ...search.fast_cost import FastCost
from ...search.symmetric import common_degrees, measured


class Structure(NamedTuple):
    """Nodes of the replicas of each stage; replica d of every stage is pipeline d."""

    t: int
    b: int
    stages: tuple[tuple[int, ...], ...]

    @property
    def copies(self) -> int:
        """Return the data-parallel degree."""
        return len(self.stages[0])

    def chains(self) -> Iterator[list[tuple[int, int]]]:
        """Yield node and degree of the stages of each pipeline."""
        for row in zip(*self.stages, strict=True):
            yield [(node, self.t) for node in row]

    def __str__(self) -> str:
        shape = f"tp {self.t}, pp {len(self.stages)}, dp {self.copies}"
        return f"{shape}, micro-batches of {self.b}"


def structures(cost: FastCost, nodes: Sequence[int]) -> Iterator[Structure]:
    """Every structure on all GPUs of `nodes`, in both layouts of ranks."""
    sizes = sorted(set(cost.instance.workload.micro_batch_sizes))
    for t in common_degrees(cost, nodes):
        groups = [node for node in nodes for _ in range(cost.nodes[node].count // t)]
        for pp in range(1, min(len(groups), cost.layers) + 1):
            dp, left = divmod(len(groups), pp)
            if left:
                continue
            cost.check()
            by_rank = tuple(tuple(groups[j * dp : (j + 1) * dp]) for j in range(pp))
            in_nodes = tuple(tuple(groups[j::pp]) for j in range(pp))
            for b in sizes:
                if measured(cost, nodes, t, b):
                    for stages in dict.fromkeys((by_rank, in_nodes)):
                        yield Structure(t, b, stages)


def work_before(cost: FastCost) -> list[int]:
    """Return the FLOPs of a sample, both passes, of the layers before each, and of all.

    The head's go with the last layer.
    """
    model, workload = cost.instance.model, cost.instance.workload
    each = [
        compute.passes(workload.costs)
        * compute.forward_flops(model, workload, layer, 1)
        for layer in range(cost.layers)
    ]
    if workload.costs.compute.head == "include":
        each[-1] += 6 * model.embedding_parameters * workload.sequence_length
    return list(accumulate(each, initial=0))


def power_of(cost: FastCost, node: int) -> int:
    """Effective MFLOP/s of a GPU of a node, at least 1."""
    gpu = cost.table.gpu(cost.names[node])
    return max(1, int(compute.flops_per_s(gpu) / 10**6))
