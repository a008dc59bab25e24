"""The front door: load, plan, solve, provision, compare and check.

Every function takes an instance as a name of the library, a path, or an `Instance`.
`time_limit` is in wall seconds, for all that a function does from reading the instance
on (in `compare`, for each method); None for no limit;
`gap` a relative target at which to stop; `threads` and `seed` go to whatever runs.
`report(incumbent, bound)` is called while an exact method works. Ctrl-C ends the work,
and the result holds what was known by then.
"""

import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import replace
from functools import partial
from itertools import chain
from pathlib import Path
from time import monotonic
from typing import TYPE_CHECKING, Any

from .. import files, problems, registry
from ..bounds import impossible
from ..bounds.training_plan import training_plan_bound
from ..errors import (
    InstanceError,
    Interrupted,
    MixedData,
    UnknownName,
    Unsupported,
    naming,
)
from ..gaps import GapReport
from ..modelling import Limits
from ..plans import Plan
from ..problems import Evaluation, Objective
from ..result import Method, Result, Status, Stop
from ..schema import Instance, Record
from ..search.attempts import Attempt, alone, judged, tried
from ..solving import model_files, statements
from . import improving, planner_options, rechecking, remedies

if TYPE_CHECKING:
    from ..exact.provisioning import Frontier
    from .fronts import Tradeoffs

Place = str | Path
Report = Callable[[Objective | None, Objective | None], None]
Options = Mapping[str, Any]

DEFAULT_TIME_S = 60.0
_QUICK = {"megatron": 6, "islands": 1.2}  # 1 / the most of the time, without a plan
_NO_PLANNER = "options were given, but no planner: name the one they are of"


def load(instance: Place | Instance) -> Instance:
    """The instance of that name or path.

    Raises `UnknownName` for a name that the library lacks, `InstanceError` for a file
    that cannot be used.
    """
    return instance if isinstance(instance, Instance) else files.load_instance(instance)


def plan(
    instance: Place | Instance,
    planner: str | None = None,
    *,
    exact: bool = False,
    improve: bool = False,
    options: Options | None = None,
    time_limit: float | None = DEFAULT_TIME_S,
    gap: float | None = None,
    threads: int = 1,
    seed: int = 0,
    report: Report | None = None,
) -> Result:
    """Plan a training run, by one planner or by all of them and the exact method.

    The planners take at most half of the time limit, the exact method the rest, and
    starts from the best of their plans. Where it cannot carry the instance, that plan
    is returned, with a bound; with `exact` it is an error instead (`Unsupported`).
    With `improve` a local search takes the exact method's place, on the plan of that
    one planner or on the best of all planners' plans: the result is never worse.
    `options` are of that one planner, by name (`planner_options`).
    Without a plan the reasons say which settings of recomputation and ZeRO would fit.
    Raises what `load` raises, `InstanceError` for an instance with offers, and
    `UnknownName` for an unknown planner.
    """
    start = monotonic()
    whole = limits_of(time_limit, gap, threads, seed)
    data = load(instance)
    # What took long to read takes as long to judge and to write at the end.
    limits = _less(whole, 2 * (monotonic() - start))
    _ = data.planned_cluster
    if planner is not None:
        if exact:
            raise Unsupported("a planner and exact were both asked for: choose one")
        refuse_unknown(
            "planner", planner, registry.entries_for("planners", "training_plan")
        )
    elif options:
        raise Unsupported(_NO_PLANNER)
    if improve:
        if exact:
            raise Unsupported(
                "improve and exact were both asked for: choose one; the exact method "
                "searches locally by itself"
            )
        found = _bounded(_improved(planner, data, limits, report, options))
    elif planner is not None:
        found = _bounded(heuristic(planner, data, limits, options))
    else:
        found = _planned(data, exact, limits, report)
    try:
        return remedies.remedied(found, _less(whole, monotonic() - start))
    except KeyboardInterrupt:
        return _interrupted(found)


def _planned(
    data: Instance, exact: bool, limits: Limits, report: Report | None
) -> Result:
    """By all planners, then by the exact method, which `exact` insists on."""
    start = monotonic()
    results = _heuristics(data, limits)
    best = _best(results)
    if any(result.stop is Stop.INTERRUPTED for result in results):
        return _bounded(_interrupted(best))
    left = _less(limits, monotonic() - start)
    try:
        found = _exact("training_plan", data, left, best.plan, report)
        failed = tuple(dict.fromkeys(best.failed + found.failed))
        told = found.reasons
        if found.status is Status.UNDECIDED:  # then the planners' reasons say more
            told = best.reasons + told
        return replace(found, failed=failed, reasons=told)
    except KeyboardInterrupt:  # before or after the method's own work
        return _bounded(_interrupted(best))
    except Unsupported:
        if exact:
            raise
        return _bounded(best)


