"""What of a stage can lie in one node: GPUs, samples, and some run of layers.

A micro-batch of b sequences is shared by the replicas of a stage. Those in one node
are a *block*: S samples on k GPUs. Let every layer have a *worth* a_l, and give a
block of the run R the worth a(R) S / b: over all blocks of a pipeline they sum to the
worth of all layers, whatever the stages. A stage takes as long as its slowest replica,
and so at least what its blocks take on average, weighted with S / b. Blocks are
therefore priced by themselves, at the best division of their samples and GPUs.

Worths are counted in cells. Where layers are equal and few enough a cell is a layer's
b-th part; elsewhere what is not a whole number of cells is rounded up, which only
helps plans. Of all runs of equal worth the least time and the least size count.
"""

from bisect import bisect_left
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from ...costs import CostTable

Array = npt.NDArray[np.float64]
Whole = npt.NDArray[np.int64]

MOST_CELLS = 352
_NEAR = 0.0005  # of all layers, that runs gain: not worth a finer grid


class Rows(NamedTuple):
    """Possible blocks, in the order of GPUs and cells; times in us.

    `weight` is the least size of the layers, in average layers, and `degree` the least
    that a replica of the block may have: one row for each that makes it slower.
    """

    gpus: Whole
    cells: Whole
    samples: Whole
    degree: Whole
    us: Array
    weight: Array

    def of(self, chosen: npt.NDArray[np.bool_] | Whole) -> "Rows":
        """Some of the rows."""
        columns: Any = (column[chosen] for column in self)
        return Rows(*columns)


_WHOLE, _REAL = np.zeros(0, np.int64), np.zeros(0)
_NONE = Rows(_WHOLE, _WHOLE, _WHOLE, _WHOLE, _REAL, _REAL)


class Replicas(NamedTuple):
    """Least times in us by [degree, samples, worth], and sizes by worth.

    Infinite where no run of such a worth fits. `largest` is the size of the largest
    run that fits, by degree.
    """

    us: Array
    weight: Array
    largest: Array


