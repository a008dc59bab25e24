"""The cheapest ways for a pipeline to use one node, for every bottleneck at once.

A *visit* is all that one pipeline does in one node: k GPUs in blocks that are worth
w cells (`blocks`). A hop inside a node is cheaper than one between nodes. For a
bottleneck M every stage takes at most M, and

    least[k, w] = min of (sum over blocks of S / b x their times) / M

over all divisions of k GPUs and w cells into blocks. It is tabulated for a grid of
intervals [low, high] of M: stages may take `high`, times are divided by `low`, so a
table is never above the truth. In float32; `pattern_bound` leaves room for that.

Every block pays the hop inside the node but that of the last stage that the pipeline
has there. That stage

- goes on to another node, as a whole: it pays the hop between nodes;
- is shared with blocks elsewhere (S < b), which may be next to the following stage:
  it pays the least hop inside any node;
- ends the pipeline: it has the head, and pays no hop. A block of 2 b / 3 samples or
  more is the end, others are of b / 3 at the most; without one the two largest blocks
  count as halves of the end, and others are again of b / 3 at the most. Those of b / 3
  may be as many as one likes.

Where a pipeline *leaves* a site for another one, its last stage there pays the hop
between sites, or is in both: then it holds no more than its replicas synchronise, and
so do halves of an end that lies in several sites.
"""

from collections import OrderedDict
from collections.abc import Callable
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from ..blocks import Rows, Size
from ..node_kinds import Array, Fleet, Kind, Offer, Spread
from .convolution import Table, extend

_BLOCK = 192  # bottlenecks worked on together: what fits the processor's cache
_KEPT_BYTES = 600_000_000


class Grid(NamedTuple):
    """Intervals of the bottleneck in us; `inverse` is 1 / low, 0 for the first.

    The first interval [0, smallest] stands for pipelines so fast that they could
    take the whole batch: their times are not priced, their samples are the batch.
    """

    high: Table
    inverse: Table

    @classmethod
    def between(cls, low_us: float, high_us: float, ratio: float) -> "Grid":
        """Intervals that grow by `ratio`, and the one from 0 to `low_us`."""
        # One after another: powers and logarithms differ between processors.
        edges = [low_us, low_us * ratio]
        while edges[-1] < high_us:
            edges.append(edges[-1] * ratio)
        high = np.array([low_us, *edges[1:]])
        inverse = np.array([0.0, *(1.0 / edge for edge in edges[:-1])])
        return cls((high * (1 + 1e-6)).astype(np.float32), inverse.astype(np.float32))

    def of(self, some: slice) -> "Grid":
        """Some of the intervals."""
        return Grid(self.high[some], self.inverse[some])

    def within(self, low_us: float, high_us: float) -> slice:
        """The intervals that a bottleneck from `low_us` to `high_us` may lie in."""
        if np.isinf(high_us):
            high_us = 2 * float(self.high[-1])
        first = int(np.searchsorted(self.high, low_us * (1 - 1e-6)))
        beyond = (self.inverse > 0) & (self.inverse * (high_us * (1 + 1e-6)) < 1)
        return slice(first, len(self.high) - int(beyond.sum()))


class Visits(NamedTuple):
    """`least` by [k - 1, w, interval], of visits that are no end of the pipeline,
    half of it (None where micro-batches are one sequence), all of it; that leave the
    site, and half of an end in several sites (None where there is but one).

    `claims` by [k - 1, w] is the least of what replicas are larger than they can
    synchronise, in average layers and with weights s / b.
    """

    going: Table
    half: Table | None
    ended: Table
    leaving: Table | None
    across: Table | None
    claims: Table

    @property
    def nbytes(self) -> int:
        """Memory of the tables."""
        return sum(table.nbytes for table in self if table is not None)

    def within(self, some: slice, copy: bool = False) -> "Visits":
        """Of some intervals."""

        def part(table: Table) -> Table:
            found = table[:, :, some]
            return np.ascontiguousarray(found) if copy else found

        *timed, claims = self
        tables = [None if table is None else part(table) for table in timed]
        return Visits._make([*tables, claims])


