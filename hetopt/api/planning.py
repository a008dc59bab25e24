"""Training plans: by one planner, by all of them, or by the exact method."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from .. import portfolio, problems, registry
from ..clock import monotonic
from ..errors import Unsupported
from ..modelling import Limits
from ..portfolio.absence import add_remedies, with_refutation
from ..problems.training_plan import support
from ..result import Result
from .calling import (
    AnyInstance,
    AnyLimits,
    AnyProgress,
    Options,
    Progress,
    done,
    limits_of,
    progress_of,
    refuse_unknown,
    working,
)
from .judging import load
from .margins import warned
from .plugins import Plugin, named
from .solving import NO_PLANNER
from .starts import NOTHING, AnyStart, Known, known_of


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
    An instance that generates (`workload.generation`) is planned as post-training, but
    by a planner that is named, and with `improve`, which look at training alone.
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
        _refuse(name, options, exact=exact, improve=improve)
        if name is not None and start is not None:
            both = "planner and start exclude each other: a planner makes its own plan"
            raise Unsupported(f"{both}; leave one out")
        if data.workload.generation is not None and name is None and not improve:
            if start is not None:
                raise Unsupported("start is for training alone: leave it out")
            posed = problems.get("post_training").data(data)
            return done(exactly("post_training", posed, (), heard, left), asked)
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
            found = exactly("training_plan", data, given, heard, left)
        else:
            found = portfolio.search(data, left, given, heard.report)
        left = whole.after(monotonic() - began)
        if name is not None:  # then the planner's own reason is the answer
            return done(warned(with_remedies(found, left)), asked)
        return done(warned(answered(found, beforehand, left)), asked)


def _refuse(
    name: str | None, options: Options | None, *, exact: bool, improve: bool
) -> None:
    """Raise `Unsupported` for what cannot be asked for together."""
    if name is None and options:
        raise Unsupported(NO_PLANNER)
    if name is not None and exact:
        raise Unsupported("planner and exact exclude each other: choose one")
    if name is not None:
        known = registry.known_for("planners", "training_plan")
        refuse_unknown("planner", [name], known)
    if improve and exact:
        raise Unsupported(
            "improve and exact exclude each other, as the exact method includes local "
            "search: leave improve out"
        )


def exactly(
    problem: str, data: Any, given: Sequence[Result], progress: Progress, limits: Limits
) -> Result:
    """Return what the exact method finds, from the first of the results given."""
    if not given:
        return portfolio.exactly(problem, data, limits, None, progress.report)
    found = portfolio.exactly(problem, data, limits, given[0].plan, progress.report)
    return replace(found, started_from=given[0].started_from)


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
