"""Megatron-LM: the best symmetric dp x tp x pp over the whole cluster.

Every pipeline has pp stages of tp GPUs; layers and micro-batches are shared equally.
All factorisations dp tp pp = GPUs are tried, with every micro-batch size of the
instance, and the fastest that fits is kept. Heterogeneity is not seen: the slowest
GPU sets the pace, as it does for Megatron-LM on a mixed cluster.

Choices where its users have one:
- tp divides the GPUs of every node, so that a group never crosses nodes;
- where pp does not divide the layers, the first stages take one more;
- ranks are laid out tp, then dp, then pp (Megatron's order), and also tp, then pp,
  then dp, which puts pipelines inside nodes; nodes come in the instance's order, and
  pipelines of near nodes next to each other where groups or experts follow it;
- dp times the micro-batch size divides the global batch;
- where no factorisation of all GPUs fits, nodes are left out one by one, those with
  the least memory a GPU first (then the slowest, then the last), until one does; nodes
  that were not measured at all are left out before.

Source: Shoeybi et al. 2019, Narayanan et al. 2021; the baseline of AutoHet and
HexiScale.
"""

from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple

from ..errors import NoPlan, in_time
from ..plans import TrainingPlan
from ..schema import Instance
from .fast_cost import Best, FastCost, Pipe, stages_on


class Shortage(NamedTuple):
    """MiB that each GPU of the stage at position `stage` lacks."""

    mib: int
    node: str
    stage: int

    def __str__(self) -> str:
        return f"{self.mib} MiB a GPU on node {self.node!r}, stage {self.stage}"


def worst_shortage(cost: FastCost, pipes: Iterable[Pipe]) -> Shortage | None:
    """The largest shortage of a plan; None where it fits."""
    found: list[Shortage] = []
    for n, b, slots in set(pipes):
        cost.check()
        for j, slot in enumerate(slots):
            need = cost.need_mib(b, n, len(slots), j, slot)
            if (lacking := need - cost.room[slot.node]) > 0:
                found.append(Shortage(lacking, cost.names[slot.node], j))
    return max(found, default=None)


def plan(
    data: Instance, *, seed: int = 0, deadline: float | None = None
) -> TrainingPlan:
    """The fastest symmetric plan; `NoPlan` says what is short. `seed` has no effect."""
    cost = FastCost(data, deadline)
    best, nodes = Best(cost), cost.timed_nodes.copy()
    nearest: tuple[Shortage, str] | None = None
    with in_time("megatron", best.plan):
        while nodes and best.us is None:
            for name, pipes in _candidates(cost, nodes):
                if short := worst_shortage(cost, pipes):
                    nearest = min(nearest or (short, name), (short, name))
                else:
                    best.offer(cost.ordered(pipes))
            nodes.remove(least_useful(cost, nodes))
    if (plan := best.plan()) is None:
        raise NoPlan(_reason(data, nearest))
    return plan


def _candidates(
    cost: FastCost, nodes: list[int]
) -> Iterator[tuple[str, tuple[Pipe, ...]]]:
    """Every symmetric plan on all GPUs of `nodes`, with a name for messages."""
    batch, layers = cost.instance.workload.global_batch, cost.layers
    sizes = sorted(set(cost.instance.workload.micro_batch_sizes))
    gpus = sum(cost.nodes[node].count for node in nodes)
    for t in common_degrees(cost, nodes):
        groups: list[int] = []
        for pp in range(1, min(gpus // t, layers) + 1):
            dp, left = divmod(gpus // t, pp)
            shared = [b for b in sizes if not left and batch % (dp * b) == 0]
            known = [b for b in shared if measured(cost, nodes, t, b)]
            if not known or not cost.makes_groups(dp):
                continue
            cost.check()
            groups = groups or [
                i for i in nodes for _ in range(cost.nodes[i].count // t)
            ]
            cuts = equal_cuts(layers, pp)
            by_rank = [groups[d::dp] for d in range(dp)]
            in_nodes = [groups[d * pp : (d + 1) * pp] for d in range(dp)]
            for b in known:
                name = f"tp {t}, pp {pp}, dp {dp}, micro-batches of {b}"
                n = batch // (dp * b)
                for rows in (by_rank,) if 1 in (pp, dp) else (by_rank, in_nodes):
                    chains = [[(node, t) for node in row] for row in rows]
                    pipes = (Pipe(n, b, stages_on(row, cuts)) for row in chains)
                    yield name, tuple(pipes)


def common_degrees(cost: FastCost, nodes: Sequence[int]) -> list[int]:
    """Tensor-parallel degrees that divide the GPUs of every node."""
    counts = {cost.nodes[node].count for node in nodes}
    return [
        t for t in range(1, min(counts) + 1) if all(count % t == 0 for count in counts)
    ]


def equal_cuts(layers: int, stages: int) -> list[int]:
    """Boundaries of stages as equal as can be, the first ones larger."""
    share, more = divmod(layers, stages)
    return [j * share + min(j, more) for j in range(stages + 1)]


def measured(cost: FastCost, nodes: Sequence[int], t: int, b: int) -> bool:
    """Tell whether the times of degree `t` and micro-batch `b` are known on `nodes`."""
    return cost.known(((node, t) for node in nodes), b)


def least_useful(cost: FastCost, nodes: Sequence[int]) -> int:
    """The node to leave out first: least memory, then least compute, then last."""

    def usefulness(node: int) -> tuple[int, float, int]:
        gpu = cost.table.gpu(cost.names[node])
        return cost.room[node], gpu.peak_tflops * gpu.efficiency, -node

    return min(nodes, key=usefulness)


def _reason(data: Instance, nearest: tuple[Shortage, str] | None) -> str:
    if nearest is None:
        sizes = list(data.workload.micro_batch_sizes)
        return (
            "megatron: no factorisation of any set of nodes shares the global batch "
            f"{data.workload.global_batch} equally in micro-batches of {sizes} that "
            "every node has times for"
        )
    short, name = nearest
    return f"megatron: no symmetric plan fits; the nearest ({name}) lacks {short}"