def solve(
    problem: Place | Record,
    method: str | None = None,
    backend: str | None = None,
    *,
    warm_start: Plan | None = None,
    options: Options | None = None,
    time_limit: float | None = DEFAULT_TIME_S,
    gap: float | None = None,
    threads: int = 1,
    seed: int = 0,
    report: Report | None = None,
) -> Result:
    """Solve one problem that is stated by itself, in a file or as a record.

    `method` is an exact method (the default), a statement or a planner, as listed by
    `methods_for`; for an instance also the exact method of a problem that narrows its
    own, such as `one_pipeline`: the result is then of that problem. With `backend` it
    is a statement, by default the first that the back end carries. `options` are of a
    planner, by name (`planner_options`). Raises `InstanceError`, `UnknownName`,
    `BackendMissing` and `Unsupported`.
    """
    limits = limits_of(time_limit, gap, threads, seed)
    name, data = posed(problem)
    if options and (backend or method not in methods_for(name)["planners"]):
        raise Unsupported(_NO_PLANNER)
    if method is not None and _narrows(method, data):
        name = method
    if backend is not None:
        formulation = _formulation(name, method, backend)
        return _stated(name, data, formulation, backend, limits, warm_start, report)
    known = methods_for(name)
    if name == "job_scheduling":
        raise Unsupported(
            "a queue of jobs has policies, no methods: use `hetopt schedule`"
        )
    refuse_unknown("method", method or name, [*chain.from_iterable(known.values())])
    if method is None or method in known["exact"]:
        return _exact(name, data, limits, warm_start, report)
    if method in known["formulations"]:
        backend = carriers(method)[0]
        return _stated(name, data, method, backend, limits, warm_start, report)
    return _bounded(heuristic(method, data, limits, options))


def write_statement(
    problem: Place | Record, statement: str | None, path: Place
) -> list[Path]:
    """Write a linear statement of a problem as an LP or MPS file; the files.

    By default the first statement of the problem that is linear. Raises what `load`
    raises, `UnknownName` and `Unsupported`.
    """
    name, data = posed(problem)
    return model_files.write(name, data, _formulation(name, statement, "pulp"), path)


def provision(
    instance: Place | Instance,
    planner: str | None = None,
    *,
    deadline_s: float | None = None,
    budget_usd: float | None = None,
    time_limit: float | None = DEFAULT_TIME_S,
    gap: float | None = None,
    threads: int = 1,
    seed: int = 0,
    report: Report | None = None,
) -> Result:
    """Rent the cheapest GPUs that meet a deadline, or the fastest within a budget.

    Without either, the instance's own requirements hold. By the exact method, or by
    one `planner`, without a proof. Raises `InstanceError` for an instance without
    offers, or when both are given, and `UnknownName` for an unknown planner.
    """
    limits = limits_of(time_limit, gap, threads, seed)
    data = provisioning_data(instance, deadline_s, budget_usd)
    if planner is not None:
        refuse_unknown(
            "planner", planner, registry.entries_for("planners", "provisioning")
        )
        return heuristic(planner, data, limits)
    return _exact("provisioning", data, limits, None, report)


def frontier(
    instance: Place | Instance,
    *,
    time_limit: float | None = DEFAULT_TIME_S,
    gap: float | None = None,
    threads: int = 1,
    seed: int = 0,
    report: Report | None = None,
) -> "Frontier":
    """All plans of an instance with offers that none beats in both cost and time.

    The instance's own deadline or budget leaves out what exceeds it. `report` is
    called with the number of plans so far, and no bound.
    """
    from ..exact import provisioning

    limits = limits_of(time_limit, gap, threads, seed)
    data = provisioning_data(instance, None, None)
    return provisioning.frontier(data, limits=limits, report=report)