class VisitTables:
    """Tables of all kinds of a fleet on one grid a size, computed when asked for."""

    def __init__(
        self,
        fleet: Fleet,
        grids: tuple[Grid, ...],
        fill: float,
        check: Callable[[], None] = lambda: None,
    ) -> None:
        """`fill` is the part of a pipeline's stages that it takes to fill it.

        `check()` is called before what takes long, and may raise.
        """
        self.fleet, self.grids, self._fill, self._check = fleet, grids, fill, check
        self._kept: OrderedDict[tuple[int, int, bytes, float, bool], Visits]
        self._kept = OrderedDict()

    def visits(self, kind: int, size: int, spread: Spread, fills: bool) -> Visits:
        """Tables of a kind where synchronisation limits what a visit can hold.

        All visits take no time unless it `fills` the pipeline.
        """
        gpus, rate = self.fleet.kinds[kind].gpus, spread.rate
        offer, whole = self.fleet.kinds[kind].offers[size], self.fleet.sizes[size]
        held = []
        for rows in offer:
            here, shared = spread.most(rows.degree), spread.shared(rows, gpus)
            most = np.where(rows.samples == whole.sequences, here, shared)
            held.append(_no_more(rows, most))
        bridged = [_no_more(rows, spread.bridged(rows.degree)) for rows in offer]
        masks = [np.packbits(each).tobytes() for each in (*held, *bridged)]
        key = (kind, size, b"".join(masks), rate, fills)
        if key not in self._kept:
            limited, joining = (
                Offer(*(rows.of(able) for rows, able in zip(offer, some, strict=True)))
                for some in (held, map(np.logical_and, held, bridged))
            )
            self._kept[key] = self._tables(kind, size, limited, joining, rate, fills)
            self._forget()
        self._kept.move_to_end(key)
        return self._kept[key]

    def _forget(self) -> None:
        size = sum(visits.nbytes for visits in self._kept.values())
        while size > _KEPT_BYTES and len(self._kept) > 1:
            _, old = self._kept.popitem(last=False)
            size -= old.nbytes

    def _tables(
        self,
        number: int,
        size: int,
        offer: Offer,
        joining: Offer,
        rate: float,
        fills: bool,
    ) -> Visits:
        kind, counted = self.fleet.kinds[number], self.fleet.sizes[size]
        grid = self.grids[size]
        shape = (kind.gpus, counted.cells + 1, len(grid.high))
        several, sites = counted.sequences > 1, bool(self.fleet.sites)
        there_are = True, several, True, sites, several and sites
        tables = [
            np.full(shape, np.inf, np.float32) if there_is else None
            for there_is in there_are
        ]
        for begin in range(0, shape[2], _BLOCK):
            self._check()
            part = slice(begin, begin + _BLOCK)
            fill = self._fill if fills else 0.0
            block = _Block(kind, counted, offer, joining, grid, part, fill)
            for table, found in zip(tables, block.visits(), strict=True):
                if table is not None:
                    table[:, :, part] = found
        claims = _claims(kind, counted, offer, rate)
        return Visits._make([*tables, claims])


