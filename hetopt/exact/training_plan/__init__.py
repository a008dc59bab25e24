"""Training plan: proved optimal on small clusters, bounded by prices on large ones.

Up to 8 GPUs every plan is looked at, in effect (`enumeration`). Beyond that a
local search improves the best planner's plan, and ever better iteration times are
refuted: what no pipelines can reach together, no plan can (`pipelines`). What one
pipeline of micro-batches of one sequence takes at the least, `one_pipeline` says.

Where a plan chooses its settings (`workload.alternatives`), small clusters choose
recomputation stage by stage and a stage of ZeRO for the plan, with proof; larger ones
are searched (`hetopt.search.racing`), under a bound that holds for every choice.

The bound holds for stages of several replicas and for layers of different sizes, and
where a plan chooses its stage of ZeRO or its splits it is the least over the choices.
"""

from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import partial
from itertools import count
from math import inf

from ... import registry
from ...bounds import covering, impossible
from ...bounds.single_gpu import offer_single_gpus
from ...bounds.training_plan import training_plan_bound
from ...clock import monotonic
from ...costs import CostTable
from ...errors import OutOfTime, PlanRejected
from ...modelling import Limits
from ...plans import TrainingPlan
from ...problems import Objective
from ...problems.training_plan import settings, support
from ...result import Result
from ...schema import Instance
from ...search import choices, grid, racing, sites
from ...search.improving import improve
from ...solving.certificates import BoxCertificate
from ...solving.run import Report, Run
from .. import enumeration, one_pipeline
from ..pipelines.schedule import Planners, Schedule, Shares
from . import fitting
from .refuting import Clock, Tightening, Times, endless

Certificate = BoxCertificate
problem = "training_plan"

_BEYOND = 16  # times the cheap bound is tried without an incumbent


@dataclass(frozen=True)
class _Task:
    run: Run
    instance: Instance
    schedule: Schedule

    @property
    def shares(self) -> Shares:
        """Return the shares of the time limit."""
        return self.schedule.shares

    @property
    def limited(self) -> bool:
        """Return whether a time limit ends the run."""
        return self.run.limits.time_s is not None

    def deadline(self, share: float) -> float:
        """Return when a share of the time limit is over, as `clock.monotonic()`."""
        now = monotonic()
        left = self.run.left_s()
        if left is None:
            return now + self.schedule.searching.unlimited_s
        return now + max(0.0, left - (1 - share) * (left + self.run.seconds()))

    def clock(self, share: float) -> Clock:
        """Return the clock of a part that ends when a share of the limit is over."""
        return Clock(self.deadline(share), self.run.check)

    def until(self, share: float) -> Limits:
        """Return limits of another run, until a share is over, whatever its gap."""
        seconds = max(0.0, self.deadline(share) - monotonic())
        return replace(self.run.limits, time_s=seconds, gap=None)

    def search(
        self, start: TrainingPlan | None, until: float, *, seed: int | None = None
    ) -> bool:
        """Improve a plan until an instant; whether the incumbent is better for it."""
        run, sizes = self.run, self.schedule.searching
        if start is None or run.closed():
            return False
        run.check()
        before = run.objective
        most = sizes.limited_candidates if self.limited else sizes.candidates
        seed = run.limits.seed if seed is None else seed
        better = improve(self.instance, start, deadline=until, rounds=most, seed=seed)
        if better is not start:
            run.offer(better)
        run.check()
        return run.objective != before

    def offer(self, plan: TrainingPlan) -> int:
        """Offer a plan, and return its time in us, whether or not it is the best.

        The best is improved for a moment. `PlanRejected` where it breaks rules.
        """
        run, before = self.run, self.run.objective
        run.offer(plan)
        if run.objective != before:
            moment = monotonic() + self.schedule.searching.moment_s
            self.search(plan, min(self.deadline(1.0), moment))
        judged = run.judge.evaluate(run.data, plan)
        assert judged.objective is not None  # an offer is refused where it is
        return int(judged.objective)