def tradeoffs(
    instance: Place | Instance,
    planners: Sequence[str] = (),
    *,
    time_limit: float | None = DEFAULT_TIME_S,
    gap: float | None = None,
    threads: int = 1,
    seed: int = 0,
    report: Report | None = None,
    started: Callable[[str], None] | None = None,
) -> "Tradeoffs":
    """The front of an instance with offers, with planners' and homogeneous plans.

    Raises as `frontier` does, and `UnknownName` for an unknown planner.
    """
    from .fronts import compared

    limits = limits_of(time_limit, gap, threads, seed)
    for name in planners:
        refuse_unknown(
            "planner", name, registry.entries_for("planners", "provisioning")
        )
    data = provisioning_data(instance, None, None)
    return compared(load(instance).name, data, planners, limits, started, report)


def compare(
    instances: Place | Instance | Iterable[Place | Instance],
    planners: Sequence[str] | None = None,
    *,
    exact: bool = False,
    time_limit: float | None = DEFAULT_TIME_S,
    gap: float | None = None,
    threads: int = 1,
    seed: int = 0,
    report: Report | None = None,
    started: Callable[[str], None] | None = None,
) -> GapReport:
    """Set planners side by side, and with `exact` the exact method as well.

    All planners by default. Each gap is to the best bound that is proved for the
    instance, by whatever method of this report. `started` hears each method's name
    before it runs. Raises as `plan` does, before any work is done.
    """
    limits = limits_of(time_limit, gap, threads, seed)
    if isinstance(instances, str | Path | Instance):
        instances = [instances]
    loaded = [load(instance) for instance in instances]
    for instance in loaded:
        _ = instance.planned_cluster
    _refuse_one_name_for_two(loaded)
    everyone = registry.entries_for("planners", "training_plan")
    chosen = list(dict.fromkeys(everyone if planners is None else planners))
    for name in chosen:
        refuse_unknown("planner", name, everyone)
    results: list[Result] = []
    try:
        for instance in loaded:
            for result in _compared(instance, chosen, exact, limits, report, started):
                results.append(result)
                if result.stop is Stop.INTERRUPTED:
                    raise KeyboardInterrupt
    except KeyboardInterrupt:
        if not results:
            raise
    return GapReport.of(results)


def check(plan: Place | Plan, instance: Place | Record | None = None) -> Evaluation:
    """Judge a plan, whoever made it: objective, parts, and every rule that it breaks.

    `plan` is a plan file or a result file, or a plan with its instance (or problem).
    """
    name, data, made = posed_plan(plan, instance)
    return problems.get(name).evaluate(data, made)


def check_bound(result: Place, instance: Place | Record | None = None) -> list[str]:
    """Derive the bound of a result document again: what is missing, empty if proved.

    Raises `InstanceError` for a document without a bound, and `Unsupported` where the
    bound cannot be derived again cheaply.
    """
    return rechecking.missing(result, instance)


# --- what there is ---------------------------------------------------------------


def methods_for(problem: str) -> dict[str, list[str]]:
    """Names that work on a problem, by kind: exact, formulations, planners."""
    kinds = ("exact", "formulations", "planners")
    return {kind: registry.entries_for(kind, problem) for kind in kinds}


def carriers(formulation: str) -> list[str]:
    """Back ends that carry a statement; the statement's favourite comes first."""
    module = registry.entry("formulations", formulation)
    return list(getattr(module, "backends", None) or registry.names("backends"))


def posed(problem: Place | Record) -> tuple[str, Any]:
    """The problem's name and data; an instance poses the one that it is made for.

    Raises what `load` raises, and `MixedData` for a record that poses none.
    """
    if isinstance(problem, str | Path):
        return files.load_problem(problem)
    if isinstance(problem, Instance):
        name = "training_plan" if problem.cluster else "provisioning"
        return name, problems.get(name).data(problem)
    stated = getattr(problem, "problem", None)
    if stated is None:
        raise MixedData(f"a {type(problem).__name__} poses no problem")
    return stated, problem


def posed_plan(
    plan: Place | Plan, instance: Place | Record | None = None
) -> tuple[str, Any, Plan]:
    """Problem, data and plan of a plan file, or of a plan and its instance."""
    if isinstance(plan, str | Path):
        return files.load_plan(plan, instance)
    if instance is None:
        raise InstanceError("a plan by itself cannot be judged: give its instance")
    name, data = posed(instance)
    if not isinstance(plan, problems.get(name).Plan):
        raise MixedData(f"a {type(plan).__name__} is no plan of problem {name!r}")
    return name, data, plan


