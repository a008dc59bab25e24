"""Iteration times are refuted by counts of GPUs, in a tree of boxes.

A box is a range of the synchronisation time, of the replicas that a layer has at the
least, and of the number of pipelines: what rows of stages in whole GPUs are looked at
for (`bound`). Nothing is gained by finer boxes where all pipelines are single ones of
micro-batches of one sequence, which synchronise nothing.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from math import floor, inf

from pydantic import ValidationError

from ....solving import certificates
from ....solving.certificates import TrainingCertificate
from ...pipelines.bound import Counted, PipelineBound
from ...pipelines.boxes import Box, Descent, Division, Split
from ...pipelines.schedule import Schedule
from .bound import SURE, CountBound, Range, Synchronising, prepared

# Of the synchronisation time that plans may have: ranges before the number of pipelines
# is divided, those after, and those of single pipelines.
_COARSE, _FINER, _FINEST = 1 / 8, 1 / 1000, 1 / 100_000
# Of the time, what stages synchronise where backward passes may hide it: halves, and
# then so many steps in each.
_HALVES, _STEPS = 5, 4


@dataclass(frozen=True)
class _Division(Division):
    """How boxes are divided where GPUs are counted; `synchronises` if that takes time.

    Boxes have ranges of it if `priced`; else each pipeline has its own.
    """

    synchronises: bool = True
    priced: bool = True

    def split(self, box: Box, left_us: int) -> Split | None:
        """Return the next division of a box; None where it is too narrow."""
        single = box.count_high == 1
        if single and box.size_high > box.size_low and self.sizes[box.size_low] == 1:
            return self._by_size(box)  # nothing is synchronised in that of one
        if box.sync_high_us is None and (self.priced or not self.synchronises):
            return self._beyond(box)
        if box.count_low == 1 and not single:
            return self._by_count(box)
        width = self._width(box) or 0.0
        if single:
            alone = self.sizes[box.size_high] == 1  # nothing is synchronised
            return None if alone or width <= _FINEST else self._by_sync(box)
        several = box.replicas_high > box.replicas_low
        wide = width > (_COARSE if several else _FINER)
        if wide and (split := self._by_sync(box)):
            return split
        return self._by_replicas(box) if several else None

    def _beyond(self, box: Box) -> Split | None:
        """Divide a range without an end: at length there is no time left."""
        if not (at := 2 * box.sync_low_us):
            return None
        return Split("sync", at, box.part(sync_high_us=at), box.part(sync_low_us=at))


class CountedTree:
    """Refutes iteration times of one instance, and keeps the boxes that it needed."""

    def __init__(
        self,
        rows: CountBound,
        most_us: int,
        least_us: int,
        check: Callable[[], None] = lambda: None,
        *,
        alone_us: int = 0,
        levelled: bool = False,
    ) -> None:
        """Prepare for times between `least_us` and `most_us`.

        `check()` is called before what takes long, and may raise. A plan of one
        pipeline, whose micro-batches have one sequence, takes `alone_us` or more. The
        `rows` are of another instance, with fewer kinds of nodes, if `levelled`.
        """
        self.alone_us, self.levelled = alone_us, levelled
        table, costs = rows.table, rows.table.instance.workload.costs
        self._pipeline_factor, self._sync_factor = table.factors
        self._overhead_us = float(costs.iteration_overhead_us)
        longest = max(1.0, most_us - self._overhead_us) / float(self._pipeline_factor)
        self.rows = rows.within(longest, check)
        #: Whether boxes have ranges of synchronisation; or each pipeline its own.
        self.priced = costs.sync_overlap == "none" and self._sync_factor > 0
        self._hides = costs.sync_overlap != "none" and costs.interleave == 1
        self.most_sync_us = 0
        if self._sync_factor:
            self.most_sync_us = floor((most_us - least_us) / self._sync_factor) + 1
        self.division = _Division(
            *(Schedule(), self.most_sync_us, table.sizes, 0, table.batch),
            synchronises=self._sync_factor > 0,
            priced=self.priced,
        )
        self.first = self._first()
        self.boxes = list(self.first)

    def _first(self) -> list[Box]:
        """Return boxes that cover all plans."""
        table = self.rows.table
        most = max(1, min(int(table.gpus.sum()), table.batch))
        edges: list[int | None] = [0, self.most_sync_us, None]
        return [
            Box(low or 0, high, 1, most, 1, most, 0, len(table.sizes) - 1)
            for low, high in pairwise(edges if self.priced else [0, None])
        ]

    @property
    def few(self) -> bool:
        """Whether numbers of GPUs are so few that they take less long than prices."""
        return self.rows.few

    def refute(self, time_us: int) -> "CountedRefutation":
        """Start refuting that any plan has an iteration of at most `time_us`."""
        return CountedRefutation(self, time_us, self.boxes)

    # -- one box --------------------------------------------------------------------

    def settled(self, box: Box, time_us: int) -> bool:
        """Tell whether no plan in the box takes `time_us` or less."""
        box.laid, box.counted = False, None
        left = self._left_us(box, time_us)
        single, smallest = box.count_high == 1, self.rows.sizes[box.size_low]
        if left >= 0 and single and smallest == 1 and time_us < self.alone_us:
            box.laid = box.size_high == box.size_low
            return box.laid  # the other sizes are looked at by themselves
        box.counted = self._ratio(box, left, time_us)
        return box.counted is not None

    def _left_us(self, box: Box, time_us: int) -> float:
        """Return what an iteration leaves for its pipelines, and what was rounded."""
        synchronised = float(self._sync_factor) * box.sync_low_us
        left = time_us - self._overhead_us - synchronised
        return left / float(self._pipeline_factor) + SURE * abs(left)

    def counted(self, box: Box, left_us: int, time_us: int) -> float | None:
        """Return how finely rows refute a box within what is left of a time."""
        return self._ratio(box, float(left_us + 1), time_us)

    def _ratio(self, box: Box, left_us: float, time_us: int) -> float | None:
        if left_us >= 0 and box.count_low == 1 < box.count_high:
            return None  # one pipeline is looked at by itself
        until_us, wanted = box.wanted or (-1, None)
        # A pipeline has no more replicas of a layer than sequences in a micro-batch.
        largest = self.rows.sizes[box.size_high]
        some = Range(
            max(box.count_low, -(-box.replicas_low // largest)),
            min(box.count_high, box.replicas_high),
            box.replicas_low,
            range(box.size_low, box.size_high + 1),
            tuple(self._synchronising(box, time_us, 1)),
            tuple(self._synchronising(box, time_us, _STEPS)),
            self._unknown_us(box),
            wanted if time_us <= until_us else None,
        )
        verdict = self.rows.refuted(some, left_us)
        box.wanted = None if verdict.wanted is None else (time_us, verdict.wanted)
        return verdict.ratio

    def _unknown_us(self, box: Box) -> float:
        """Return by how much pipelines may have less time than the box leaves them."""
        if not self.priced or box.sync_high_us is None:
            return 0.0
        width = box.sync_high_us - box.sync_low_us
        return float(self._sync_factor * width / self._pipeline_factor)

    def _synchronising(
        self, box: Box, time_us: int, steps: int
    ) -> Iterator[Synchronising]:
        """Yield how long stages synchronise, and what a pipeline spends on that."""
        least = float(min(self._pipeline_factor, self._sync_factor))
        if not (self._hides and self.rows.spread_us * least):
            end = box.sync_high_us
            yield Synchronising(inf if end is None else float(end))
            return
        most = max(0.0, time_us - self._overhead_us) / least * (1 + SURE)
        edges = (most * 2 ** (-i / steps) for i in range(_HALVES * steps, -1, -1))
        for low, high in pairwise((0.0, *edges)):
            yield Synchronising(high, low * least / float(self._pipeline_factor))

    def divide(self, box: Box, time_us: int) -> list[Box]:
        """Return the parts of a box; nothing where it is too narrow."""
        box.split = self.division.split(box, time_us)
        return [] if box.split is None else [box.split.low, box.split.high]


def counted(bound: PipelineBound) -> Counted | None:
    """Return what refutes boxes of a bound by counts; None where that loses much.

    That is where kinds of nodes would be looked at as one.
    """
    rows = prepared(bound.plain_table, bound.check)
    if rows is None or not rows.apart:
        return None
    return CountedTree(rows, bound.most_us, bound.least_us, bound.check).counted


class CountedRefutation(Descent):
    """The refutation of one time by counts, with a certificate."""

    def __init__(self, bound: CountedTree, time_us: int, boxes: Sequence[Box]) -> None:
        """Begin with the boxes that are known."""
        super().__init__(bound, time_us, boxes)
        self._tree = bound

    def certificate(self) -> TrainingCertificate | None:
        """Return divisions and counts, for an independent check.

        None where there are more of them than a file may hold.
        """
        tree = self._tree
        try:
            return TrainingCertificate(
                time_us=self.time_us,
                most_sync_us=tree.most_sync_us,
                cases=tuple(map(_case, tree.first)),
                together=tree.rows.together,
                levelled=tree.levelled,
            )
        except ValidationError:
            return None


def _case(box: Box) -> certificates.Case:
    if box.split is None:
        return certificates.Case(counts=box.counted, laid=box.laid)
    split = box.split
    assert split.of != "host"  # which boxes of counts are not divided by
    of: certificates.Dimension = "pipelines"
    if split.of != "replicas":
        of = split.of if split.of != "slowest" else "bottleneck"
    return certificates.Case(
        split=of, at=split.at, low=_case(split.low), high=_case(split.high)
    )