def solve(
    data: Instance,
    *,
    limits: Limits,
    warm_start: TrainingPlan | None = None,
    report: Report | None = None,
    schedule: Schedule = Schedule(),  # noqa: B008 -- frozen
) -> Result:
    """The best training plan that was found, and how far from optimal it can be.

    `schedule` steers the time of proofs that go by prices.
    Proved where the cluster has at most 8 GPUs and the limits allow, often up to 12.
    Raises `InstanceError` for an instance without a cluster and for a bad warm start,
    `Unsupported` where the program that has to run the plan can run none.
    """
    support.require(data)
    run = Run(problem, data, limits, report)
    run.start_from(warm_start)
    with run:
        task = _Task(run, data, schedule)
        if reason := impossible.reason(data):
            run.reasons = (reason,)
        elif len(settings.split_variants(data)) > 1:
            _together(task)
        elif _alike(data):
            _on_target(task)
        elif enumeration.is_small(data):
            _small(task)
        else:
            _large(task)
    return run.result()


def recheck(data: Instance, certificate: BoxCertificate, bound: Objective) -> list[str]:
    """Return what a certificate lacks to prove a bound; `Unsupported` if too large."""
    from .. import checking  # no plan needs it

    return checking.missing(data, certificate, bound)


def goes_together(ways: Sequence[Instance]) -> bool:
    """Tell whether one run proves for all ways to divide an instance.

    Else each is solved by itself: clusters whose plans are all looked at, and targets
    whose grids are.
    """
    targets = [way.workload.target for way in ways]
    return not any(
        target.symmetric or target.whole or enumeration.is_small(way)
        for way, target in zip(ways, targets, strict=True)
    )


def lines_up(instance: Instance) -> bool:
    """Tell whether single pipelines of layers that differ are sought."""
    sought = one_pipeline.of_sizes(instance, instance.workload.micro_batch_sizes)
    return sought is not None and not CostTable(instance).even


def _alike(instance: Instance) -> bool:
    """Tell whether pipelines must be alike: for the target, or for experts."""
    workload = instance.workload
    return not workload.target.free or workload.costs.compute.expert_parallel > 1


def _on_target(task: _Task) -> None:
    """Grids, which all targets run; a bound of grids where there are no others."""
    run, instance, share = task.run, task.instance, task.shares.grid
    cheap = training_plan_bound(instance)
    run.tighten(cheap.value, cheap.source)
    found = grid.search(instance, deadline=task.deadline(share))
    if found.plan is not None:
        run.offer(found.plan)
    else:
        run.offer_of("megatron", _planner(task, "megatron", share))
    target = instance.workload.target
    if target.symmetric or target.whole:
        if found.bound_us == inf:
            run.reasons = (_no_grid(instance),)
            return
        grids = "all grids of stages, replicas and degrees"
        whole = "every number of whole models on the fastest GPUs"
        run.tighten(int(found.bound_us), grids if target.symmetric else whole)
    _refute(task, task.shares.bound)
    run.check()


def _no_grid(instance: Instance) -> str:
    if not instance.workload.target.symmetric:
        return (
            f"memory: {instance.workload.runs_on} puts a whole model on every GPU, "
            "and it fits none of them"
        )
    return (
        f"target: {instance.workload.runs_on} runs grids of stages x replicas x "
        "degree, and none shares the global batch and fits into the GPUs' memory"
    )


def _small(task: _Task) -> None:
    run, instance, shares, alone_us = task.run, task.instance, task.shares, 0
    if max(instance.workload.micro_batch_sizes) > 1:
        _start(task, shares.planners)  # stages of several replicas take long to list
        alone_us = _lay_one(task)
    known = enumeration.solve(instance, run)
    if not known.proved:  # it ended at a limit, or not all plans could be listed
        run.check()
        _refute(task, shares.small, alone_us)
        known = enumeration.solve(instance, run)
    if known.plan is None and known.proved:
        run.reasons = (_nowhere(task),)
    else:
        run.tighten(known.bound_us, "all plans of a small cluster")
    _forget(run)
    if not known.proved:
        run.check()
        _refute(task, shares.bound, alone_us)
        run.check()


def _nowhere(task: _Task) -> str:
    """Why no plan of a small cluster is one: memory, or what remains without it."""
    instance = task.instance
    looked = "every plan of this cluster was looked at"
    light = impossible.without_memory(instance)
    sizes = sorted(set(instance.workload.micro_batch_sizes))
    # Any plan will do, and one layer has few.
    limits = Limits(time_s=task.schedule.searching.reason_s, gap=inf)
    run = Run(problem, light, limits)
    batch, table = instance.workload.global_batch, CostTable(light)
    alone = any(not batch % b and impossible.takes(table, b) for b in sizes)
    ample = None if alone else enumeration.solve(light, run)
    if ample is None or ample.plan is not None:
        return f"memory: {looked}, and in each a stage needs more than its GPUs have"
    if ample.proved:
        return (
            f"batch: {looked}, and with any memory none shares a global batch of "
            f"{instance.workload.global_batch} in micro-batches of {sizes} among GPUs "
            "with times that were measured: add sizes to micro_batch_sizes, or "
            "measurements to workload.costs.profile"
        )
    return f"memory or micro-batches of {sizes}: {looked}, and none keeps all rules"


