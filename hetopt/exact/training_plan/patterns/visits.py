"""The cheapest ways for a pipeline to use one node, for every bottleneck at once.

A *visit* is what one pipeline does in one node: k GPUs in stages that hold y layers.
Only one visit a node counts: two could be merged, and a hop inside a node is
cheaper than one between nodes. For a bottleneck M every stage takes at most M, and

    least[k, y] = min of (sum of stage times) / M

over all divisions of k GPUs and y layers into stages. It is tabulated for a grid of
intervals [low, high] of M: stages may take `high`, times are divided by `low`, so a
table is never above the truth. In float32; `pattern_bound` leaves room for that.
"""

from collections import OrderedDict
from collections.abc import Callable
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from .node_kinds import Fleet, Kind

Table = npt.NDArray[np.float32]

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


class Visits(NamedTuple):
    """`least` tables by [k - 1, y, interval]: visits that go on, and that end."""

    onward: Table
    final: Table


class VisitTables:
    """Tables of all kinds of a fleet on one grid, computed when asked for."""

    def __init__(
        self, fleet: Fleet, grid: Grid, check: Callable[[], None] = lambda: None
    ) -> None:
        """`check()` is called before what takes long, and may raise."""
        self.fleet, self.grid, self._check = fleet, grid, check
        self.layers = len(fleet.weights) - 1
        self._kept: OrderedDict[tuple[int, tuple[int, ...], tuple[int, ...]], Visits]
        self._kept = OrderedDict()

    def visits(self, kind: int, rate: float, share: float) -> Visits:
        """Tables of a kind where synchronisation limits what a visit can hold.

        A stage of t GPUs holds layers of total weight <= t `rate` + `share`, and a
        whole visit of k GPUs <= k `rate` + `share`.
        """
        gpus = self.fleet.kinds[kind].gpus
        held = [self._layers_of(t * rate + share) for t in range(1, gpus + 1)]
        key = (kind, tuple(held), tuple(held))
        if key not in self._kept:
            self._kept[key] = self._table(self.fleet.kinds[kind], held)
            self._forget()
        self._kept.move_to_end(key)
        return self._kept[key]

    def _layers_of(self, weight: float) -> int:
        """The most layers whose least weight is within `weight`."""
        room = weight * (1 + 1e-9) + 1e-9
        return int(np.searchsorted(self.fleet.weights, room, side="right")) - 1

    def _forget(self) -> None:
        size = sum(v.onward.nbytes + v.final.nbytes for v in self._kept.values())
        while size > _KEPT_BYTES and len(self._kept) > 1:
            _, old = self._kept.popitem(last=False)
            size -= old.onward.nbytes + old.final.nbytes

    def _table(self, kind: Kind, held: list[int]) -> Visits:
        shape = (kind.gpus, self.layers + 1, len(self.grid.high))
        tables = Visits(
            np.full(shape, np.inf, np.float32), np.full(shape, np.inf, np.float32)
        )
        for begin in range(0, shape[2], _BLOCK):
            self._check()
            part = slice(begin, begin + _BLOCK)
            self._fill(kind, held, part, tables)
        for k in range(kind.gpus):
            tables.onward[k, held[k] + 1 :] = np.inf
            tables.final[k, held[k] + 1 :] = np.inf
        return tables

    def _fill(self, kind: Kind, held: list[int], part: slice, out: Visits) -> None:
        high, inverse = self.grid.high[part], self.grid.inverse[part]
        layers = self.layers
        inner = np.full((kind.gpus + 1, layers + 1, len(high)), np.inf, np.float32)
        inner[0, 0] = 0
        last_x = [self._longest(kind, t, held, high) for t in range(kind.gpus)]

        def priced(times: npt.NDArray[np.float64]) -> Table:
            column = times.astype(np.float32)[:, None]
            with np.errstate(invalid="ignore"):  # inf x 0 in the first interval
                return np.where(column <= high, column * inverse, np.float32(np.inf))

        stages = []
        for t in range(kind.gpus):
            run = kind.run_us[t, : last_x[t] + 1]
            onward = None if kind.out_us is None else priced(run + kind.out_us)
            final = priced(kind.last_us[t, : last_x[t] + 1])
            stages.append((priced(run + kind.within_us), onward, final))
        for k in range(1, kind.gpus + 1):
            for t in range(1, k + 1):
                within, onward, final = stages[t - 1]
                for x in range(1, last_x[t - 1] + 1):
                    before = inner[k - t, : layers + 1 - x]
                    _lower(inner[k, x:], before, within[x])
                    _lower(out.final[k - 1, x:, part], before, final[x])
                    if onward is not None:
                        _lower(out.onward[k - 1, x:, part], before, onward[x])

    def _longest(self, kind: Kind, t: int, held: list[int], high: Table) -> int:
        """The most layers that a stage of degree t + 1 can hold in the block."""
        most = min(held[t], self.layers)
        with_time = np.minimum(kind.run_us[t], kind.last_us[t])[: most + 1] <= high[-1]
        return int(np.flatnonzero(with_time)[-1])


def _lower(target: Table, before: Table, stage: Table) -> None:
    np.minimum(target, before + stage, out=target)
