"""Megatron-LM: the best symmetric dp x tp x pp over the whole cluster.

Every pipeline has pp stages of tp GPUs; layers and micro-batches are shared equally.
All factorisations dp tp pp = GPUs are tried, with every micro-batch size of the
instance, and the fastest that fits is kept. Heterogeneity is not seen: the slowest
GPU sets the pace, as it does for Megatron-LM on a mixed cluster.

Choices where its users have one:
- tp divides the GPUs of every node, so that a group never crosses nodes;
- where pp does not divide the layers, the first stages take one more;
- ranks are laid out tp, then dp, then pp (Megatron's order), and also tp, then pp,
  then dp, which puts pipelines inside nodes; nodes come in the instance's order;
- dp times the micro-batch size divides the global batch;
- where no factorisation of all GPUs fits, nodes are left out one by one, those with
  the least memory a GPU first (then the slowest, then the last), until one does.

Source: Shoeybi et al. 2019, Narayanan et al. 2021; the baseline of AutoHet and
HexiScale.
"""

import time
from collections.abc import Iterator
from itertools import pairwise

from ..costs import CostTable
from ..errors import NoPlan
from ..plans import TrainingPlan
from ..schema import Instance, Node
from ..search_cost import PipelineShape, SearchCost, Shortage, StageShape

problem = "training_plan"


def plan(
    data: Instance, *, seed: int = 0, deadline: float | None = None
) -> TrainingPlan:
    """The fastest symmetric plan; `NoPlan` says what is short. `seed` has no effect."""
    cost = SearchCost(CostTable(data))
    nodes = list(cost.table.cluster.nodes)
    nearest: tuple[Shortage, str] | None = None
    while nodes:
        best: tuple[int, tuple[PipelineShape, ...]] | None = None
        for name, pipelines in candidates(cost, nodes):
            if deadline is not None and time.monotonic() > deadline:
                break
            short = max(
                (s for shape in set(pipelines) for s in cost.shortages(shape)),
                default=None,
            )
            if short is not None:
                if nearest is None or short < nearest[0]:
                    nearest = (short, name)
                continue
            value = cost.iteration_us(pipelines)
            if best is None or value < best[0]:
                best = (value, pipelines)
        if best is not None:
            return cost.plan(best[1])
        if deadline is not None and time.monotonic() > deadline:
            raise NoPlan("megatron: no factorisation was found to fit in time")
        nodes.remove(least_useful(cost.table, nodes))
    raise NoPlan(_reason(data, nearest))


def candidates(
    cost: SearchCost, nodes: list[Node]
) -> Iterator[tuple[str, tuple[PipelineShape, ...]]]:
    """Every symmetric plan on all GPUs of `nodes`, with a name for messages."""
    batch, layers = cost.table.workload.global_batch, cost.table.layers
    for t in degrees(nodes):
        groups = [node.name for node in nodes for _ in range(node.count // t)]
        for pp in range(1, min(len(groups), layers) + 1):
            if len(groups) % pp:
                continue
            dp, cuts = len(groups) // pp, equal_cuts(layers, pp)
            for b in sorted(set(cost.table.workload.micro_batch_sizes)):
                if batch % (dp * b) or not all_measured(cost.table, nodes, t, b):
                    continue
                name = f"tp {t}, pp {pp}, dp {dp}, micro-batches of {b}"
                n = batch // (dp * b)
                for rows in (
                    [groups[d::dp] for d in range(dp)],
                    [groups[d * pp : (d + 1) * pp] for d in range(dp)],
                ):
                    yield (
                        name,
                        tuple(
                            PipelineShape(n, b, on_groups(row, cuts, t)) for row in rows
                        ),
                    )
                    if 1 in (pp, dp):
                        break  # the two layouts are one


def on_groups(row: list[str], cuts: list[int], t: int) -> tuple[StageShape, ...]:
    """Stages between `cuts`, the j-th on `t` GPUs of the j-th node of `row`."""
    spans = zip(pairwise(cuts), row, strict=True)
    return tuple(StageShape(first, last, node, t) for (first, last), node in spans)


def degrees(nodes: list[Node]) -> list[int]:
    """Tensor-parallel degrees that divide the GPUs of every node."""
    least = min(node.count for node in nodes)
    return [
        t for t in range(1, least + 1) if all(node.count % t == 0 for node in nodes)
    ]


def equal_cuts(layers: int, stages: int) -> list[int]:
    """Boundaries of stages as equal as can be, the first ones larger."""
    share, more = divmod(layers, stages)
    return [j * share + min(j, more) for j in range(stages + 1)]


def all_measured(table: CostTable, nodes: list[Node], t: int, b: int) -> bool:
    """Whether the times of degree `t` and micro-batch `b` are known on `nodes`."""
    return all(table.measured(node.name, t, b) for node in nodes)


def least_useful(table: CostTable, nodes: list[Node]) -> Node:
    """The node to leave out first: least memory, then least compute, then last."""

    def usefulness(place: int) -> tuple[int, float, int]:
        gpu = table.gpu(nodes[place].name)
        speed = gpu.peak_tflops * gpu.efficiency
        return table.memory_mib(nodes[place].name), speed, -place

    return nodes[min(range(len(nodes)), key=usefulness)]


def _reason(data: Instance, nearest: tuple[Shortage, str] | None) -> str:
    if nearest is None:
        sizes = list(data.workload.micro_batch_sizes)
        return (
            "megatron: no factorisation of any set of nodes divides the global "
            f"batch {data.workload.global_batch} into micro-batches of {sizes}, "
            "with times for every node"
        )
    short, name = nearest
    return (
        f"megatron: no symmetric plan fits; the nearest ({name}) lacks "
        f"{short.mib} MiB a GPU on node {short.node!r}, stage {short.stage}"
    )
