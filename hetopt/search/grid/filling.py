"""Shapes of grids, and GPUs for their groups: in the order of kinds, near or apart."""

from collections.abc import Iterator, Sequence
from itertools import islice, permutations, product
from typing import NamedTuple

from ...schema.targets import Rule
from ..balancing import Balancer
from ..fast_cost import FastCost, Pipe
from ..layouts import in_pipelines, in_stages

_MOST_ORDERS = 24
_FEW = 256  # ways to put nodes to places, all of which are looked at
_Grid = tuple[tuple[int, ...], ...]  # the node of each group, by stage and replica


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


class Filling:
    """Plans of shapes for one instance under one setting."""

    def __init__(self, cost: FastCost, balancer: Balancer) -> None:
        """Plans timed, weighed and cut by these."""
        self._cost, self._balancer = cost, balancer

    def plans(self, shape: Shape) -> Iterator[tuple[Pipe, ...]]:
        """Plans of the shape that fit, each once."""
        seen: set[_Grid] = set()
        for grid in self._grids(shape):
            if grid in seen:
                continue
            seen.add(grid)
            if (pipes := self.cut(shape, grid)) is not None:
                yield pipes

    def cut(self, shape: Shape, grid: _Grid) -> tuple[Pipe, ...] | None:
        """The pipelines on a grid of nodes with the best common cut; None: no fit."""
        t, replicas, _, size, n = shape[:5]
        chains = [tuple((node, t) for node in row) for row in zip(*grid, strict=True)]
        slots = self._balancer.alike(size, n, chains, replicas)
        if slots is None:
            return None
        pipes = tuple(Pipe(n, size, row) for row in slots)
        fits = self._cost.fits
        return pipes if all(fits(pipe, replicas) for pipe in set(pipes)) else None

    # --- grids -------------------------------------------------------------------

    def _grids(self, shape: Shape) -> Iterator[_Grid]:
        kinds = nodes_by_kind(self._cost, shape.t, shape.size)
        places = shape.replicas * shape.stages
        nodes = sorted({node for several in kinds for node in several})
        if len(nodes) ** places <= _FEW:
            yield from self._all(shape, nodes)
            return
        for order in islice(permutations(kinds), _MOST_ORDERS):
            for groups in self._chosen(shape, order):
                yield tuple(in_stages(groups, shape.replicas))
                yield tuple(in_pipelines(groups, shape.replicas))

    def _all(self, shape: Shape, nodes: list[int]) -> Iterator[_Grid]:
        room = groups_of(self._cost, shape.t, shape.size)
        d = shape.replicas
        for flat in product(nodes, repeat=d * shape.stages):
            if all(flat.count(node) <= room[node] for node in nodes):
                yield tuple(
                    tuple(flat[j * d : (j + 1) * d]) for j in range(shape.stages)
                )

    def _chosen(
        self, shape: Shape, order: Sequence[list[int]]
    ) -> Iterator[list[list[int]]]:
        """Groups by kind, in this order: as they come, or in whole stages of a kind."""
        wanted = shape.replicas * shape.stages
        for whole in (shape.replicas, 1):
            room = [len(nodes) // whole * whole for nodes in order]
            if sum(room) < wanted:
                continue
            spare = sum(room) - wanted
            taken = [*room]
            # What is left over stays idle: of the slowest kinds first, or the smallest.
            for k in sorted(
                range(len(order)), key=lambda k: self._worth(shape, order[k][0])
            ):
                less = min(spare, taken[k])
                taken[k], spare = taken[k] - less, spare - less
            yield [nodes[:count] for nodes, count in zip(order, taken, strict=True)]

    def _worth(self, shape: Shape, node: int) -> tuple[float, int]:
        time = self._cost.prefix(node, shape.t, shape.size)[0][-1]
        return -time, self._cost.room[node]
