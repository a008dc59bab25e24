"""Training plan: proved optimal on small clusters, bounded by prices on large ones.

Up to 8 GPUs every plan is looked at, in effect (`enumeration`). Beyond that a
local search improves the best planner's plan, and ever better iteration times are
refuted: what no pipelines can reach together, no plan can (`pipelines`). Where whole
pipelines are put together, by the GPUs that they use, they become plans (`packings`).
What one pipeline of micro-batches of one sequence takes at the least, `one_pipeline`
says.

Where a plan chooses its settings (`workload.alternatives`), small clusters choose
recomputation stage by stage and a stage of ZeRO for the plan, with proof; larger ones
are searched (`hetopt.search.choosing`), under a bound that holds for every choice.

The bound holds for stages of several replicas and for layers of different sizes, and
where a plan chooses its stage of ZeRO or its splits it is the least over the choices.
"""

import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from dataclasses import replace
from functools import partial
from itertools import count
from math import inf
from typing import NamedTuple

from ... import capability, registry
from ...bounds import impossible
from ...bounds.training_plan import training_plan_bound
from ...costs import CostTable, without_update
from ...errors import OutOfTime, PlanRejected, SolverFailed
from ...modelling import Limits
from ...plans import TrainingPlan
from ...problems import Objective
from ...problems.training_plan import settings, support
from ...result import Result
from ...schema import Instance
from ...search import choosing, grid, sites
from ...search.improving import improve
from ...solving.certificates import BoxCertificate, TrainingCertificate
from ...solving.run import Report, Run
from .. import checking, enumeration, one_pipeline
from ..pipelines import counts, side_by_side
from ..pipelines.schedule import Schedule
from ..pipelines.side_by_side import Processes
from . import alone, fitting, holding
from . import certificate as certificates
from .again.others import Others
from .refuting import Clock, endless, tighten, tightening

Certificate = TrainingCertificate
problem = "training_plan"

_BEYOND = 16  # times the cheap bound is tried without an incumbent
# Quick ones, where there is no warm start, and the share of the time when each ends.
_PLANNERS = {"megatron": 0.1, "grid": 0.2, "islands": 0.35}
# And where proofs come upon plans.
_FEW_PLANNERS = {"megatron": 0.05, "grid": 0.1, "islands": 0.15}
# And where no plan was found before the bound: in all of the time that it leaves.
_LATE_PLANNERS = {"megatron": 0.4, "grid": 0.8, "islands": 1.0}
# Of the time, when the local search before the bound ends that found nothing better
# since the one before: each begins anew.
_SEARCH_SHARES = (0.2, 0.35, 0.5)
_SITES_SHARE, _SITES_STARTS = 0.45, 4  # and plans that mind slow links between sites
_GRID_SHARE = 0.5  # and for grids, where the target runs nothing else
_LIST_SHARE = 0.7  # of the time at most, for all rows where these may be few
_FIRST_SHARE = 0.3  # of what is left for refuting, before them
_BOUND_SHARE = 0.92  # of the time, when the bound ends and the search goes on
_CHOICE_SHARE = 0.2  # of the time at most, for settings that the plan may choose
_LINE_SHARE = 0.25  # of the time at most, for the best single pipeline
_ONLY_LINE_SHARE = 0.5  # and where none are of one sequence
_FIT_SHARE = 0.3  # and for one that fits, where no planner finds any plan
_SMALL_SHARE = 0.6  # and where too many plans of a small cluster are left after it
_SEARCH_S = 30.0  # where there is no time limit
_REASON_S = 1.0  # at the most, to tell why there is no plan
_MOMENT_S = 1.0  # at the most, to improve a plan that a proof came upon
_CANDIDATES = 150_000  # of one local search
_LIMITED_CANDIDATES = 1_500_000  # and where the time limit ends it, too
# Of the time, how long the local search goes on after the bound and finds nothing.
_SEARCH_PATIENCE = 0.25


class _Means(NamedTuple):
    """What refutes times side by side, and how it goes about it."""

    processes: Processes | None
    schedule: Schedule


