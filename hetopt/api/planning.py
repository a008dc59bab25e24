"""Training plans: by one planner, by all of them and the exact method, side by side."""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from functools import partial

from .. import portfolio, registry
from ..clock import monotonic
from ..errors import MixedData, Unsupported
from ..gaps import GapReport, Reference
from ..modelling import Limits
from ..portfolio.absence import add_remedies, with_refutation
from ..problems.training_plan import support
from ..result import Result, Stop
from ..schema import Instance
from .calling import (
    AnyInstance,
    AnyLimits,
    AnyProblem,
    AnyProgress,
    Options,
    Progress,
    done,
    limits_of,
    progress_of,
    refuse_unknown,
    several,
    worked,
    working,
)
from .comparing import (
    PORTFOLIO,
    Chosen,
    ask,
    conditions,
    problem_of,
    report_of,
)
from .judging import load
from .plugins import Plugin, named
from .solving import NO_PLANNER
from .starts import NOTHING, AnyStart, Known, known_of, quoted


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
    """Plan a training run, by the portfolio, one planner, or the exact method.

    In the portfolio planners work in turn, and the exact method goes on from the best
    of their plans; where a plan chooses its settings, a race of these
    (`hetopt.search.racing`) takes the planners' place. `hetopt.portfolio.shares` says
    how long each has. Where the exact method cannot carry the instance, that plan is
    improved by local search, and returned with a bound. With `exact` the exact method
    has all of the time, and finds its plans by itself: `Unsupported` where it cannot
    carry the instance.
    With `improve` a local search takes the exact method's place, on the plan of that
    one planner, which has at most three quarters of the time, or on the best of all
    planners' plans: the result is never worse than that plan.
    The search starts from the best plan that is known beforehand (`hetopt.api.starts`):
    of those that `start` gives and the library's, whose bound counts as well; the
    result's `started_from` names it. With `known` false only
    `start` is used. A planner that was named is asked alone, whatever is known.
    A planner is a name, a Python file, or a function (`hetopt.api.plugins`).
    `options` are of that one planner, by name (`options_of`). `runs_on` asks for the
    best plan that a target can run (`hetopt.schema.targets`), not the workload's own.
    Without a plan the reasons say which settings of recomputation and ZeRO would fit.
    Raises what `load` raises, `InstanceError` for an instance with offers,
    `UnknownName` for an unknown planner, and `Unsupported` where the program that has
    to run the plan can run none of the instance.
    """
    asked, heard = limits_of(limits, counts_work=True), progress_of(progress)
    with working(asked) as whole:
        began = monotonic()
        data = load(instance)
        if runs_on is not None:
            data = data.on(runs_on)
        # What took long to read takes as long to judge and to write at the end.
        left = whole.after(2 * (monotonic() - began))
        _ = data.planned_cluster
        support.require(data)
        name = None if planner is None else named(planner)
        _refuse(name, options, start, exact=exact, improve=improve)
        beforehand = NOTHING
        if name is None:
            beforehand = known_of(data, start, library=known)
        given = beforehand.results(data)
        if improve:
            found = portfolio.improve(
                *(data, left, given, heard.report), planner=name, options=options
            )
        elif name is not None:
            found = portfolio.with_bound(portfolio.ask(name, data, left, options))
        elif exact:
            found = _exactly(data, given, heard, left)
        else:
            found = portfolio.search(data, left, given, heard.report)
        left = whole.after(monotonic() - began)
        if name is not None:  # then the planner's own reason is the answer
            return done(with_remedies(found, left), asked)
        return done(answered(found, beforehand, left), asked)


def _refuse(
    name: str | None,
    options: Options | None,
    start: AnyStart,
    *,
    exact: bool,
    improve: bool,
) -> None:
    """Raise `Unsupported` for what cannot be asked for together."""
    if name is None and options:
        raise Unsupported(NO_PLANNER)
    if name is not None and exact:
        raise Unsupported("planner and exact exclude each other: choose one")
    if name is not None:
        known = registry.known_for("planners", "training_plan")
        refuse_unknown("planner", [name], known)
    if name is not None and start is not None:
        raise Unsupported(
            "planner and start exclude each other: a planner makes its own plan; "
            "leave one out"
        )
    if improve and exact:
        raise Unsupported(
            "improve and exact exclude each other, as the exact method includes local "
            "search: leave improve out"
        )


def _exactly(
    data: Instance, given: Sequence[Result], progress: Progress, limits: Limits
) -> Result:
    """Return what the exact method finds, from the first of the results given."""
    start = given[0] if given else None
    plan = None if start is None else start.plan
    found = portfolio.exactly("training_plan", data, limits, plan, progress.report)
    return found if start is None else replace(found, started_from=start.started_from)


