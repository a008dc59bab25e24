"""Inside Metis's stages: DP and TP degrees, samples, layers, out of memory.

A stage starts with as much data parallelism as it has GPUs. Depth first: where a
stage lacks memory, (1) its tensor-parallel degree is doubled, and (2) with the degree
kept, its layers are cut down to what fits and the others take the rest, in proportion
to their capacity (algorithm 1, section 4.2.2).
"""

from bisect import bisect_left
from collections.abc import Iterator, Sequence
from functools import lru_cache
from heapq import heapify, heappop, heappush
from itertools import pairwise, product
from typing import NamedTuple

from .costs import Laid, LineCost, Row, Share
from .cuts import NEVER, best, proportional
from .node_groups import Group

_STEPS = 64  # partial plans of one mapping; the paper's recursion has no limit


class Shape(NamedTuple):
    """A shape is the space searched inside one mapping of stages to groups."""

    n: int
    b: int
    groups: tuple[Group, ...]


class Intra:
    """Plans inside a mapping; options of a group are kept."""

    def __init__(
        self, line: LineCost, *, layer_balancing: bool, dp_first: bool
    ) -> None:
        self.line = line
        self.layer_balancing, self.dp_first = layer_balancing, dp_first
        # lru_cache on bound methods of this object only: it dies with the object.
        self.shares = lru_cache(100_000)(self._shares)
        self.capacity = lru_cache(100_000)(self._capacity)
        self.degrees = lru_cache(100_000)(self._known_degrees)
        self._load, self._end = self._loads()
        self.nearest_mib: int | None = None  # least shortage of what did not fit
        self.looked = 0  # partial plans

    def plans(self, shape: Shape) -> Iterator[list[Laid]]:
        """Plans of one pipeline that fit."""
        if self.dp_first:
            start = self._first_degrees(shape)
            if start is None:
                return
            most = [self.line.layers] * len(start)
            yield from self._deeper(shape, start, most, [_STEPS])
            return
        options = [self.degrees(shape.b, group) for group in shape.groups]
        for degrees in product(*options):  # layers move away where memory lacks
            most = [self.line.layers] * len(degrees)
            yield from self._deeper(shape, [*degrees], most, [_STEPS], widen=False)

    # --- replicas ----------------------------------------------------------------

    def _known_degrees(self, b: int, group: Group) -> list[int]:
        """TP degrees that a group can have: 1, 2, 4, ... within its nodes."""
        size = sum(gpus for _, gpus in group)
        powers = (1 << i for i in range(size.bit_length()))
        return [t for t in powers if self.shares(b, group, t)]

    def _first_degrees(self, shape: Shape) -> list[int] | None:
        """Return the least degree of each group; above 1 where samples are too few."""
        found = []
        for group in shape.groups:
            if not (options := self.degrees(shape.b, group)):
                return None
            found.append(options[0])
        return found

    def _shares(self, b: int, group: Group, t: int) -> Row | None:
        """Replicas of degree `t`, their samples balanced; None where there are none.

        Sample by sample, to the replica that then ends first (data load balancing).
        """
        if any(gpus % t for _, gpus in group):
            return None
        if sum(gpus // t for _, gpus in group) > b:
            return None
        nodes = [node for node, gpus in group for _ in range(gpus // t)]
        samples = [1] * len(nodes)
        ready = [(self._model_us(node, t, 1), i) for i, node in enumerate(nodes)]
        heap = [(self._model_us(node, t, 2), i) for i, node in enumerate(nodes)]
        heapify(heap)
        for _ in range(b - len(nodes)):
            us, i = heappop(heap)
            if us >= NEVER:
                return None
            samples[i] += 1
            heappush(heap, (self._model_us(nodes[i], t, samples[i] + 1), i))
        if any(us >= NEVER for us, _ in ready):
            return None
        rows = zip(nodes, [t] * len(nodes), samples, strict=True)
        return Row(Share(*row) for row in rows)

    def _model_us(self, node: int, t: int, samples: int) -> int:
        """Return the time of the whole model; `NEVER` where it was not measured."""
        cost = self.line.cost
        if t > cost.nodes[node].count:
            return NEVER
        if not cost.table.usable(cost.names[node], t, samples):
            return NEVER
        return cost.prefix(node, t, samples)[0][-1] + cost.head_us(node, t, samples)

    # --- layers --------------------------------------------------------------------

    def _capacity(self, shares: Row) -> float:
        """Return the micro-batches per us of a stage that had the whole model."""
        slowest = max(self._model_us(*share) for share in set(shares))
        return 1 / max(slowest, 1)

    def _loads(self) -> tuple[list[int], int]:
        cost, load, end = self.line.cost, [0] * self.line.layers, 0
        for node in {kind: i for i, kind in enumerate(cost.kind)}.values():
            known = [
                (t, s)
                for t in range(1, cost.nodes[node].count + 1)
                for s in range(1, max(self.line.sizes, default=1) + 1)
                if self._model_us(node, t, s) < NEVER
            ]
            if known:
                sums = cost.prefix(node, *known[0])[0]
                pairs = zip(load, pairwise(sums), strict=True)
                load = [a + z - y for a, (y, z) in pairs]
                end += cost.head_us(node, *known[0])
        return load, end

    def _cuts(
        self, shape: Shape, rows: Sequence[Row], most: Sequence[int]
    ) -> list[int] | None:
        capacity = [self.capacity(row) for row in rows]
        if self.layer_balancing:
            return proportional(self._load, self._end, capacity, most)

        def tau(j: int, first: int, last: int) -> int:
            if self.line.short_mib(shape.n, len(rows), j, rows[j], first, last) > 0:
                return NEVER
            us = self.line.compute_us(rows[j], first, last)
            return us + (self.line.hop_us(rows[j], rows[j + 1]) if rows[j + 1 :] else 0)

        found = best(len(rows), self.line.layers, shape.n, tau, self.line.cost.check)
        if found is None:  # what is short is seen where layers are in proportion
            found = proportional(self._load, self._end, capacity, most)
        return found

    # --- depth first -----------------------------------------------------------------

    def _deeper(
        self,
        shape: Shape,
        degrees: list[int],
        most: list[int],
        steps: list[int],
        *,
        widen: bool = True,
    ) -> Iterator[list[Laid]]:
        """Settle the first stage that lacks memory in both ways, then the others."""
        self.line.cost.check()
        steps[0] -= 1
        self.looked += 1
        rows = self._rows(shape, degrees)
        cuts = None if rows is None else self._cuts(shape, rows, most)
        if steps[0] < 0 or rows is None or cuts is None:
            return
        j = self._out_of_memory(shape, rows, cuts)
        if j is None:
            yield [
                Laid(row, first, last)
                for row, (first, last) in zip(rows, pairwise(cuts), strict=True)
            ]
            return
        if widen:
            wider = [2 * t if i == j else t for i, t in enumerate(degrees)]
            again = [self.line.layers if i == j else m for i, m in enumerate(most)]
            yield from self._deeper(shape, wider, again, steps)
        fitting = self._most_layers(shape, rows, cuts, j)
        if fitting and fitting < cuts[j + 1] - cuts[j]:
            fewer = [fitting if i == j else m for i, m in enumerate(most)]
            yield from self._deeper(shape, degrees, fewer, steps, widen=widen)

    def _rows(self, shape: Shape, degrees: Sequence[int]) -> list[Row] | None:
        found = [
            self.shares(shape.b, group, t)
            for group, t in zip(shape.groups, degrees, strict=True)
        ]
        return None if any(row is None for row in found) else [r for r in found if r]

    def _out_of_memory(
        self, shape: Shape, rows: Sequence[Row], cuts: Sequence[int]
    ) -> int | None:
        for j, (first, last) in enumerate(pairwise(cuts)):
            short = self.line.short_mib(shape.n, len(rows), j, rows[j], first, last)
            if short > 0:
                if self.nearest_mib is None or short < self.nearest_mib:
                    self.nearest_mib = short
                return j
        return None

    def _most_layers(
        self, shape: Shape, rows: Sequence[Row], cuts: Sequence[int], j: int
    ) -> int:
        first = cuts[j]

        def short(last: int) -> bool:
            return self.line.short_mib(shape.n, len(rows), j, rows[j], first, last) > 0

        return bisect_left(range(first + 1, cuts[j + 1]), True, key=short)
