"""Enumeration: all columns within a gap, put together with exact synchronisation.

The master of set packing has one column per pipeline (`columns`): a sequence of stages
whose layers are not yet cut. Columns are listed from the last stage to the first
(`listing`); those that no packing better than the best known plan can hold are left
out, by bounds on what a column takes within a time and on what the GPUs left take
beside it. Packings of columns (`packings`) are joined in the order of their lower
bounds: every cut of the layers and every share of the batch is tried, with the
synchronisation that the packing has (`join`). So the best plan is proved best among all
that the judge accepts, stages of several replicas with unequal samples included.
Baldacci, Christofides and Mingozzi (2008) close vehicle routing problems this way.

`solve` does so for a whole cluster of up to 8 GPUs, `boxes` for one box of the engine
on up to 16.
"""

from bisect import bisect_left
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from functools import partial

from ... import capability
from ...bounds.longest import longest
from ...bounds.single_gpu import offer_single_gpus
from ...bounds.training_plan import training_plan_bound
from ...clock import monotonic
from ...costs import has_buckets, under
from ...errors import OutOfTime
from ...plans import TrainingPlan
from ...problems.training_plan import settings
from ...schema import Instance
from ...search import islands, racing, symmetric
from ...search.improving import improve
from ...solving.run import Halt, Run
from .columns import Column
from .join import Cutoff, Join
from .listing import Listing
from .packings import Packings, SyncTimes, is_enough, lasting, tightened
from .stages import StageTables, TooMany

_METHOD = "proof enumeration"  # in the capability matrix
_GPUS = 8
_MORE_GPUS = 12
_MOST_STAGES = 25_000  # of one size of micro-batches
_MOST_TRIED = 1_500_000  # stages put before suffixes, each in some us
_WARM_UP_S, _ROUNDS = 0.7, 4_000  # for heuristics, at the most


@dataclass(frozen=True)
class Outcome:
    """The outcome says what is known; `proved` without a plan means: there is none.

    No plan has an iteration below `bound_us`.
    """

    plan: TrainingPlan | None
    bound_us: int
    proved: bool


def is_small(instance: Instance) -> bool:
    """Tell whether a cluster has at most 8 GPUs, and plans take just what is listed."""
    return _is_exact(instance) and _is_listed(instance, _GPUS)


def is_rather_small(instance: Instance) -> bool:
    """Tell whether all columns of a cluster that is not small can often be listed.

    It has 9 to 12 GPUs; or fewer, where plans may take longer than what is listed, so
    that the least time is a bound only.
    """
    return not is_small(instance) and _is_listed(instance, _MORE_GPUS)


def _is_exact(instance: Instance) -> bool:
    """Tell whether plans take as long as what is listed, not longer."""
    return capability.carries_exactly(_METHOD, instance)


def _is_listed(instance: Instance, gpus: int) -> bool:
    """Tell whether a cluster of so many GPUs is listed, in times of 64 bits."""
    few = instance.planned_cluster.gpu_count <= gpus
    return few and capability.carries(_METHOD, instance) and longest(instance).fit


def solve(
    instance: Instance, clock: Run, *, check: Callable[[], None] | None = None
) -> Outcome:
    """Return the best training plan, proved where the limits of `clock` allow it.

    Where columns are too many, none is enumerated. `clock` receives plans and bounds as
    they are found, and its plan is a warm start. At a limit the outcome is what is
    known by then; `KeyboardInterrupt` passes through. A `check` that may raise
    `OutOfTime` says that the caller has looked for good plans already.
    """
    offer_single_gpus(instance, clock.offer)
    cheap = training_plan_bound(instance)
    clock.tighten(cheap.value, cheap.source)
    lowest = int(clock.bound.value if clock.bound else cheap.value)
    parts = _parts(instance)
    searches = [
        _Search(part, clock, lowest, check or clock.check, alone=len(parts) == 1)
        for part in parts
    ]
    with suppress(Halt, TooMany, OutOfTime):
        if check is None:
            _warm_up(instance, clock)
        for search in searches:
            if clock.closed():
                break
            search.run()
    proved = all(search.proved for search in searches)
    some = clock.objective is not None or any(search.refused for search in searches)
    if some and not _is_exact(instance):
        proved = False  # the least of what is stated may be a slower plan's, or none
    proved = proved or clock.closed()
    bound = min(search.bound for search in searches)
    if proved and clock.objective is not None:
        bound = int(clock.objective)
    return Outcome(clock.plan, bound, proved)


@dataclass(frozen=True)
class _Part:
    """A part has the plans of one stage of ZeRO and one number of pipelines, or any.

    `zero` is the plan's field: None where the stage is the workload's own.
    """

    instance: Instance
    pipelines: int | None = None
    zero: int | None = None


def _parts(instance: Instance) -> list[_Part]:
    """Return parts that hold all plans of an instance, or better ones.

    ZeRO divides states among pipelines, so their number is fixed where it is at work.
    One pipeline has nothing to divide. Of stages 0 to 2 the highest takes the least
    memory, and no more time, but where buckets come with it.
    """
    workload = instance.workload
    own = workload.costs.updates.zero
    if not max(workload.zeros):
        return [_Part(instance)]
    zeros = settings.lightest_zeros(workload)
    alone = zeros if has_buckets(workload.costs) else zeros[:1]
    most = min(instance.planned_cluster.gpu_count, workload.global_batch)
    pairs = [(zero, d) for d in range(1, most + 1) for zero in (zeros, alone)[d == 1]]
    return [
        _Part(under(instance, zero=zero), d, None if zero == own else zero)
        for zero, d in pairs
    ]


