"""Joins: the best cuts and micro-batches of one packing.

Cuts of one column after the other are joined; a join is dropped where the rest of the
batch cannot be done in the time that its synchronisation leaves. Nothing else is.
"""

from bisect import bisect_left
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import lru_cache
from itertools import islice, pairwise
from math import floor

import numpy as np

from ...bounds.longest import Longest, longest
from ...costs import CostTable
from ...errors import InternalError
from ...plans import Pipeline, TrainingPlan
from ...plans import Replica as PlanReplica
from ...plans import Stage as PlanStage
from ...schema import Instance, exact
from ..one_pipeline.stages import sums
from .columns import Column, Cuts, cuts_within
from .packings import SyncTimes
from .stages import Matrix, Stage, StageTables

_PAIRS = 1 << 20  # joins looked at together, by time
_JOINS = 1 << 14  # joins looked at together, by synchronisation


@dataclass
class Cutoff:
    """The cutoff is what a better plan has to stay below, in us.

    It is the best plan known, or a lower value that is tried first.

    Small factors allow long times: no more than `longest` of any plan are of interest,
    which fit into 64 bits.
    """

    value: int
    pipeline_factor: Fraction
    sync_factor: Fraction
    sync_floor: Fraction
    longest: Longest
    overhead_us: int  # of every iteration
    update_us: int  # of the optimiser, at the least

    @classmethod
    def of(cls, instance: Instance, table: CostTable, value: int) -> "Cutoff":
        """Return what a plan of an instance has to stay below."""
        costs = instance.workload.costs
        factors = (
            exact(costs.schedule.pipeline_factor),
            exact(costs.updates.sync_factor),
            costs.sync_floor,
        )
        ends = table.overhead_us, table.least_update_us
        return cls(value, *factors, longest(instance), *ends)

    def us_left(self, sync_us: int, update_us: int | None = None) -> int:
        """Return the longest pipeline of a better plan; negative where none is."""
        update = self.update_us if update_us is None else update_us
        rest = self.value - 1 - self.overhead_us - update
        if self.sync_floor * sync_us > rest:
            return -1
        rest -= _up(self.sync_factor * sync_us)
        return min(floor(rest / self.pipeline_factor), self.longest.pipeline_us)

    def sync_left(self, pipelines_us: int) -> int:
        """Return the longest synchronisation of a better plan; -1 where none is."""
        pipelines = _up(self.pipeline_factor * pipelines_us)
        rest = self.value - 1 - self.overhead_us - self.update_us - pipelines
        if rest < 0:
            return -1
        if not self.sync_factor:  # it costs nothing, however long
            return self.longest.sync_us
        return min(floor(rest / self.sync_factor), self.longest.sync_us)

    def whole_us(
        self, pipelines_us: int, sync_us: int, update_us: int | None = None
    ) -> int:
        """Return the objective."""
        update = self.update_us if update_us is None else update_us
        pipelines = _up(self.pipeline_factor * pipelines_us)
        within = pipelines + _up(self.sync_factor * sync_us)
        ends = update + self.overhead_us
        return max(within, _up(self.sync_floor * sync_us)) + ends