def solve(
    data: Instance,
    *,
    limits: Limits,
    warm_start: TrainingPlan | None = None,
    report: Report | None = None,
    schedule: Schedule = Schedule(),  # noqa: B008 -- frozen
) -> Result:
    """The best training plan that was found, and how far from optimal it can be.

    `limits.threads` is how many processes refute side by side, `limits.dask` a cluster
    whose workers do; the search has one process. `schedule` steers the time of proofs
    that go by prices.
    Proved where the cluster has at most 8 GPUs and the limits allow, often up to 12.
    Raises `InstanceError` for an instance without a cluster and for a bad warm start,
    `Unsupported` where the program that has to run the plan can run none.
    """
    support.require(data)
    run = Run(problem, data, limits, report)
    run.start_from(warm_start)
    with run, side_by_side.processes(limits.threads, limits.dask) as processes:
        means = _Means(processes, schedule)
        if reason := impossible.reason(data):
            run.reasons = (reason,)
        elif _alike(data):
            _on_target(run, data, means)
        elif enumeration.is_small(data):
            _small(run, data, means)
        else:
            _large(run, data, means)
    return run.result()


def recheck(
    data: Instance, certificate: TrainingCertificate | BoxCertificate, bound: Objective
) -> list[str]:
    """What is missing for the bound to be proved by the certificate; empty if nothing.

    `Unsupported` where the check would need too large tables.
    """
    if isinstance(certificate, BoxCertificate):
        return checking.missing(data, certificate, bound, Others)
    return certificates.missing(data, certificate, bound)


def _alike(instance: Instance) -> bool:
    """Whether pipelines must be alike, for the target or for experts divided."""
    workload = instance.workload
    return not workload.target.free or workload.costs.compute.expert_parallel > 1


def _on_target(run: Run, instance: Instance, means: _Means) -> None:
    """Grids, which all targets run; a bound of grids where there are no others."""
    cheap = training_plan_bound(instance)
    run.tighten(cheap.value, cheap.source)
    found = grid.search(instance, deadline=_deadline(run, _GRID_SHARE))
    if found.plan is not None:
        run.offer(found.plan)
    else:
        run.offer_of("megatron", _planner(run, instance, "megatron", _GRID_SHARE))
    target = instance.workload.target
    if target.symmetric or target.whole:
        if found.bound_us == inf:
            run.reasons = (_no_grid(instance),)
            return
        source = "all grids of stages, replicas and degrees"
        if not target.symmetric:
            source = "every number of whole models on the fastest GPUs"
        run.tighten(int(found.bound_us), source)
    _refute(run, instance, means)
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


def _small(run: Run, instance: Instance, means: _Means) -> None:
    alone_us = 0
    if max(instance.workload.micro_batch_sizes) > 1:
        _start(run, instance)  # stages of several replicas take long to list
        alone_us = _lay_one(run, instance)
    known = enumeration.solve(instance, run, warm_start=run.plan, fewer=False)
    if not known.proved:  # it ended at a limit, or not all plans could be listed
        run.check()
        _refute(run, instance, means, _SMALL_SHARE, alone_us)
        known = enumeration.solve(instance, run, warm_start=run.plan)
    if known.plan is None and known.proved:
        run.reasons = (_nowhere(instance),)
    else:
        run.tighten(known.bound_us, "all plans of a small cluster")
    _forget(run)
    if not known.proved:
        run.check()
        _refute(run, instance, means, alone_us=alone_us)
        run.check()


def _nowhere(instance: Instance) -> str:
    """Why no plan of a small cluster is one: memory, or what remains without it."""
    looked = "every plan of this cluster was looked at"
    light = impossible.without_memory(instance)
    sizes = sorted(set(instance.workload.micro_batch_sizes))
    # Any plan will do, and one layer has few.
    run = Run(problem, light, Limits(time_s=_REASON_S, gap=inf))
    ample = None if _one_stage_does(light) else enumeration.solve(light, run)
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


def _one_stage_does(light: Instance) -> bool:
    """Whether one stage takes the batch in micro-batches of a size, memory apart."""
    batch, table = light.workload.global_batch, CostTable(light)
    sizes = (b for b in set(light.workload.micro_batch_sizes) if batch % b == 0)
    return any(holding.taken(table, b) for b in sizes)