def provisioning_data(
    instance: Place | Instance, deadline_s: float | None, budget_usd: float | None
) -> Any:
    """The provisioning problem of an instance under other requirements."""
    loaded = load(instance)
    if deadline_s is not None and budget_usd is not None:
        raise InstanceError("found both of a deadline and a budget: give one of them")
    if deadline_s is not None or budget_usd is not None:
        asked = {"deadline_s": deadline_s, "budget_usd": budget_usd}
        requirements = type(loaded.requirements).model_validate(asked)
        loaded = loaded.model_copy(update={"requirements": requirements})
    with nullcontext() if isinstance(instance, Instance) else naming(instance):
        return problems.get("provisioning").data(loaded)


# --- how it is done --------------------------------------------------------------


def _narrows(method: str, data: Any) -> bool:
    """Whether a method is the exact one of a problem that an instance can pose."""
    return (
        isinstance(data, Instance)
        and method in registry.names("exact")
        and problems.get(method).Data is Instance
    )


def limits_of(
    time_limit: float | None, gap: float | None, threads: int, seed: int
) -> Limits:
    """The limits of a call; `Unsupported` for numbers that are none."""
    for word, value, least in (
        ("time_limit", time_limit, 0),
        ("gap", gap, 0),
        ("threads", threads, 1),
        ("seed", seed, 0),
    ):
        if value is not None and (math.isnan(value) or value < least):
            raise Unsupported(f"{word} is {value}: expected at least {least}")
    if time_limit is not None and math.isinf(time_limit):
        time_limit = None
    return Limits(time_s=time_limit, gap=gap, threads=threads, seed=seed)


def _less(limits: Limits, seconds: float) -> Limits:
    if limits.time_s is None:
        return limits
    return replace(limits, time_s=max(0.0, limits.time_s - seconds))


def refuse_unknown(kind: str, name: str, known: list[str]) -> None:
    """`UnknownName` for a name that is not there."""
    if name not in known:
        raise UnknownName(kind, name, known)


def _formulation(problem: str, method: str | None, backend: str) -> str:
    library = backend.partition(":")[0]
    refuse_unknown("backend", library, registry.names("backends"))
    known = registry.entries_for("formulations", problem)
    if method is not None:
        refuse_unknown("formulation", method, known)
        return method
    for name in known:
        if library in carriers(name):
            return name
    raise Unsupported(f"no statement of {problem} runs on {backend!r}")


def _exact(
    problem: str,
    data: Any,
    limits: Limits,
    warm_start: Any | None,
    report: Report | None,
) -> Result:
    module: Any = registry.entry("exact", problem)
    found: Result = module.solve(
        data, limits=limits, warm_start=warm_start, report=report
    )
    return _bounded(found)


def _stated(
    problem: str,
    data: Any,
    formulation: str,
    backend: str,
    limits: Limits,
    warm_start: Any | None,
    report: Report | None,
) -> Result:
    return statements.solve(
        problem,
        data,
        formulation,
        backend,
        limits=limits,
        warm_start=warm_start,
        report=report,
    )


def heuristic(
    name: str,
    data: Any,
    limits: Limits,
    options: Options | None = None,
    attempt: Callable[[str, Callable[[], Any]], Attempt[Any]] = alone,
) -> Result:
    """What a planner finds; no plan becomes a result with the planner's reason.

    So does a failure under `attempts.tried`, where other planners are asked as well.
    """
    module: Any = registry.entry("planners", name)
    chosen = planner_options.checked(name, options) if options else {}
    start = monotonic()
    deadline = None if limits.time_s is None else start + limits.time_s
    found, stop = Attempt[Any](None), Stop.FINISHED
    kept: list[Any] = []

    def work() -> tuple[Any, Evaluation] | None:
        made = module.plan(data, seed=limits.seed, deadline=deadline, **chosen)
        kept.append(made)
        return None if made is None else judged(module.problem, data, name, made)

    try:
        found = attempt(name, work)
    except KeyboardInterrupt as signal:
        stop = Stop.INTERRUPTED
        best = signal.best if isinstance(signal, Interrupted) else (kept or [None])[0]
        if best is not None:  # found by then, or while the judge was at work
            found = attempt(name, partial(judged, module.problem, data, name, best))
    end = monotonic()
    plan, evaluation = found.made or (None, None)
    reasons = () if found.reason is None else (found.reason,)
    if stop is Stop.FINISHED and deadline is not None and end >= deadline:
        stop = Stop.TIME
    return Result(
        problem=module.problem,
        data=data,
        method=Method(name, "heuristic", seed=limits.seed, options=chosen),
        status=Status.UNDECIDED if plan is None else Status.FEASIBLE,
        stop=stop,
        plan=plan,
        seconds={"solve": end - start},
        reasons=reasons,
        evaluation=evaluation,
        failed=reasons if found.failed else (),
    )


