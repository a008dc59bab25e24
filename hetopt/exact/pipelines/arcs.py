"""Stages as arcs: all that one size of micro-batches allows, whatever the prices.

A stage in one node of class c uses k GPUs in replicas of d GPUs or more, of which the
slowest counts. A stage in several nodes is known by its replicas alone, each with fewer
samples than the micro-batch has. A stage keeps one micro-batch or more (1F1B), and that
says what fits.
"""

from bisect import bisect_left
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np

from ...stages import NEVER, StageTable
from ...stages.classes import Whole

Span = tuple[int, int]  # of indices of times: an interval, without its end


@dataclass(frozen=True)
class Arcs:
    """Stages of pipelines with micro-batches of `size` sequences.

    Of each stage in one node: its class, GPUs, least degree, and the most replicas.
    Times in us by [arc, first, last] where the next stage lies in the same node, or in
    another one; `fits[arc, first]` is where the longest run ends that fits, or `first`.
    Of each replica of other stages: its class, GPUs and samples, times by [run,
    replica], and `order`, which sorts them. `times` are those of all stages, in
    ascending order, 1 us where they take none.
    """

    size: int
    kind: Whole
    gpus: Whole
    degree: Whole
    replicas: Whole
    inner: Whole
    outer: Whole
    fits: Whole
    shared: Whole  # [replica, (class, GPUs, samples)]
    shared_us: Whole
    order: Whole
    times: Whole

    def begin(self, classes: int) -> Whole:
        """Return the first arc of each class, and one past the last arc."""
        found: Whole = np.searchsorted(self.kind, np.arange(classes + 1))
        return found.astype(np.int64)

    def span(self, low_us: int, high_us: int) -> Span:
        """Return the times of slowest stages that a range has.

        The slowest stage takes as long as the path's stages, or longer.
        """
        begin = int(np.searchsorted(self.times, low_us, "right")) - 1
        return max(0, begin), int(np.searchsorted(self.times, high_us, "right"))

    def range(self, span: Span) -> Span:
        """Return the least and the largest time of an interval."""
        return int(self.times[span[0]]), int(self.times[span[1] - 1])

    def edges(self, span: Span, ratio: float, known: Iterable[int] = ()) -> list[int]:
        """Return edges of intervals: those that are known, and others by a ratio."""
        begin, end = span
        found = sorted({begin, *(x for x in known if begin < x < end)})
        while found[-1] < end:
            most = int(self.times[found[-1]] * ratio)
            on = int(np.searchsorted(self.times, most, "right"))
            found.append(min(end, max(found[-1] + 1, on)))
        return found

    def cuts(self, span: Span, count: int) -> list[int]:
        """Return edges within an interval that divide it evenly."""
        (begin, end), (low, high) = span, self.range(span)
        even = [low + (high - low) * i // count for i in range(1, count)]
        inner = {*np.searchsorted(self.times, even).tolist(), (begin + end) // 2}
        return sorted(x for x in inner if begin < x < end)


def arcs(table: StageTable, size: int) -> Arcs:
    """Return the stages of micro-batches of a size."""
    kinds = range(len(table.classes))
    rows = [row for c in kinds for row in _in_a_node(table, c, size)]
    runs, layers = table.runs, table.layers
    shape = (len(rows), layers, layers + 1)
    us = np.full((2, *shape), NEVER, np.int64)
    first, last = np.nonzero(runs.number[:layers] >= 0)
    for each, (*_, found) in enumerate(rows):
        us[:, each][..., first, last] = found[..., runs.number[first, last]]
    inner, outer = us
    fits = np.broadcast_to(np.arange(layers), shape[:2]).copy()
    able = inner < NEVER
    longest = layers - able[..., ::-1].argmax(-1)
    fits[able.any(-1)] = longest[able.any(-1)]
    columns = np.array([row[:4] for row in rows], np.int64).reshape(-1, 4)
    kind, gpus, degree, replicas = columns.T
    shared, shared_us = _shared(table, size)
    order = np.argsort(shared_us, axis=1, kind="stable").astype(np.int64)
    every = (x[x < NEVER] for x in (us, shared_us))
    return Arcs(
        *(size, kind, gpus, degree, replicas),
        *(inner, outer, fits, shared, shared_us, order),
        np.unique(np.maximum(np.concatenate([*every]), 1)),
    )


_Row = tuple[int, int, int, int, Whole]  # times by [side, run]


def _handed_on(table: StageTable, us: Whole, transfer_us: Whole) -> Whole:
    """Add the transfer of a replica's samples, but where the pipeline ends."""
    paid = np.where(table.runs.ends, 0, transfer_us[: us.shape[1], None])
    found: Whole = np.minimum(us + paid, NEVER)
    return found


def _in_a_node(table: StageTable, number: int, size: int) -> list[_Row]:
    """Return stages in one node: class, GPUs, degree, replicas; times by side."""
    each = table.classes[number]
    us = table.replica_us(number)[:, : size + 1]
    sides = [_handed_on(table, us, hop) for hop in (each.inner_us, each.outer_us)]
    rows: dict[tuple[int, int], _Row] = {}
    for d in range(each.gpus, 0, -1):
        if size == 1:
            rows[d, d] = (number, d, d, 1, np.stack([x[d, 1] for x in sides]))
            continue
        found = np.stack([_slowest(side, d) for side in sides])
        for k in range(d, each.gpus + 1):
            rows[k, d] = (number, k, d, min(size, k // d), found[:, k])
    return [
        row
        for (k, d), row in sorted(rows.items())
        if (row[4][0] < NEVER).any()
        and not any(
            other in rows and _no_worse(rows[other], row)
            for other in ((k, d + 1), (k - 1, d))
        )
    ]


def _slowest(us: Whole, degree: int) -> Whole:
    """Return the least time of the slowest replica, by [GPUs at most, run].

    `us` is by [degree, samples, run]; all samples are shared among replicas of
    `degree` GPUs or more.
    """
    sides, samples, runs = us.shape
    gpus, most = sides - 1, samples - 1
    best = np.full((gpus + 1, most + 1, runs), NEVER, np.int64)
    best[:, 0] = 0
    for k in range(degree, gpus + 1):
        best[k] = best[k - 1]
        for t in range(degree, k + 1):
            for s in range(1, most + 1):
                rest = np.maximum(best[k - t, : most + 1 - s], us[t, s, None])
                np.minimum(best[k, s:], rest, out=best[k, s:])
    found: Whole = best[:, most]
    return found


def _no_worse(one: _Row, other: _Row) -> bool:
    """Tell whether a stage can stand for another one of more GPUs or less degree.

    It may then hold no fewer replicas, and not be slower anywhere.
    """
    return one[3] >= other[3] and bool((one[4] <= other[4]).all())


def exits_us(table: StageTable, each: Arcs) -> Whole:
    """Return times of replicas of stages in several nodes: [exit, run, replica].

    Exit 0 is to a stage in no node of theirs; exit 1 + c to one in one of their nodes,
    of class c. The last stage has exit 0 alone.
    """
    away = np.min([c.outer_us for c in table.classes], axis=0)
    found = []
    for number, transfer_us in enumerate([away, *(c.inner_us for c in table.classes)]):
        times = []
        for kind in range(len(table.classes)):
            us = table.replica_us(kind)[:, : each.size + 1]
            us = _handed_on(table, us, transfer_us)
            if number:
                us[..., table.runs.ends] = NEVER
            mine = each.shared[each.shared[:, 0] == kind]
            times.append(us[mine[:, 1], mine[:, 2]])
        found.append(np.concatenate(times))
    return np.ascontiguousarray(np.moveaxis(np.array(found), 1, 2))


def _shared(table: StageTable, size: int) -> tuple[Whole, Whole]:
    """Return replicas of stages in several nodes, and their times."""
    items, times = [], list[Whole]()
    for number, each in enumerate(table.classes):
        own = table.replica_us(number)[:, : size + 1]
        us = _handed_on(table, own, each.least_us)
        for t in range(1, each.gpus + 1):
            for s in range(1, size):
                if (us[t, s] < NEVER).any():
                    items.append((number, t, s))
                    times.append(us[t, s])
    found = np.zeros((len(table.runs), 0), np.int64)
    if times:
        found = np.ascontiguousarray(np.array(times).T)
    return np.array(items, np.int64).reshape(-1, 3), found


def least_cover(us: Whole, times: Sequence[int]) -> int | None:
    """Return the least of ascending `times` in which stages can cover all layers.

    By bisection. `us` are the least times of stages, by [first, last]; None where the
    longest time does not do.
    """

    def covers(high: int) -> bool:
        reached = np.zeros(us.shape[1], np.bool_)
        reached[0] = True
        for first in range(us.shape[1] - 1):
            if reached[first]:
                reached |= us[first] <= high
        return bool(reached[-1])

    if not times or not covers(times[-1]):
        return None
    return times[bisect_left(times, True, key=covers)]
