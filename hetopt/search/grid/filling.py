"""GPUs for the groups of a shape: in the order of kinds, near each other or apart."""

from collections.abc import Iterator, Sequence
from itertools import islice, permutations, product

from ..balancing import Balancer
from ..fast_cost import FastCost, Pipe, Slot
from ..layouts import in_pipelines, in_stages
from .shapes import Shape, groups_of, nodes_by_kind

_MOST_ORDERS = 24
_FEW = 256  # ways to put nodes to places, all of which are looked at
_Grid = tuple[tuple[int, ...], ...]  # the node of each group, by stage and replica


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
        cuts = self._balancer.cuts(size, n, chains, replicas)
        if cuts is None:
            return None
        starts = (0, *cuts[:-1])
        pipes = tuple(
            Pipe(
                n,
                size,
                tuple(
                    Slot(node, t, first, last)
                    for (node, _), first, last in zip(chain, starts, cuts, strict=True)
                ),
            )
            for chain in chains
        )
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