def _large(run: Run, instance: Instance, means: _Means) -> None:
    if run.plan is None and (reason := holding.no_room(instance)):
        run.reasons = (reason,)
        return
    if means.processes is not None:
        means.processes.begin()
    cheap = training_plan_bound(instance)
    run.tighten(cheap.value, cheap.source)
    few = _few(run, instance, means)
    _visit_sites(run, instance)
    _start(run, instance, _FEW_PLANNERS if few else _PLANNERS)
    if run.plan is None and _fit(run, instance):
        return
    alone_us = _lay_one(run, instance)
    if not few:
        _line_up(run, instance)
    if settings.has_choices(instance):
        _choose(run, instance)
    first, seeds = run.plan, count(run.limits.seed)
    # What came before may have taken the time of some; and packings are plans, too.
    shares = [x for x in _SEARCH_SHARES if _deadline(run, x) > time.monotonic()]
    most = _CANDIDATES if few else None
    for share in shares[:1] if few else shares:
        until = _deadline(run, share)
        if not _search(run, instance, until, next(seeds), run.plan, most):
            break
    while True:
        if run.plan is None or _deadline(run, _BOUND_SHARE) > time.monotonic():
            _refute(run, instance, means, _BOUND_SHARE, alone_us)
        if run.plan is None:
            _start(run, instance, _LATE_PLANNERS)
        if not _search_on(run, instance, first, seeds):
            break
    run.check()


def _search_on(
    run: Run, instance: Instance, first: TrainingPlan | None, seeds: Iterator[int]
) -> bool:
    """Search with other seeds until a plan is better; whether one is.

    It ends without one after a share of the time limit, or with one seed where there
    is no limit. The search also begins where the first one began, whose valley may
    have others beside the one that was found.
    """
    until, begun = _deadline(run, 1.0), time.monotonic()
    patience = _SEARCH_PATIENCE * (run.limits.time_s or 0.0)
    for seed in seeds:
        starts = [run.plan] if run.plan is first else [run.plan, first]
        if any([_search(run, instance, until, seed, x) for x in starts]):
            return True
        if run.closed() or time.monotonic() >= min(until, begun + patience):
            break
    return False


def _list(run: Run, instance: Instance) -> None:
    """All rows of stages of a cluster that is rather small, in some of the time."""
    if run.plan is not None:
        check = _clock(run, _LIST_SHARE).check
        known = enumeration.solve(instance, run, fewer=False, check=check)
        run.tighten(known.bound_us, "all rows of stages on the cluster")
        _forget(run)
        run.check()


def _forget(run: Run) -> None:
    """Drop a certificate that is of a lower bound than what is known."""
    found, bound = run.certificate, run.bound
    kinds = TrainingCertificate, BoxCertificate
    if isinstance(found, kinds) and bound is not None:
        run.certificate = found if bound.value <= int(found.time_us) + 1 else None


def _start(
    run: Run, instance: Instance, planners: Mapping[str, float] = _PLANNERS
) -> None:
    for name, share in planners.items():
        run.check()
        if run.plan is not None and _deadline(run, share) <= time.monotonic():
            continue
        run.offer_of(name, _planner(run, instance, name, share))


def _planner(
    run: Run, instance: Instance, name: str, share: float
) -> Callable[[], TrainingPlan]:
    """What asks a planner for a plan until a share of the time limit is over."""
    plan = registry.entry("planners", name).plan
    until = _deadline(run, share)
    return partial(plan, instance, seed=run.limits.seed, deadline=until)


def _visit_sites(run: Run, instance: Instance) -> None:
    """Plans that mind slow links between sites, where there are any, and from there on.

    Sets of sites lie in other valleys: the best of each is improved by itself.
    """
    plans = sites.starts(instance, deadline=_deadline(run, _SITES_SHARE))
    waiting = plans[:_SITES_STARTS]
    while waiting:
        now = time.monotonic()
        left = max(0.0, _deadline(run, _SITES_SHARE) - now)
        until, plan = now + left / len(waiting), waiting.pop(0)
        with suppress(PlanRejected):
            run.offer(plan)
            _search(run, instance, until, run.limits.seed, plan)
        run.check()


def _fit(run: Run, instance: Instance) -> bool:
    """A pipeline that fits, where there is one; whether it is proved that none does."""

    def limits() -> Limits:
        left = max(0.0, _deadline(run, _FIT_SHARE) - time.monotonic())
        return Limits(time_s=left, seed=run.limits.seed)

    run.offer_of("fitting", partial(fitting.pipeline, instance, limits()))
    if run.plan is None and fitting.impossible(instance, limits()):
        run.reasons = (holding.reason(instance.model.layers),)
    return bool(run.reasons)


def _lay_one(run: Run, instance: Instance) -> int:
    """One pipeline of micro-batches of one sequence, if it is faster than the plan.

    None takes less than what is returned, in us.
    """
    limits = _until(run, _LINE_SHARE)
    least_us = alone.faster(instance, run.objective, limits, run.offer)
    run.check()
    return least_us