@dataclass(frozen=True)
class Size:
    """Micro-batches of so many sequences.

    `worths` are of the layers, in parts of which a cell is `1 / finer`. `exact` says
    that every share of every run is a whole number of cells; otherwise it is rounded
    up, and is one at the least.
    """

    sequences: int
    worths: tuple[int, ...]
    finer: int
    exact: bool

    @property
    def cells(self) -> int:
        """What all layers are worth."""
        return sum(self.worths) * self.finer

    def of_runs(self, worths: Whole, samples: Whole) -> Whole:
        """Cells of runs of these worths in blocks of so many samples."""
        cells: Whole = -(-worths * samples * self.finer // self.sequences)
        return np.maximum(cells, 1)


def sizes(table: CostTable, nodes: Sequence[str], times: Sequence[int]) -> list[Size]:
    """How worth is counted in micro-batches of each of the sizes."""
    worths = _worths(table, nodes)
    most = max(MOST_CELLS, len(table.cluster.nodes), max_gpus(table))
    found = []
    for b in sorted(set(times)):
        exact = sum(worths) * b <= most and min(worths) > 0
        finer = b if exact else max(1, most // sum(worths))
        found.append(Size(b, worths, finer, exact))
    return found


def max_gpus(table: CostTable) -> int:
    """GPUs of the largest node."""
    return max(node.count for node in table.cluster.nodes)


def _worths(table: CostTable, nodes: Sequence[str]) -> tuple[int, ...]:
    """Whole numbers in proportion to what layers take; any of them will do.

    They are the steps of a rounded sum, so that a run of layers is off by no more than
    a layer is; what runs may gain by that at the most decides how fine the sum is.
    """
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
    before = _behind(share / share.sum())
    best: tuple[float, tuple[int, ...]] | None = None
    for total in range(min(table.layers, MOST_CELLS), MOST_CELLS + 1):
        steps = np.round(before * total)
        off = steps / total - before
        gain = float(off.max() - off.min())
        # A finer grid has its price.
        if best is None or gain < 0.8 * best[0] - _NEAR:
            best = (gain, tuple(np.diff(steps).astype(int).tolist()))
    assert best is not None
    return best[1]


def _layer_times(table: CostTable, node: str) -> tuple[int, ...]:
    for t in range(1, table.cluster.node[node].count + 1):
        for s in range(1, max(table.workload.micro_batch_sizes) + 1):
            if table.usable(node, t, s):
                return table.layer_us(node, t, s)
    return ()


def replicas(
    tables: Sequence[CostTable],
    node: str,
    worths: Sequence[int],
    most: int,
    last: bool,
) -> Replicas:
    """All replicas on a node, of up to `most` samples, of runs inside or at the end.

    `tables` are of the rules by which a stage may recompute.
    """
    table, whole = tables[0], sum(worths)
    gpus = table.cluster.node[node].count
    found = Replicas(
        np.full((gpus + 1, most + 1, whole + 1), np.inf),
        np.full(whole + 1, np.inf),
        np.zeros(gpus + 1),
    )
    for t in range(1, gpus + 1):
        for s in range(1, most + 1):
            if table.usable(node, t, s):
                for each in tables:
                    _lower(each, node, t, s, worths, last, found)
    return found


def blocks(found: Replicas, size: Size, hop_us: Array) -> Rows:
    """All blocks of the replicas, each with its hop, by samples from 0 on."""
    b = size.sequences
    us = found.us[:, : b + 1] + hop_us[:, None]
    degrees = np.flatnonzero(np.isfinite(us).any((1, 2))).tolist()
    best, rows = np.full_like(us, np.inf), [_NONE]
    for least in reversed(degrees):
        now = _slowest(us, [t for t in degrees if t >= least])
        better = np.nonzero(now < best)
        rows.append(_rows(now, better, size, found.weight, least))
        best = np.minimum(best, now)
    return joined(rows)


def joined(rows: Sequence[Rows]) -> Rows:
    """All of the rows, in their order."""
    found = Rows(*(np.concatenate(columns) for columns in zip(*rows, strict=True)))
    return found.of(np.lexsort((found.cells, found.gpus)))


def _slowest(us: Array, degrees: Sequence[int]) -> Array:
    """Least time of the slowest replica of a block, by [GPUs, samples, worth]."""
    best = np.full_like(us, np.inf)
    best[0, 0] = 0.0
    gpus, samples = us.shape[0] - 1, us.shape[1] - 1
    for k in range(1, gpus + 1):
        for t in (t for t in degrees if t <= k):
            for s in range(1, samples + 1):
                before = best[k - t, : samples + 1 - s]
                found = np.maximum(before, us[t, s])
                np.minimum(best[k, s:], found, out=best[k, s:])
    best[0, 0] = np.inf
    return best


def _rows(
    us: Array, where: tuple[Whole, ...], size: Size, weight: Array, degree: int
) -> Rows:
    """Of blocks of some GPUs, samples and worths: one row a number of cells."""
    gpus, samples, worths = where
    cells = size.of_runs(worths, samples)
    order = np.lexsort((cells, samples, gpus))
    keys = np.stack([gpus, samples, cells])[:, order]
    new = np.any(np.diff(keys, prepend=-1), axis=0)
    first = np.flatnonzero(new)
    return Rows(
        keys[0, first],
        keys[2, first],
        keys[1, first],
        np.full(len(first), degree),
        np.minimum.reduceat(us[where][order], first),
        np.minimum.reduceat(weight[worths][order], first),
    )


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
    worths: Sequence[int],
    last: bool,
    found: Replicas,
) -> None:
    """Lower what runs of each worth take and weigh, by those that fit."""
    times = _behind(table.layer_us(node, t, s))
    before = _behind(worths).astype(np.int64)
    weights = _behind(sizes_of_layers(table))
    head = float(table.head_us(node, t, s)) if last else 0.0
    for first, end in _longest(table, node, t, s, last):
        stop = np.array([table.layers] if last else range(first + 1, end + 1))
        worth = before[stop] - before[first]
        np.minimum.at(found.us[t, s], worth, times[stop] - times[first] + head)
        sizes_ = weights[stop] - weights[first]
        np.minimum.at(found.weight, worth, sizes_)
        found.largest[t] = max(found.largest[t], float(sizes_.max()))


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
    model, sizes_ = table.model, sizes_of_layers(table).tolist()
    sorts = zip(model.active_parameters, model.kinds, sizes_, strict=True)
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