def _large(task: _Task) -> None:
    run, instance, shares = task.run, task.instance, task.shares
    if run.plan is None and (reason := _no_room(task, instance)):
        run.reasons = (reason,)
        return
    cheap = training_plan_bound(instance)
    run.tighten(cheap.value, cheap.source)
    unlike, alone_us = lines_up(instance), 0
    # What follows keeps to the usual settings, or to those of the plan it has.
    if shares.choices and settings.has_choices(instance):
        _choose(task, shares.choices)
    begun = run.plan is not None
    offer_single_gpus(instance, run.offer)
    if unlike:  # planners have nothing like the best of these
        alone_us = _lay_one(task)
        _line_up(task)
    _visit_sites(task)
    if not begun:
        _start(task, shares.planners)
    if run.plan is None:
        _fit(task)
    if not unlike:
        alone_us = _lay_one(task)
        _line_up(task)
    first, seeds = run.plan, count(run.limits.seed)
    # What came before may have taken the time of some.
    ends = [task.deadline(x) for x in shares.searches]
    for end in (end for end in ends if end > monotonic()):
        if not task.search(run.plan, end, seed=next(seeds)):
            break
    _prove(task, first, seeds, alone_us)


def _no_room(task: _Task, way: Instance) -> str | None:
    """Return why no plan of equal layers fits; others take long to look at."""
    if not CostTable(way).even:
        return None
    return covering.reason(way, deadline=task.deadline(task.shares.no_room))


def _together(task: _Task) -> None:
    """Several ways to divide: all are refuted together, below one incumbent."""
    run, instance, shares = task.run, task.instance, task.shares
    cheap = training_plan_bound(instance)
    run.tighten(cheap.value, cheap.source)
    if shares.choices:
        _choose(task, shares.choices)
    offer_single_gpus(instance, run.offer)
    if run.plan is None and _nowhere_at_all(task):
        return
    _prove(task, run.plan, count(run.limits.seed))


def _prove(
    task: _Task, first: TrainingPlan | None, seeds: Iterator[int], alone_us: int = 0
) -> None:
    """Refute better times, and search for them, in turns while plans become better."""
    run, shares = task.run, task.shares
    while True:
        if run.plan is None or task.deadline(shares.bound) > monotonic():
            _refute(task, shares.bound, alone_us)
        if run.plan is None and len(settings.split_variants(task.instance)) == 1:
            _start(task, shares.late_planners)
        if not _search_on(task, first, seeds):
            break
    run.check()


def _nowhere_at_all(task: _Task) -> bool:
    """A pipeline that fits, under any way; whether it is proved that there is none."""
    run, reasons = task.run, dict[str | None, None]()
    for way in settings.split_variants(task.instance):
        why = impossible.reason(way) or _no_room(task, way)
        if why is None:
            _fit(replace(task, instance=way))
        if run.plan is not None:
            return False
        reasons[why] = None
    told = tuple(why for why in reasons if why is not None)
    run.reasons = told if len(told) == len(reasons) else ()
    return bool(run.reasons)


def _search_on(task: _Task, first: TrainingPlan | None, seeds: Iterator[int]) -> bool:
    """Search with other seeds until a plan is better; whether one is.

    After a share of the time limit without one, or one seed where there is no limit,
    settings are chosen anew. The search also begins where the first one began, whose
    valley may have others beside the one that was found.
    """
    run, until, begun = task.run, task.deadline(1.0), monotonic()
    patience = task.shares.patience * (run.limits.time_s or 0.0)
    for seed in seeds:
        starts = [run.plan] if run.plan is first else [run.plan, first]
        if any([task.search(x, until, seed=seed) for x in starts]):
            return True
        if run.closed() or monotonic() >= min(until, begun + patience):
            break
    return _choose_again(task)


def _list(task: _Task) -> None:
    """All pipelines of a cluster that is rather small, in some of the time."""
    run = task.run
    if run.plan is not None:
        check = task.clock(task.shares.listing).check
        known = enumeration.solve(task.instance, run, check=check)
        run.tighten(known.bound_us, "enumeration of all pipelines")
        _forget(run)
        run.check()