def _warm_up(instance: Instance, clock: Run) -> None:
    """Offer plans of heuristics, so that there is something to beat."""
    deadline = monotonic() + _WARM_UP_S
    if settings.has_choices(instance):
        chosen = racing.raced(instance, deadline=deadline, rounds=_ROUNDS)
        if chosen is not None:
            clock.offer(chosen)
        return
    for name, plan in (("islands", islands.plan), ("megatron", symmetric.plan)):
        clock.check()
        clock.offer_of(name, partial(plan, instance, deadline=deadline))
    if clock.plan is not None:
        better = improve(instance, clock.plan, deadline=deadline, rounds=_ROUNDS)
        clock.offer(better)


# Lower bounds of the objective and of the pipelines, a number, and the packing.
_Waiting = tuple[int, int, int, SyncTimes, tuple[Column, ...]]


class _Search:
    """The search looks for plans of one part that are better than what `clock` knows.

    `proved` says that none is left, `bound` what no plan of the part is below.
    """

    def __init__(
        self,
        part: _Part,
        clock: Run,
        bound: int,
        check: Callable[[], None],
        *,
        alone: bool,
    ) -> None:
        self._part, self._clock, self._alone = part, clock, alone
        self._check = check
        self._instance = instance = part.instance
        self._tables = StageTables(instance, part.pipelines or 1)
        self._longest = longest(instance)
        self.bound = bound
        self.proved = False
        self.refused = False  # what was found, by a rule that is not listed
        self._complete = True  # nothing was left out
        self._synced: dict[object, int] = {}
        self._listed: tuple[int, list[Column]] = (-1, [])  # for so much time

    def run(self) -> None:
        """Search until the proof, or `Halt`."""
        limit = self._longest.whole_us(self._instance) + 1
        known = self._clock.objective
        # Without a plan nothing would be dropped: ask for good plans first.
        below = min(limit, 2 * self.bound + 1) if known is None else int(known)
        while True:
            self._better_than(below)
            if self._clock.objective is not None or below >= limit:
                break
            below = min(limit, 4 * below)
        self.proved = self._complete

    # --- the proof ---------------------------------------------------------------

    def _columns(self, us: int) -> tuple[list[Column], list[int]]:
        """Return columns that a better plan may have, and the most samples of each.

        `TooMany` where they are.
        """
        if us > self._listed[0]:  # else those of more time will do
            gpus, batch = sum(self._tables.gpus), self._tables.batch
            sizes = {b for b in self._instance.workload.micro_batch_sizes if b <= batch}
            counts = self._part.pipelines or 1, self._part.pipelines or gpus
            asked = {b: min(b, gpus) for b in sizes}, us, counts, _MOST_TRIED
            listing = Listing(self._tables, self._check, _MOST_STAGES, us)
            listed = [*listing.columns(*asked)]
            self._listed = us, tightened(self._tables, listed, us, self._check)
        return lasting(self._tables, self._listed[1], us)

    def _better_than(self, value: int) -> bool:
        """Find the best plan below `value`, and tell whether there is one.

        Packings that may be better are joined, the least bound first.
        """
        best, waiting = self._best(value), self._packings(value)
        while waiting:
            least, pipelines_us, _, syncs, chosen = waiting.pop()
            if least >= best.value:
                break
            self._tighten(least)
            join = Join(self._tables, syncs, chosen, best, self._submit, self._check)
            try:
                join.run(pipelines_us)
            except TooMany:
                self._complete = False
        self._tighten(best.value)
        return best.value < value

    def _best(self, value: int) -> Cutoff:
        return Cutoff.of(self._instance, self._tables.table, value)

    def _tighten(self, us: int) -> None:
        """State that no plan is below `us`, if nothing was left out."""
        if self._complete and us > self.bound:
            self.bound = us
            if self._alone:
                self._clock.tighten(us, "enumeration of all pipelines")

    def _packings(self, value: int) -> list[_Waiting]:
        """Return packings that may be better, with their bounds, the best last."""
        best, tables = self._best(value), self._tables
        given = *self._columns(best.us_left(0)), self._check, self._part.pipelines
        found: list[_Waiting] = []
        for number, chosen in enumerate(Packings(tables, *given)):
            self._check()
            # Columns with short lists come first: joins stay few.
            chosen = tuple(sorted(chosen, key=lambda column: len(column.stages)))
            syncs = SyncTimes(tables, chosen, self._synced)
            enough = partial(is_enough, tables, chosen)
            if enough(high := best.us_left(syncs.least)):
                pipelines_us = bisect_left(range(high), True, key=enough)
                least = best.whole_us(pipelines_us, syncs.least)
                found.append((least, pipelines_us, number, syncs, chosen))
        found.sort(key=lambda row: row[:3], reverse=True)
        return found

    def _submit(self, plan: TrainingPlan, us: int) -> object:
        self._clock.offer(plan.model_copy(update={"zero": self._part.zero}))
        self.refused = self._clock.objective is None
        self._check()
        return self._clock.objective if _is_exact(self._instance) else us