def _line_up(run: Run, instance: Instance) -> None:
    """A single pipeline of several sequences, where one beats the incumbent."""
    light = without_update(instance)
    sizes = tuple(b for b in light.workload.micro_batch_sizes if b > 1)
    if not (sizes and alone.are_sought(light)):
        return
    of_one = len(sizes) < len(light.workload.micro_batch_sizes)
    limits = _until(run, _LINE_SHARE if of_one else _ONLY_LINE_SHARE)
    workload = light.workload.model_copy(update={"micro_batch_sizes": sizes})
    larger = light.model_copy(update={"workload": workload})
    one_pipeline.faster(larger, run.objective, limits, run.offer)
    run.check()


def _few(run: Run, instance: Instance, means: _Means) -> bool:
    """Whether whole pipelines can be counted, whose packings are plans."""
    if means.processes or settings.has_choices(instance):
        return False
    if not capability.carries("proof pipelines", instance):
        return False
    return counts.are_few(instance, means.schedule)


def _choose(run: Run, instance: Instance) -> None:
    """Settings that the plan may choose, in as much time as the search has."""
    found = choosing.chosen(
        instance, deadline=_deadline(run, _CHOICE_SHARE), seed=run.limits.seed
    )
    if found is not None:
        run.offer(found)
    run.check()


def _clock(run: Run, share: float) -> Clock:
    """That of a part which ends when a share of the time limit is over."""
    return Clock(_deadline(run, share), run.check)


def _until(run: Run, share: float) -> Limits:
    """Those of another run, until a share of the time limit is over, whatever gap."""
    seconds = max(0.0, _deadline(run, share) - time.monotonic())
    return replace(run.limits, time_s=seconds, gap=None)


def _deadline(run: Run, share: float) -> float:
    """When a share of the time limit is over, as a `time.monotonic()` instant."""
    now = time.monotonic()
    left = run.left_s()
    if left is None:
        return now + _SEARCH_S
    return now + max(0.0, left - (1 - share) * (left + run.seconds()))


def _search(
    run: Run,
    instance: Instance,
    until: float,
    seed: int,
    start: TrainingPlan | None,
    most: int | None = None,
) -> bool:
    """Improve a plan until an instant; whether the incumbent is better for it.

    It looks at `most` candidates, or at as many as one search may.
    """
    if start is None or run.closed():
        return False
    run.check()
    before = run.objective
    limited = run.limits.time_s is not None
    most = most or (_LIMITED_CANDIDATES if limited else _CANDIDATES)
    better = improve(instance, start, deadline=until, rounds=most, seed=seed)
    if better is not start:
        run.offer(better)
    run.check()
    return run.objective != before


def _offered(run: Run, instance: Instance, plan: TrainingPlan) -> int:
    """Offer a plan, and return its time in us, whether or not it is the best.

    The best is improved for a moment. `PlanRejected` where it breaks rules.
    """
    before = run.objective
    run.offer(plan)
    if run.objective != before:
        until = min(_deadline(run, 1.0), time.monotonic() + _MOMENT_S)
        _search(run, instance, until, run.limits.seed, plan)
    judged = run.judge.evaluate(run.data, plan)
    assert judged.objective is not None  # an offer is refused where it is
    return int(judged.objective)


def _refute(
    run: Run,
    instance: Instance,
    means: _Means,
    share: float = _BOUND_SHARE,
    alone_us: int = 0,
) -> None:
    """Refute better iteration times, one after another, while they can be refuted.

    No pipeline of micro-batches of one sequence takes less than `alone_us` by itself.
    """
    if run.bound is None:
        cheap = training_plan_bound(instance)
        run.tighten(cheap.value, cheap.source)
    assert run.bound is not None
    # From 1 us on: ratios of times are looked at, and a bound may be 0.
    lowest = max(1, int(run.bound.value))
    highest = int(run.objective) if run.objective else _BEYOND * lowest
    if lowest >= highest:
        return
    limited = run.limits.time_s is not None
    clock = _clock(run, share) if limited else endless(run.check)
    try:
        with suppress(OutOfTime):  # what was refuted in time is known
            found = tightening(
                *(instance, highest, lowest, clock),
                processes=means.processes,
                schedule=means.schedule,
                alone_us=alone_us,
                offer=partial(_offered, run, instance),
            )
            if found is None:
                return
            if enumeration.is_rather_small(instance) and not _alike(instance):
                tighten(run, found, clock, _FIRST_SHARE)
                _list(run, instance)
            if not run.closed():
                tighten(run, found, clock)
    except SolverFailed as error:  # and what was refuted before a process was lost
        run.cut_short += (str(error),)
