"""What a replica of a stage can be: so many GPUs, so many samples, some run of layers.

A micro-batch of b sequences is shared by the replicas of a stage, s each. Let every
layer have a *worth* a_l, and give a replica of the run R the worth a(R) s / b: over
all replicas of a pipeline they sum to the worth of all layers, whatever the stages. A
stage takes as long as its slowest replica, and so at least what its replicas take on
average, weighted with s / b. Replicas are therefore priced by themselves.

Worths are counted in cells. Where layers are equal and few enough a cell is a layer's
b-th part; elsewhere what is not a whole number of cells is rounded up, which only
helps plans. Of all runs of equal worth the least time and the least size count.
"""

from bisect import bisect_left
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from ....costs import CostTable

Array = npt.NDArray[np.float64]
Whole = npt.NDArray[np.int64]

MOST_CELLS = 352
_NEAR = 0.004  # worths: as good as in proportion
_TOTALS = 128  # of worths of unequal layers that are looked at


class Rows(NamedTuple):
    """Possible replicas, in the order of degree and cells; times in us.

    `weight` is the least size of the layers, in average layers.
    """

    degree: Whole
    cells: Whole
    samples: Whole
    us: Array
    weight: Array

    def of(self, chosen: npt.NDArray[np.bool_] | Whole) -> "Rows":
        """Some of the rows."""
        return Rows(
            self.degree[chosen],
            self.cells[chosen],
            self.samples[chosen],
            self.us[chosen],
            self.weight[chosen],
        )


