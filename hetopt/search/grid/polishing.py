"""Local search among grids of a shape: groups change places, layers change hands."""

from itertools import pairwise
from random import Random
from typing import NamedTuple

from ..fast_cost import FastCost, Pipe, Slot
from .shapes import Shape, groups_of

_Nodes = tuple[tuple[int, ...], ...]  # the node of each group, by pipeline and stage


class Grid(NamedTuple):
    """The nodes of all groups, and where stages end."""

    nodes: _Nodes
    cuts: tuple[int, ...]


class Polishing:
    """Walks from one grid of a shape to better ones."""

    def __init__(
        self, cost: FastCost, shape: Shape, pipes: tuple[Pipe, ...], random: Random
    ) -> None:
        """Start from pipelines that fit and are cut alike."""
        self._cost, self._shape, self._random = cost, shape, random
        self.grid = Grid(
            tuple(tuple(slot.node for slot in pipe.slots) for pipe in pipes),
            tuple(slot.last for slot in pipes[0].slots),
        )
        self.value = cost.iteration_us(pipes)
        self._total = self._sum(pipes)
        self._free = groups_of(cost, shape.t, shape.size)
        for row in self.grid.nodes:
            for node in row:
                self._free[node] -= 1

    def step(self) -> bool:
        """Try one change; whether it made the iteration shorter.

        One that leaves it as long is taken where all pipelines together get no longer.
        """
        trial = self._changed()
        if trial is None:
            return False
        pipes = self.pipes(trial)
        fits = self._cost.fits
        if not all(fits(pipe, self._shape.replicas) for pipe in set(pipes)):
            return False
        value, total = self._cost.iteration_us(pipes), self._sum(pipes)
        if (value, total) > (self.value, self._total):
            return False
        shorter = value < self.value
        self._take(trial)
        self.value, self._total = value, total
        return shorter

    def pipes(self, grid: Grid | None = None) -> tuple[Pipe, ...]:
        """The pipelines of a grid, by default of the one that was reached."""
        nodes, cuts = grid or self.grid
        spans = list(pairwise((0, *cuts)))
        t, size, n = self._shape.t, self._shape.size, self._shape.micro_batches
        return tuple(
            Pipe(
                n,
                size,
                tuple(
                    Slot(node, t, *span) for node, span in zip(row, spans, strict=True)
                ),
            )
            for row in nodes
        )

    def _sum(self, pipes: tuple[Pipe, ...]) -> int:
        timing = self._cost.timing
        return sum(sum(timing(pipe.size, pipe.slots).taus) for pipe in pipes)

    def _take(self, grid: Grid) -> None:
        for row, other in zip(self.grid.nodes, grid.nodes, strict=True):
            for old, new in zip(row, other, strict=True):
                self._free[old] += 1
                self._free[new] -= 1
        self.grid = grid

    # --- changes -----------------------------------------------------------------

    def _changed(self) -> Grid | None:
        draw = self._random.random()
        if draw < 0.35:
            return self._with_cuts()
        if draw < 0.85:
            return self._with_groups_swapped()
        if draw < 0.93:
            return self._with_stages_swapped()
        return self._with_a_free_group()

    def _with_cuts(self) -> Grid | None:
        """A stage hands a layer to another; those between are shifted."""
        cuts = list(self.grid.cuts)
        if len(cuts) < 2:
            return None
        one, two = self._random.sample(range(len(cuts)), 2)
        step = 1 if one > two else -1
        for k in range(min(one, two), max(one, two)):
            cuts[k] += step
        if any(a >= b for a, b in pairwise((0, *cuts))):
            return None
        return self.grid._replace(cuts=tuple(cuts))

    def _place(self) -> tuple[int, int]:
        rows = self.grid.nodes
        return self._random.randrange(len(rows)), self._random.randrange(len(rows[0]))

    def _with_groups_swapped(self) -> Grid | None:
        (i, j), (k, m) = self._place(), self._place()
        rows = [list(row) for row in self.grid.nodes]
        if rows[i][j] == rows[k][m]:
            return None
        rows[i][j], rows[k][m] = rows[k][m], rows[i][j]
        return self.grid._replace(nodes=tuple(map(tuple, rows)))

    def _with_stages_swapped(self) -> Grid | None:
        stages = len(self.grid.cuts)
        if stages < 2:
            return None
        one, two = self._random.sample(range(stages), 2)
        rows = [list(row) for row in self.grid.nodes]
        for row in rows:
            row[one], row[two] = row[two], row[one]
        return self.grid._replace(nodes=tuple(map(tuple, rows)))

    def _with_a_free_group(self) -> Grid | None:
        free = [node for node, count in enumerate(self._free) if count]
        if not free:
            return None
        i, j = self._place()
        rows = [list(row) for row in self.grid.nodes]
        rows[i][j] = self._random.choice(free)
        return self.grid._replace(nodes=tuple(map(tuple, rows)))
