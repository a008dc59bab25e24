"""Training plans: by one planner, by all of them and the exact method, side by side."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace
from time import monotonic

from .. import registry
from ..bounds import covering
from ..bounds.impossible import unfit_settings
from ..errors import MixedData, Unsupported
from ..gaps import GapReport
from ..modelling import Limits
from ..problems.training_plan import support
from ..result import Result, Status, Stop
from ..schema import Instance
from ..search import choosing
from ..search.attempts import tried
from .calling import (
    AnyInstance,
    AnyLimits,
    AnyProblem,
    AnyProgress,
    Listener,
    Options,
    Progress,
    less,
    limits_of,
    progress_of,
    public,
    refuse_unknown,
    several,
)
from .comparing import Chosen, problem_of, report_of, with_seeds
from .improving import and_improved, improved, improved_from_several, is_small
from .judging import load
from .plugins import Plugin, named
from .solving import (
    NO_PLANNER,
    bounded,
    exact_result,
    heuristic,
    interrupted,
    planners_for,
)
from .starts import NOTHING, AnyStart, Known, known_of

#: Asked first, in the order of what they cost: there is a plan soon.
QUICK = ("autohet", "megatron", "grid", "islands")
#: Asked behind them, before the others.
GOOD = ("whale", "hexiscale", "metis")
# 1 / the most of the planners' time for a quick one: without a plan, and with one. The
# first two take a tenth of a second for hundreds of GPUs: without a plan they have all
# the time that there is.
_PARTS = {"grid": (1.5, 1.5), "islands": (1.2, 1.5)}
#: Nodes; of more, islands (of blends of nodes) are there sooner than the others.
_LARGE = 256
_SOONEST, _SOON_PART = ("autohet", "megatron"), 6
_PLANNERS_SHARE, _PLANNER_SHARE = 0.4, 0.12  # of the time: all of them, each
# Of a time so short that nothing else would find more: so many seconds, up to a part.
_PLANNERS_LEAST_S, _PLANNERS_MOST_SHARE = 3.0, 0.8
# Of that, and of the walks, before an exact method that searches by itself: a part of a
# long time, and all of a time up to so many seconds, which planners need.
_BEFORE_SEARCH, _ALL_UP_TO_S = 0.3, 12.0
_ONE_SHARE = 0.75  # of the time at most, for a planner whose plan is improved
# Of what is left, and seconds: the most that the exact method leaves on small clusters.
_WALK_SHARE, _WALK_S = 0.5, 15.0
_MOST_S = 10.0  # for remedies


@public
def plan(
    instance: AnyInstance,
    planner: Plugin | None = None,
    *,
    exact: bool = False,
    improve: bool = False,
    options: Options | None = None,
    runs_on: str | None = None,
    start: AnyStart = None,
    known: bool = True,
    limits: AnyLimits = 60,
    progress: AnyProgress = None,
) -> Result:
    """Plan a training run, by one planner or by all of them and the exact method.

    The planners take at most 0.4 of the time limit (of less than 8 seconds up to 0.8,
    or 3 seconds), and local search from the best of their plans at most 0.7 of the
    rest, and 15 seconds; of limits beyond 12 seconds less, down to 0.3 of that, where
    the exact method searches by itself, on more than 8 GPUs. Then it goes on from the
    best of these plans. Where it cannot carry the instance, that plan is returned, with
    a bound; with `exact` it is an error instead (`Unsupported`).
    With `improve` a local search takes the exact method's place, on the plan of that
    one planner, which has at most three quarters of the time, or on the best of all
    planners' plans: the result is never worse than that plan.
    The search starts from the best plan that is known beforehand (`hetopt.api.starts`):
    of those that `start` gives, those beside the instance, and the library's, whose
    bound counts as well; the result's `started_from` names it. With `known` false only
    `start` is used. A planner that was named is asked alone, whatever is known.
    A planner is a name, a Python file, or a function (`hetopt.api.plugins`).
    `options` are of that one planner, by name (`options_of`). `runs_on` asks for the
    best plan that a target can run (`hetopt.schema.targets`), not the workload's own.
    Without a plan the reasons say which settings of recomputation and ZeRO would fit.
    Raises what `load` raises, `InstanceError` for an instance with offers,
    `UnknownName` for an unknown planner, and `Unsupported` where the program that has
    to run the plan can run none of the instance.
    """
    began = monotonic()
    whole, heard = limits_of(limits), progress_of(progress)
    data = load(instance)
    if runs_on is not None:
        data = data.on(runs_on)
    # What took long to read takes as long to judge and to write at the end.
    left = less(whole, 2 * (monotonic() - began))
    _ = data.planned_cluster
    support.require(data)
    name = None if planner is None else named(planner)
    if name is not None:
        if exact:
            raise Unsupported("a planner and exact were both asked for: choose one")
        refuse_unknown(
            "planner", [name], registry.known_for("planners", "training_plan")
        )
        if start is not None:
            raise Unsupported(
                "a planner and a start were both given: a planner makes its own plan; "
                "leave one out"
            )
    elif options:
        raise Unsupported(NO_PLANNER)
    if improve and exact:
        raise Unsupported(
            "improve and exact were both asked for: choose one; the exact method "
            "searches locally by itself"
        )
    beforehand = NOTHING
    if name is None:
        beforehand = known_of(instance, data, start, library=known)
    if improve:
        found = searched(name, data, left, heard, options, beforehand)
    elif name is not None:
        found = bounded(heuristic(name, data, left, options))
    else:
        found = planned(data, beforehand, left, heard, exact=exact)
    found = beforehand.bounded(found)
    if name is None:  # else the planner's own reason is the answer
        found = _refuted(found)
    try:
        return remedied(found, less(whole, monotonic() - began))
    except KeyboardInterrupt:
        return interrupted(found)


@public
def compare(
    instances: AnyProblem | Iterable[AnyProblem],
    planners: Sequence[Plugin] | None = None,
    *,
    problem: str | None = None,
    options: Options | None = None,
    statements: Sequence[str] | None = None,
    backends: Sequence[str] | None = None,
    exact: bool | None = None,
    runs_on: str | None = None,
    start: AnyStart = None,
    known: bool = True,
    seeds: int = 1,
    limits: AnyLimits = 60,
    progress: AnyProgress = None,
) -> GapReport:
    """Set planners side by side, and with `exact` the exact method as well.

    All planners by default. The exact method's row is what `plan` finds in the same
    time, from the best of the other rows and of what is known beforehand; its bound is
    its own. Each gap is to the best bound that is proved for the instance, by a method
    of this report or in the library; `runs_on`, `start` and `known` as in `plan`.
    Raises as `plan` does, before any work is done.

    Every method runs with each of `seeds` seeds, from that of the limits on: how much a
    plan owes to its seed is in `GapReport.spreads`.

    With a `problem` that the instances pose, with these `options` (`api.pose`), and for
    files that state one, the rows are all methods of that problem: its planners, its
    `statements` on each of the `backends` that carry them, and unless `exact` is false
    the exact method, each with the time limit for itself.
    """
    asked, heard = limits_of(limits), progress_of(progress)
    each = with_seeds(asked, seeds)
    given_as = several(instances)
    stated: str | None = None
    first: Instance | None = None
    if problem is None and given_as:
        stated, first = problem_of(given_as[0])
    if problem is not None or stated is not None:
        if runs_on is not None or start is not None:
            raise Unsupported(
                "found runs_on or start beside a problem, expected them where training "
                "plans are made: leave them out"
            )
        wanted = Chosen(planners, statements, backends, exact is not False)
        return report_of(given_as, problem, options, wanted, each, heard, library=known)
    if statements or backends or options:
        raise Unsupported(
            "found statements, backends or options and no problem that they are of: "
            "name one, such as training_plan"
        )
    loaded = [load(instance) for instance in given_as[first is not None :]]
    loaded = loaded if first is None else [first, *loaded]
    if runs_on is not None:
        loaded = [instance.on(runs_on) for instance in loaded]
    for instance in loaded:
        _ = instance.planned_cluster
        support.require(instance)
    _refuse_one_name_for_two(loaded)
    given = None if planners is None else [named(one) for one in planners]
    everyone = planners_for("training_plan") if given is None else given
    chosen = list(dict.fromkeys(everyone))
    refuse_unknown("planner", chosen, registry.known_for("planners", "training_plan"))
    beforehand = [
        known_of(name, data, start, library=known)
        for name, data in zip(given_as, loaded, strict=True)
    ]
    results: list[Result] = []
    try:
        for instance, mine in zip(loaded, beforehand, strict=True):
            for one in each:
                rows = _compared(instance, mine, chosen, bool(exact), one, heard)
                for result in rows:
                    results.append(result)
                    if result.stop is Stop.INTERRUPTED:
                        raise KeyboardInterrupt
    except KeyboardInterrupt:
        if not results:
            raise
    references = zip(loaded, beforehand, strict=True)
    return GapReport.of(
        results, {d.digest: mine.reference(d) for d, mine in references}
    )


# --- how it is done --------------------------------------------------------------


def planned(
    data: Instance,
    known: Known,
    limits: Limits,
    progress: Progress = Listener(),  # noqa: B008 -- frozen
    others: Sequence[Result] = (),
    *,
    exact: bool = False,
) -> Result:
    """The best plan by all planners, then by the exact method; `exact` insists on it.

    The search starts from what is known and from `others`, results of the instance.
    """
    began = monotonic()
    best = _best_of_all(data, limits, _part_before(data, limits), known, others)
    found = bounded(best)
    if best.stop is not Stop.INTERRUPTED:
        left = less(limits, monotonic() - began)
        try:
            found = _exactly(data, best, left, progress)
        except KeyboardInterrupt:  # before or after the method's own work
            found = bounded(interrupted(best))
        except Unsupported:
            if exact:
                raise
        else:
            told = found.reasons
            if found.status is Status.UNDECIDED:  # then the planners' reasons say more
                told = best.reasons + told
            found = replace(
                found,
                failed=tuple(dict.fromkeys(best.failed + found.failed)),
                reasons=told,
                started_from=best.started_from,
            )
    return waited(found, monotonic() - began)


def waited(found: Result, seconds: float) -> Result:
    """The result with what the planners took, so that its seconds are all of them."""
    rest = seconds - sum(found.seconds.values())
    if rest <= 0:
        return found
    return replace(found, seconds={"planners": rest, **found.seconds})


def _part_before(data: Instance, limits: Limits) -> float:
    """What planners and walks have of their time before the exact method."""
    if is_small(data) or not limits.time_s:
        return 1.0
    return min(1.0, max(_BEFORE_SEARCH, _ALL_UP_TO_S / limits.time_s))


def _exactly(
    data: Instance, best: Result, limits: Limits, progress: Progress
) -> Result:
    """By the exact method, from the best plan so far.

    Where it looks at every plan and is not through in time, local search has the
    rest: on larger clusters the method searches by itself.
    """
    start, share = monotonic(), limits
    small = is_small(data) and limits.time_s is not None
    if small and limits.time_s is not None:
        walk = min(limits.time_s * _WALK_SHARE, _WALK_S)
        share = replace(limits, time_s=limits.time_s - walk)
    found = exact_result("training_plan", data, share, best.plan, progress.report)
    if not small:
        return found
    return and_improved(found, less(limits, monotonic() - start), progress.report)


def searched(
    planner: str | None,
    data: Instance,
    limits: Limits,
    progress: Progress = Listener(),  # noqa: B008 -- frozen
    options: Options | None = None,
    known: Known = NOTHING,
) -> Result:
    """A planner's plan, or the best of all, then local search in the time that is left.

    One planner has as long as it wants, but for the last quarter of the time. What is
    known counts where all are asked.
    """
    start = monotonic()
    if planner is None:
        found = _best_of_all(data, limits, known=known)
    else:
        most = None if limits.time_s is None else limits.time_s * _ONE_SHARE
        found = heuristic(planner, data, replace(limits, time_s=most), options)
    try:
        left = less(limits, monotonic() - start)
        return bounded(improved(found, left, progress.report))
    except KeyboardInterrupt:  # before the search, which keeps what it has
        return bounded(interrupted(found))


def _best_of_all(
    data: Instance,
    limits: Limits,
    part: float = 1.0,
    known: Known = NOTHING,
    others: Sequence[Result] = (),
) -> Result:
    """The best of all planners' results, after walks from the best of them.

    In a `part` of the time that they are given. What is known counts as a result, and
    so do `others`.
    """
    start = monotonic()
    given, results, ended = [*others, *known.results(data)], list[Result](), False
    try:
        for result in in_turn(data, limits, part, given):
            results.append(result)
            ended = result.stop is Stop.INTERRUPTED
    except KeyboardInterrupt:
        if not results and not given:
            raise
        ended = True
    # Ties are broken by name, but what was found here stands before what was known.
    results = sorted(results, key=lambda result: result.method.name) + given
    best = _best(results)
    if ended:
        return interrupted(best)
    left = less(limits, monotonic() - start)
    return improved_from_several(best, results, left, part)


def in_turn(
    data: Instance,
    limits: Limits,
    part: float = 1.0,
    known: Iterable[Result] = (),
    started: Callable[[str], None] = lambda name: None,
) -> Iterator[Result]:
    """Results of every planner in a share of the time, until one is interrupted.

    What a planner leaves of its share goes to those after it. Quick ones go first, and
    while there is no plan, not among the `known` either, the quickest may take all the
    time; where they took the planners' part, the others are not asked.
    """
    names = [*dict.fromkeys((*QUICK, *GOOD, *planners_for("training_plan")))]
    if len(data.planned_cluster.nodes) > _LARGE:
        names = [*dict.fromkeys(("islands", *names))]
    divided = data.workload.costs.expert_parallel > 1
    if divided or not data.workload.target.free:  # the exact method searches grids
        names = ["megatron", "grid"]
    began, whole = monotonic(), limits.time_s
    left = 0.0 if whole is None else part * _for_planners(whole)
    planned = any(result.plan is not None for result in known)
    for waiting, name in zip(range(len(names), 0, -1), names, strict=True):
        seconds = None
        if whole is not None:
            if name in _PARTS:
                seconds = left / _PARTS[name][planned]
            elif name not in _SOONEST:  # none of them eats the clock
                parts = 2 if name in GOOD else waiting
                seconds = min(left / parts, part * whole * _PLANNER_SHARE)
            elif planned:
                seconds = left / _SOON_PART
            else:
                seconds = max(0.0, whole - (monotonic() - began))
        started(name)
        result = heuristic(name, data, replace(limits, time_s=seconds), attempt=tried)
        planned = planned or result.plan is not None
        yield result
        if result.stop is Stop.INTERRUPTED:
            return
        if whole is not None:
            left -= result.seconds["solve"]
            if left <= 0:  # the tables of the others alone would take longer
                return


def _for_planners(seconds: float) -> float:
    """What all planners together have of the time."""
    least = min(_PLANNERS_LEAST_S, seconds * _PLANNERS_MOST_SHARE)
    return max(seconds * _PLANNERS_SHARE, least)


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


def _compared(
    instance: Instance,
    known: Known,
    planners: list[str],
    exact: bool,
    limits: Limits,
    progress: Progress,
) -> Iterator[Result]:
    """Results of the planners, then what `plan` finds from the best of them."""
    results: list[Result] = []
    for name in planners:
        progress.started(f"{instance.name}: {name}")
        results.append(bounded(heuristic(name, instance, limits, attempt=tried)))
        yield results[-1]
    if exact:
        progress.started(f"{instance.name}: exact")
        yield planned(instance, known, limits, progress, results, exact=True)


def _refuse_one_name_for_two(instances: list[Instance]) -> None:
    """A report is read by names: one name must not stand for two instances."""
    digests: dict[str, str] = {}
    for instance in instances:
        if digests.setdefault(instance.name, instance.digest) != instance.digest:
            raise MixedData(
                f"two different instances are named {instance.name!r}: rename one"
            )


def _refuted(result: Result) -> Result:
    """The result, or where it has no plan the proof that there is none.

    By counting GPUs, where that tells; not after Ctrl-C.
    """
    if result.status is not Status.UNDECIDED or result.stop is Stop.INTERRUPTED:
        return result
    if (why := covering.reason(result.data)) is None:
        return result
    return replace(result, reasons=(why,), status=Status.INFEASIBLE, stop=Stop.PROVED)


def remedied(result: Result, limits: Limits) -> Result:
    """The result with remedies among its reasons, where it has no plan.

    They are looked for after the work, for at most ten seconds of the time that the
    limits still leave; not after Ctrl-C.
    """
    if result.plan is not None or result.stop is Stop.INTERRUPTED:
        return result
    if result.problem != "training_plan" or not isinstance(result.data, Instance):
        return result
    if unfit_settings(result.data):
        return result  # memory is not what is short
    seconds = _MOST_S if limits.time_s is None else min(_MOST_S, limits.time_s)
    start = monotonic()
    found = tuple(
        choosing.remedies(result.data, deadline=start + seconds, seed=limits.seed)
    )
    spent = {**result.seconds, "remedies": monotonic() - start}
    return replace(result, reasons=(*result.reasons, *found), seconds=spent)