def _up(value: Fraction) -> int:
    return -(-value.numerator // value.denominator)


class Join:
    """The join looks for plans of one packing that are better than `best`."""

    def __init__(
        self,
        tables: StageTables,
        syncs: SyncTimes,
        columns: Sequence[Column],
        best: Cutoff,
        found: Callable[[TrainingPlan, int], object],
        check: Callable[[], None],
    ) -> None:
        """Call `found` with every better plan and its time, and keep `best` up to date.

        `found` returns what the judge says of it.
        """
        self._tables, self._syncs, self._columns = tables, syncs, tuple(columns)
        self._best, self._found, self._check = best, found, check
        self._lists: list[Cuts] = []

    def run(self, pipelines_us: int) -> None:
        """Try all cuts; pipelines take at least `pipelines_us` whatever they are."""
        us = self._best.us_left(self._syncs.least)
        sync_us = self._best.sync_left(pipelines_us)
        most = [column.samples(us) for column in self._columns]
        for i, column in enumerate(self._columns):
            others = sum(most) - most[i]
            n = max(1, -(-(self._tables.batch - others) // column.size))
            allowed = [runs <= sync_us for runs in self._syncs.runs_of(i)]
            cuts = cuts_within(column, n, us, allowed, self._check)
            if not len(cuts.cuts):
                return
            self._lists.append(cuts)
        self._expand(np.zeros((1, 0), dtype=np.int64))

    def _expand(self, chosen: Matrix) -> None:
        """Join the next column's cuts to those chosen, which are rows of numbers."""
        level = chosen.shape[1]
        if level == len(self._lists):
            self._finish(chosen)
            return
        us = self._best.us_left(self._syncs.least)
        have = np.full(len(chosen), self._later(level, us))
        have += sum(self._each(chosen, np.array([us])))
        mine = self._lists[level].samples(slice(None), np.array([us]))
        step = max(1, _PAIRS // len(mine))
        for start in range(0, len(chosen), step):
            self._check()
            block = have[start : start + step, None] + mine[None]
            rows, added = np.nonzero((block >= self._tables.batch) & (mine > 0)[None])
            joined = np.concatenate([chosen[rows + start], added[:, None]], axis=1)
            for first in range(0, len(joined), _JOINS):
                self._check()
                passing = self._passing(joined[first : first + _JOINS])
                if len(passing):
                    self._expand(passing)

    def _later(self, level: int, us: int) -> int:
        """Return the most samples that columns behind `level` take."""
        every, at = slice(None), np.array([us])
        rest = self._lists[level + 1 :]
        return sum(int(cuts.samples(every, at).max()) for cuts in rest)

    def _each(self, joined: Matrix, us: Matrix) -> list[Matrix]:
        """Return the most samples of joined cuts, by column."""
        pairs = zip(self._lists, joined.T, strict=False)
        return [cuts.samples(rows, us) for cuts, rows in pairs]

    def _passing(self, joined: Matrix) -> Matrix:
        """Return those that may take the batch within what synchronisation leaves."""
        level = joined.shape[1] - 1
        us = self._us_left(self._sync_us(joined))
        later = self._later(level, self._best.us_left(self._syncs.least))
        each = self._each(joined, us)
        enough = np.sum(each, axis=0) + later >= self._tables.batch
        return np.asarray(joined[enough & (np.min(each, axis=0) > 0)])

    def _us_left(self, sync_us: Matrix, update_us: Matrix | None = None) -> Matrix:
        if update_us is None:
            update_us = np.full_like(sync_us, self._best.update_us)
        pairs = np.stack([sync_us, update_us], axis=1)
        values, where = np.unique(pairs, axis=0, return_inverse=True)
        left = [self._best.us_left(*map(int, pair)) for pair in values]
        return np.array(left, dtype=np.int64)[where.reshape(-1)]

    def _update_us(self, joined: Matrix) -> Matrix:
        """Return the time of the optimiser where it takes longest, by joined cuts."""
        slowest = np.full(len(joined), self._best.update_us)
        if not self._best.longest.update_us:
            return slowest  # it is not timed
        used = tuple(map(sum, zip(*(x.used for x in self._columns), strict=True)))
        if not self._tables.costs.memory.hosts_update:
            used = (0,) * len(used)  # no GPU waits for another
        for i, column in enumerate(self._columns):
            cuts = self._lists[i].cuts[joined[:, i]]
            for j, stage in enumerate(column.stages):
                runs = self._tables.update_us(stage, used)
                np.maximum(slowest, runs[cuts[:, j], cuts[:, j + 1]], out=slowest)
        return slowest

    def _sync_us(self, joined: Matrix) -> Matrix:
        """Return how long joined cuts synchronise, at the least if more are joined."""
        count = joined.shape[1]
        codes = np.zeros((len(joined), self._tables.layers), dtype=np.int64)
        for i in range(count):
            codes *= len(self._columns[i].stages)
            codes += self._lists[i].stage_of[joined[:, i]]
        each = self._syncs.least_of_first(count)[self._tables.size_of[None], codes]
        ahead = np.zeros((len(joined), self._tables.layers + 1), dtype=np.int64)
        np.cumsum(each, axis=1, out=ahead[:, 1:])
        slowest = np.zeros(len(joined), dtype=np.int64)
        for i in range(count):
            cuts = self._lists[i].cuts[joined[:, i]]
            sums = np.diff(np.take_along_axis(ahead, cuts, axis=1), axis=1)
            sums[:, 0] += self._syncs.embedding
            sums[:, -1] += self._syncs.head
            sums -= self._lists[i].hidden[joined[:, i]]
            np.maximum(slowest, sums.max(axis=1), out=slowest)
        return slowest

    # --- micro-batches -----------------------------------------------------------

    def _finish(self, joined: Matrix) -> None:
        """Share the batch exactly, the most promising cuts first."""
        sync_us, update_us = self._sync_us(joined), self._update_us(joined)
        while len(joined):
            us = self._us_left(sync_us, update_us)
            each = self._each(joined, us)
            spare = np.sum(each, axis=0) - self._tables.batch
            open_ = (spare >= 0) & (np.min(each, axis=0) > 0)
            joined, sync_us, us = joined[open_], sync_us[open_], us[open_]
            update_us = update_us[open_]
            order = np.argsort(-spare[open_], kind="stable")
            for row in order.tolist():
                fixed = int(sync_us[row]), int(update_us[row])
                if self._improves(joined[row], fixed, int(us[row])):
                    break
            else:
                return

    def _improves(self, rows: Matrix, fixed: tuple[int, int], us: int) -> bool:
        """Tell whether the batch can be shared in time, and report the best share.

        `fixed` are synchronisation and optimiser.
        """
        if self._shares(rows, us) is None:
            return False
        least = bisect_left(range(us), True, key=lambda x: bool(self._shares(rows, x)))
        numbers = self._shares(rows, least)
        assert numbers is not None
        value = self._best.value = self._best.whole_us(least, *fixed)
        if (judged := self._found(self._plan(rows, numbers), value)) != value:
            name = self._tables.table.instance.name
            raise InternalError(
                f"instance {name!r}: a plan of {value} us is judged {judged} us"
            )
        return True

    def _shares(self, rows: Matrix, us: int) -> tuple[int, ...] | None:
        sizes = tuple(column.size for column in self._columns)
        each = self._each(rows[None], np.array([us]))
        most = tuple(int(x[0]) // size for x, size in zip(each, sizes, strict=True))
        return shares(self._tables.batch, sizes, most)

    def _plan(self, rows: Matrix, numbers: Sequence[int]) -> TrainingPlan:
        """Return the plan of joined cuts; GPUs of each pool are given in order."""
        free = [
            iter([f"{node}:{i}" for node in pool.nodes for i in range(pool.each)])
            for pool in self._tables.pools
        ]

        def with_names(stage: Stage, layers: tuple[int, int]) -> PlanStage:
            replicas = tuple(
                PlanReplica(gpus=(*islice(free[x.pool], x.t),), samples=x.samples)
                for x in stage
            )
            rule = stage[0].rule  # None for the workload's own
            own = self._tables.rules[rule] if rule else None
            return PlanStage(layers=layers, replicas=replicas, recompute=own)

        pipelines = []
        for cuts, row, n in zip(self._lists, rows, numbers, strict=True):
            runs = pairwise(cuts.cuts[row].tolist())
            stages = tuple(map(with_names, cuts.column.stages, runs))
            size = cuts.column.size
            pipelines.append(
                Pipeline(micro_batches=n, micro_batch_size=size, stages=stages)
            )
        return TrainingPlan(pipelines=tuple(pipelines))


@lru_cache(maxsize=100_000)
def shares(
    batch: int, sizes: tuple[int, ...], most: tuple[int, ...]
) -> tuple[int, ...] | None:
    """Return 1 to `most` micro-batches of each size that make up the batch, or None."""
    allowed = [
        range(size, min(top, batch // size) * size + 1, size)
        for size, top in zip(sizes, most, strict=True)
    ]
    *reached, whole = sums(allowed, [1] * len(sizes), batch)
    if not whole >> batch & 1:
        return None
    numbers, rest = list[int](), batch
    for some, before in zip(reversed(allowed), reversed(reached), strict=True):
        share = next(s for s in some[::-1] if s <= rest and before >> rest - s & 1)
        numbers.insert(0, share // some.step)
        rest -= share
    return tuple(numbers)