class _Block:
    """The tables of some bottlenecks; `joining` blocks are of stages in two sites."""

    def __init__(
        self,
        kind: Kind,
        size: Size,
        offer: Offer,
        joining: Offer,
        grid: Grid,
        part: slice,
        fill: float,
    ) -> None:
        self.gpus, self.size, self.fill = kind.gpus, size, fill
        self.high, self.inverse = grid.high[part], grid.inverse[part]
        last, split = offer.last, joining.last
        most = 3 * last.samples >= 2 * size.sequences
        part_of_it = 3 * split.samples < 2 * size.sequences
        self.inner = self._stages(offer.inner)
        self.out = self._stages(offer.out)
        self.shared = self._stages(offer.shared)
        self.whole = self._stages(last.of(most))
        self.halves = self._stages(last.of(~most))
        self.off, self.bridge = self._stages(offer.off), self._stages(joining.shared)
        self.split = self._stages(split.of(part_of_it))

    def _stages(self, rows: Rows) -> list[Table]:
        """By GPUs - 1, the cheapest blocks by [cells, bottleneck]."""
        tables = []
        us = rows.us
        shares = self.fill * rows.samples / self.size.sequences
        for t in range(1, self.gpus + 1):
            mine = rows.gpus == t
            priced = np.full((self.size.cells + 1, len(self.high)), np.inf, np.float32)
            if mine.any():
                self._price(priced, rows.cells[mine], us[mine], shares[mine])
            if not self.size.exact:
                priced[::-1] = np.minimum.accumulate(priced[::-1], 0)
                priced[0] = np.inf
            longest = np.flatnonzero(np.isfinite(priced).any(1))
            tables.append(priced[: int(longest[-1]) + 1 if len(longest) else 1])
        return tables

    def _price(
        self,
        priced: Table,
        cells: npt.NDArray[np.int64],
        us: npt.NDArray[np.float64],
        shares: npt.NDArray[np.float64],
    ) -> None:
        for begin in range(0, len(us), 4096):
            some = slice(begin, begin + 4096)
            time = us[some].astype(np.float32)[:, None]
            fill = (us[some] * shares[some]).astype(np.float32)[:, None]
            with np.errstate(invalid="ignore"):  # inf x 0 in the first interval
                cost = np.where(
                    time <= self.high, fill * self.inverse, np.float32(np.inf)
                )
            first = np.flatnonzero(np.diff(cells[some], prepend=-1))
            least = np.minimum.reduceat(cost, first, axis=0)
            at = cells[some][first]
            priced[at] = np.minimum(priced[at], least)

    def visits(self) -> list[Table]:
        """By [k - 1, cells, bottleneck], in the order of `Visits`."""
        inner = self._empty()
        inner[0, 0] = 0
        self._append(inner, inner, self.inner)
        going, half, ended, leaving, across = (self._empty() for _ in range(5))
        self._append(going, inner, self.out)
        self._append(leaving, inner, self.off)
        self._append(leaving, inner, self.bridge)
        self._append(ended, inner, self.whole)
        if self.size.sequences > 1:
            self._append(going, inner, self.shared)
            self._append(half, inner, self.halves)
            self._append(across, inner, self.split)
        return [table[1:] for table in (going, half, ended, leaving, across)]

    def _empty(self) -> Table:
        shape = (self.gpus + 1, self.size.cells + 1, len(self.high))
        return np.full(shape, np.inf, np.float32)

    def _append(self, out: Table, before: Table, stages: list[Table]) -> None:
        """Lower `out` by a block behind `before`."""
        for k in range(1, self.gpus + 1):
            for t in range(1, k + 1):
                if len(stages[t - 1]) > 1:
                    extend(out[k], before[k - t], stages[t - 1])


def _no_more(rows: Rows, most: Array) -> npt.NDArray[np.bool_]:
    """Which rows weigh no more than so much."""
    no_more: npt.NDArray[np.bool_] = rows.weight <= most * (1 + 1e-9) + 1e-9
    return no_more


def _claims(kind: Kind, size: Size, offer: Offer, rate: float) -> Table:
    """Least sums over a visit's blocks of S / b x what is too much for `rate`.

    A block claims no less than it would as one replica.
    """
    cells = size.cells
    least = np.full((kind.gpus, cells + 1), np.inf)
    for rows in offer:
        excess = np.maximum(0.0, rows.weight - rows.gpus * rate)
        excess *= rows.samples / size.sequences
        np.minimum.at(least, (rows.gpus - 1, rows.cells), excess)
    if not size.exact:
        least = np.minimum.accumulate(least[:, ::-1], 1)[:, ::-1]
        least[:, 0] = np.inf
    claims = np.full((kind.gpus + 1, cells + 1), np.inf)
    claims[0, 0] = 0.0
    for k in range(1, kind.gpus + 1):
        for t in range(1, k + 1):
            for w in np.flatnonzero(np.isfinite(least[t - 1, :])).tolist():
                rest = claims[k - t, : cells + 1 - w] + least[t - 1, w]
                np.minimum(claims[k, w:], rest, out=claims[k, w:])
    # Where there is no visit the claim does not matter.
    return np.where(np.isfinite(claims[1:]), claims[1:], 0.0).astype(np.float32)