def _forget(run: Run) -> None:
    """Drop a certificate that is of a lower bound than what is known."""
    found, bound = run.certificate, run.bound
    if isinstance(found, BoxCertificate) and bound is not None:
        run.certificate = found if bound.value <= int(found.time_us) + 1 else None


def _start(task: _Task, planners: Planners) -> None:
    run = task.run
    for name, share in planners:
        run.check()
        if run.plan is not None and task.deadline(share) <= monotonic():
            continue
        run.offer_of(name, _planner(task, name, share))


def _planner(task: _Task, name: str, share: float) -> Callable[[], TrainingPlan]:
    """Return a function that asks a planner until a share of the limit is over."""
    plan = registry.entry("planners", name).plan
    seed, until = task.run.limits.seed, task.deadline(share)
    return partial(plan, task.instance, seed=seed, deadline=until)


def _visit_sites(task: _Task) -> None:
    """Plans that mind slow links between sites, where there are any, and from there on.

    Sets of sites lie in other valleys: the best of each is improved by itself.
    """
    share = task.shares.sites
    plans = sites.starts(task.instance, deadline=task.deadline(share))
    waiting = plans[: task.schedule.searching.starts]
    while waiting:
        now = monotonic()
        left = max(0.0, task.deadline(share) - now)
        until, plan = now + left / len(waiting), waiting.pop(0)
        with suppress(PlanRejected):
            task.run.offer(plan)
            task.search(plan, until)
        task.run.check()


def _fit(task: _Task) -> None:
    run, instance = task.run, task.instance
    limits = task.until(task.shares.fitting)

    def pipeline() -> TrainingPlan | None:
        found = fitting.pipeline(instance, limits)
        return found and choices.said(run.data, instance, found)

    run.offer_of("fitting", pipeline)


def _lay_one(task: _Task) -> int:
    """One pipeline of micro-batches of one sequence, if it is faster than the plan.

    None takes less than what is returned, in us.
    """
    run, limits = task.run, task.until(task.shares.one_pipeline)
    least_us = one_pipeline.faster(task.instance, run.objective, limits, run.offer)
    run.check()
    return least_us


def _line_up(task: _Task) -> None:
    """A single pipeline of several sequences, where one beats the incumbent."""
    run, shares, every = task.run, task.shares, task.instance.workload.micro_batch_sizes
    larger = tuple(b for b in every if b > 1)
    of_one = len(larger) < len(every)
    limits = task.until(shares.one_pipeline if of_one else shares.only_pipeline)
    known = task.instance, run.objective, limits, run.offer
    one_pipeline.faster(*known, larger)
    run.check()


def _choose(task: _Task, share: float) -> None:
    """Settings that the plan may choose, until a share of the time is over."""
    end, seed = task.deadline(share), task.run.limits.seed
    found = racing.raced(task.instance, deadline=end, seed=seed)
    if found is not None:
        task.run.offer(found)
    task.run.check()


def _choose_again(task: _Task) -> bool:
    """Choose settings in all time that is left; whether a plan is better.

    A race of settings before had less time.
    """
    run, known = task.run, task.run.objective
    if run.limits.time_s is None or not settings.has_choices(task.instance):
        return False
    if run.closed() or task.deadline(1.0) <= monotonic():
        return False
    _choose(task, 1.0)
    return run.objective != known


def _refute(task: _Task, share: float, alone_us: int = 0) -> None:
    """Refute better iteration times, one after another, while they can be refuted.

    No pipeline of micro-batches of one sequence takes less than `alone_us` by itself.
    """
    run, instance = task.run, task.instance
    if run.bound is None:
        cheap = training_plan_bound(instance)
        run.tighten(cheap.value, cheap.source)
    assert run.bound is not None
    # From 1 us on: ratios of times are looked at, and a bound may be 0.
    lowest = max(1, int(run.bound.value))
    highest = int(run.objective) if run.objective else _BEYOND * lowest
    if lowest >= highest:
        return
    clock = task.clock(share) if task.limited else endless(run.check)
    with suppress(OutOfTime):  # what was refuted in time is known
        times = Times(lowest, highest, alone_us)
        found = Tightening(instance, times, clock, task.schedule, task.offer)
        if found.ended:
            return
        several = len(settings.split_variants(instance)) > 1
        rather_small = enumeration.is_rather_small(instance) and not several
        if rather_small and not _alike(instance):
            found.tighten(run, task.shares.first_prices)
            _list(task)
        if not run.closed():
            found.tighten(run)