def answered(found: Result, known: Known, limits: Limits) -> Result:
    """Return what the portfolio found with all that is known of the instance.

    The library's bound counts, and where there is no plan its reasons are looked for,
    within the time that is left.
    """
    began = monotonic()
    found = with_refutation(known.bounded(found), limits)
    return with_remedies(found, limits.after(monotonic() - began))


def with_remedies(found: Result, limits: Limits) -> Result:
    """Return the result with remedies where it has no plan; without, after Ctrl-C."""
    try:
        return add_remedies(found, limits)
    except KeyboardInterrupt:
        return portfolio.as_interrupted(found)


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
    known: bool = False,
    limits: AnyLimits = 60,
    progress: AnyProgress = None,
) -> GapReport:
    """Compare planners, and with `exact` the exact method as well.

    The default is all planners; `portfolio` is what `plan` does without a planner.
    Every method has the whole time limit and starts from nothing. A row quotes what the
    library has; no summary counts it. Gaps are to the best bound that a method of this
    report or the library has proved. The plans of `start`, and with `known` the best
    known plans (`hetopt.api.starts`), are given to the exact method and the portfolio,
    whose rows are marked. `runs_on` as in `plan`. Raises as `plan` does, before any
    work is done.

    With a `problem` that the instances pose, with these `options` (`api.pose`), and for
    problem files, the rows are all methods of that problem: its planners, its
    `statements` on each of the `backends` that carry them, and unless `exact` is false
    the exact method, each with the whole time limit.
    """
    asked, heard = limits_of(limits, counts_work=True), progress_of(progress)
    given_as = several(instances)
    stated: str | None = None
    first: Instance | None = None
    if problem is None and given_as:
        stated, first = problem_of(given_as[0])
    if problem is not None or stated is not None:
        if runs_on is not None or start is not None:
            raise Unsupported(
                "runs_on and start are for training plans only: leave them out"
            )
        wanted = Chosen(planners, statements, backends, exact is not False)
        if known:
            raise Unsupported("known is for training plans only: leave it out")
        return report_of(given_as, problem, options, wanted, asked, heard)
    if statements or backends or options:
        raise Unsupported(
            "statements, backends and options need a problem: name it, such as "
            "training_plan"
        )
    loaded = _instances_of(given_as, first, runs_on)
    chosen = Chosen(planners).planners_of("training_plan")
    before = [known_of(data, start) for data in loaded]
    given = before
    if not known:
        given = [known_of(data, start, library=False) for data in loaded]
    results, references = list[Result](), dict[str, Reference]()
    try:
        for instance, beforehand, starts in zip(loaded, before, given, strict=True):
            references[instance.digest] = beforehand.reference(instance)
            mine = starts.results(instance)
            rows = _compare_planners(
                instance, mine, chosen, asked, heard, exact=bool(exact)
            )
            for result in rows:
                results.append(result)
                if result.stop is Stop.INTERRUPTED:
                    raise KeyboardInterrupt
            kept = quoted("training_plan", instance, beforehand.best_known)
            results += [] if kept is None else [kept]
    except KeyboardInterrupt:
        if not results:
            raise
    return GapReport.of(results, references, conditions=conditions(asked))


# --- how it is done --------------------------------------------------------------


def _instances_of(
    given_as: Sequence[AnyInstance], first: Instance | None, runs_on: str | None
) -> list[Instance]:
    """Return the instances to compare on, the first of which may be loaded already.

    Raises where one cannot be planned, or where two have one name.
    """
    loaded = [load(instance) for instance in given_as[first is not None :]]
    loaded = loaded if first is None else [first, *loaded]
    if runs_on is not None:
        loaded = [instance.on(runs_on) for instance in loaded]
    for instance in loaded:
        _ = instance.planned_cluster
        support.require(instance)
    _refuse_one_name_for_two(loaded)
    return loaded


def _compare_planners(
    instance: Instance,
    given: list[Result],
    planners: list[str],
    limits: Limits,
    progress: Progress,
    *,
    exact: bool,
) -> Iterator[Result]:
    """Results of the planners, then the exact method's; both say what was given."""
    source = given[0].started_from if given else None
    for name in planners:
        progress.started(f"{instance.name}: {name}")
        found = worked(limits, partial(ask, name, instance, progress, given))
        yield replace(found, started_from=source if name == PORTFOLIO else None)
    if exact:
        progress.started(f"{instance.name}: exact")
        yield worked(limits, partial(_exactly, instance, given, progress))


def _refuse_one_name_for_two(instances: list[Instance]) -> None:
    """A report is read by names: one name must not stand for two instances."""
    digests: dict[str, str] = {}
    for instance in instances:
        if digests.setdefault(instance.name, instance.digest) != instance.digest:
            raise MixedData(
                f"two different instances are named {instance.name!r}: rename one"
            )