@dataclass(frozen=True)
class Size:
    """Micro-batches of so many sequences.

    `worths` are of the layers, in parts of which a cell is `1 / finer`. `exact` says
    that every share of every run is a whole number of cells.
    """

    sequences: int
    worths: tuple[int, ...]
    finer: int
    exact: bool

    @property
    def cells(self) -> int:
        """What all layers are worth."""
        return sum(self.worths) * self.finer

    def of_runs(self, worths: Whole, samples: int) -> Whole:
        """Cells of runs of these worths in replicas of so many samples."""
        return -(-worths * samples * self.finer // self.sequences)


def sizes(table: CostTable, nodes: Sequence[str], times: Sequence[int]) -> list[Size]:
    """How worth is counted in micro-batches of each of the sizes."""
    worths = _worths(table, nodes)
    most = max(MOST_CELLS, len(table.cluster.nodes), max_gpus(table))
    found = []
    for b in sorted(set(times)):
        exact = sum(worths) * b <= most
        finer = b if exact else max(1, most // sum(worths))
        found.append(Size(b, worths, finer, exact))
    return found


def max_gpus(table: CostTable) -> int:
    """GPUs of the largest node."""
    return max(node.count for node in table.cluster.nodes)


def _worths(table: CostTable, nodes: Sequence[str]) -> tuple[int, ...]:
    """Whole numbers in proportion to what layers take; any of them will do."""
    if table.even and len(set(table.model.active_parameters)) == 1:
        equal = [_layer_times(table, node) for node in nodes]
        if all(len(set(times)) <= 1 for times in equal):
            return (1,) * table.layers
    share = np.zeros(table.layers)
    for node in nodes:
        times = np.array(_layer_times(table, node) or [0], dtype=float)
        if times.sum() > 0:
            share += times / times.sum()
    if not share.any():
        return (1,) * table.layers
    share /= share.sum()
    best: tuple[float, tuple[int, ...]] | None = None
    for total in range(table.layers, max(_TOTALS, 2 * table.layers)):
        worths = np.maximum(1, np.round(share * total)).astype(int)
        wrong = float(np.abs(worths / worths.sum() - share).sum())
        # A finer grid has its price.
        if best is None or wrong < 0.8 * best[0] - _NEAR:
            best = (wrong, tuple(worths.tolist()))
    assert best is not None
    return best[1]


def _layer_times(table: CostTable, node: str) -> tuple[int, ...]:
    for t in range(1, table.cluster.node[node].count + 1):
        for s in range(1, max(table.workload.micro_batch_sizes) + 1):
            if table.usable(node, t, s):
                return table.layer_us(node, t, s)
    return ()


def rows(tables: Sequence[CostTable], node: str, size: Size, *, last: bool) -> Rows:
    """All replicas on a node of runs in the middle of a pipeline, or at its end.

    `tables` are of the rules by which a stage may recompute.
    """
    table = tables[0]
    found = []
    for t in range(1, table.cluster.node[node].count + 1):
        for s in range(1, size.sequences + 1):
            if not table.usable(node, t, s):
                continue
            us = np.full(size.cells + 1, np.inf)
            weight = np.full(size.cells + 1, np.inf)
            for each in tables:
                _lower(each, node, t, s, size, last, us, weight)
            cells = np.flatnonzero(np.isfinite(us))
            columns = (np.full_like(cells, t), cells, np.full_like(cells, s))
            found.append(Rows(*columns, us[cells], weight[cells]))
    if not found:
        empty = np.zeros(0, np.int64)
        return Rows(empty, empty, empty, empty.astype(float), empty.astype(float))
    joined = Rows(*(np.concatenate(columns) for columns in zip(*found, strict=True)))
    order = np.lexsort((joined.cells, joined.degree))
    return joined.of(order)


def sizes_of_layers(table: CostTable) -> Array:
    """What is synchronised of each layer as one, in average layers."""
    exchanged = table.exchanged
    routed = table.divided(exchanged)
    own = [p - r for p, r in zip(exchanged.layers, routed, strict=True)]
    average = Fraction(sum(own), len(own))
    return np.array(own) / float(average or 1)


def _lower(
    table: CostTable,
    node: str,
    t: int,
    s: int,
    size: Size,
    last: bool,
    us: Array,
    weight: Array,
) -> None:
    """Lower what runs of each number of cells take and weigh, by those that fit."""
    times = _behind(table.layer_us(node, t, s))
    worths = _behind(size.worths).astype(np.int64)
    weights = _behind(sizes_of_layers(table))
    head = table.head_us(node, t, s) if last else 0
    for first, end in _longest(table, node, t, s, last):
        ends = [table.layers] if last else range(first + 1, end + 1)
        stop = np.array(ends)
        cells = size.of_runs(worths[stop] - worths[first], s)
        np.minimum.at(us, cells, times[stop] - times[first] + head)
        np.minimum.at(weight, cells, weights[stop] - weights[first])


def _behind(values: Sequence[float] | Array) -> Array:
    return np.concatenate([[0], np.cumsum(values)])


def _longest(
    table: CostTable, node: str, t: int, s: int, last: bool
) -> Iterator[tuple[int, int]]:
    """First layers, and one past the last layer of the longest run that fits."""
    layers = table.layers
    if last:  # a run that fits has shorter ones inside it, which fit as well
        most = _most(
            layers, lambda x: _fits(table, range(layers - x, layers), node, t, s, last)
        )
        yield from ((layers - x, layers) for x in range(1, most + 1))
        return
    if _alike(table):
        most = _most(layers, lambda x: _fits(table, range(x), node, t, s, last))
        if most:
            yield 0, most
        return
    end = 0
    for first in range(layers):
        end = max(end, first)
        while end < layers and _fits(table, range(first, end + 1), node, t, s, last):
            end += 1
        if end > first:
            yield first, end


def _alike(table: CostTable) -> bool:
    sorts = zip(table.model.active_parameters, table.model.kinds, strict=True)
    return table.even and len(set(sorts)) == 1 and not table.profile


def _most(layers: int, fits: Callable[[int], bool]) -> int:
    return bisect_left(range(1, layers + 1), True, key=lambda x: not fits(x))


def _fits(table: CostTable, span: range, node: str, t: int, s: int, last: bool) -> bool:
    """Whether a run fits at its best: with one micro-batch in flight."""
    stages, j = 3, 1  # in the middle of a pipeline
    if last:
        stages = 1 if len(span) == table.layers else 2
        j = stages - 1
    parts = table.stage_mib(node, span, t, s, 1, stages, j)
    return sum(parts.values()) <= table.memory_mib(node)