def _improved(
    planner: str | None,
    data: Instance,
    limits: Limits,
    report: Report | None,
    options: Options | None,
) -> Result:
    """A planner's plan, or the best of all, in half of the time; then local search."""
    start = monotonic()
    if planner is None:
        found = _best(_heuristics(data, limits))
    else:
        half = None if limits.time_s is None else limits.time_s / 2
        found = heuristic(planner, data, replace(limits, time_s=half), options)
    try:
        return improving.improved(found, _less(limits, monotonic() - start), report)
    except KeyboardInterrupt:  # before the search, which keeps what it has
        return _interrupted(found)


def _heuristics(data: Instance, limits: Limits) -> list[Result]:
    """Every planner in turn, in half of the time together, until one is interrupted.

    What a planner leaves of its share goes to those after it. Quick ones go first, so
    that there is a plan soon; where they took all the time, the others are not asked.
    """
    names = registry.entries_for("planners", "training_plan")
    names = [*_QUICK, *(name for name in names if name not in _QUICK)]
    left = None if limits.time_s is None else limits.time_s / 2
    results: list[Result] = []
    for waiting, name in zip(range(len(names), 0, -1), names, strict=True):
        # Without any plan, most of the time goes to the quick ones.
        planned = any(result.plan is not None for result in results)
        parts = _QUICK.get(name, waiting) if not planned else waiting
        share = replace(limits, time_s=None if left is None else left / parts)
        try:
            results.append(heuristic(name, data, share, attempt=tried))
        except KeyboardInterrupt:
            if not results:
                raise
            results[-1] = _interrupted(results[-1])
        if results[-1].stop is Stop.INTERRUPTED:
            break
        if left is not None:
            left -= results[-1].seconds["solve"]
            if left <= 0:  # the tables of the others alone would take longer
                break
    return sorted(results, key=lambda result: result.method.name)


def _best(results: list[Result]) -> Result:
    """The result with the least objective; without any plan, all reasons together.

    With what failed on the way.
    """
    failed = tuple(why for result in results for why in result.failed)
    planned = [result for result in results if result.objective is not None]
    if planned:
        best = min(planned, key=lambda result: result.objective or 0)
        return replace(best, failed=failed)
    reasons = tuple(why for result in results for why in result.reasons)
    return replace(results[0], reasons=reasons, failed=failed)


def _bounded(result: Result) -> Result:
    """The result with the cheap proved bound, where that says more than its own.

    Without a plan, and where arithmetic proves that there is none, it says so.
    """
    if result.problem != "training_plan" or result.status is Status.INFEASIBLE:
        return result
    if result.plan is None and (reason := impossible.reason(result.data)):
        return replace(
            result, status=Status.INFEASIBLE, stop=Stop.PROVED, reasons=(reason,)
        )
    try:
        cheap = training_plan_bound(result.data)
    except KeyboardInterrupt:
        return _interrupted(result)
    if result.bound is None or cheap.value > result.bound.value:
        return result.with_bound(cheap)
    return result


def _interrupted(result: Result) -> Result:
    """The same, ended by Ctrl-C where it was not proved before."""
    if result.stop is Stop.PROVED:
        return result
    return replace(result, stop=Stop.INTERRUPTED)


def _compared(
    instance: Instance,
    planners: list[str],
    exact: bool,
    limits: Limits,
    report: Report | None,
    started: Callable[[str], None] | None,
) -> Iterator[Result]:
    """Results of the planners, then of the exact method warm-started by the best."""
    results: list[Result] = []
    for name in planners:
        if started:
            started(f"{instance.name}: {name}")
        results.append(_bounded(heuristic(name, instance, limits, attempt=tried)))
        yield results[-1]
    if exact:
        if started:
            started(f"{instance.name}: exact")
        warm = _best(results).plan if results else None
        yield _exact("training_plan", instance, limits, warm, report)


def _refuse_one_name_for_two(instances: list[Instance]) -> None:
    """A report is read by names: one name must not stand for two instances."""
    digests: dict[str, str] = {}
    for instance in instances:
        if digests.setdefault(instance.name, instance.digest) != instance.digest:
            raise MixedData(
                f"two different instances are named {instance.name!r}: rename one"
            )
