"""The search for a training plan: planners in turn, then the exact method."""

from collections.abc import Sequence
from dataclasses import replace
from fractions import Fraction
from functools import partial

from .. import registry
from ..bounds import impossible
from ..bounds.training_plan import training_plan_bound
from ..clock import monotonic, wall
from ..errors import Interrupted, Unsupported
from ..exact.pipelines.schedule import Schedule, Shares
from ..modelling import Limits
from ..plans import TrainingPlan
from ..problems import Objective
from ..problems.training_plan import settings
from ..result import Method, Result, Status, Stop, TracePoint
from ..schema import Instance
from ..search import racing
from ..search.improving import Search
from ..solving.heuristic import Heuristic
from ..solving.run import Report
from .absence import with_refutation
from .asking import Options, as_interrupted, ask, exactly, with_bound
from .shares import PORTFOLIO
from .turns import in_turn, order


def silence(incumbent: object, bound: object) -> None:
    """Tell nobody what is known."""


class Closing:
    """Reports incumbents and bounds that are better than before, and nothing else.

    `trace` has all that was reported, with the seconds since this one began.
    """

    def __init__(self, report: Report) -> None:
        self.trace: list[TracePoint] = []
        self._start = wall()
        self._tell = report
        self._incumbent: int | None = None
        self._bound: int | None = None

    def knows(self, incumbent: Objective | None, bound: Objective | None) -> None:
        """Tell what is better than before, with what is known beside it."""
        before = self._incumbent, self._bound
        if incumbent is not None:
            mine = self._incumbent
            self._incumbent = int(incumbent if mine is None else min(incumbent, mine))
        if bound is not None:
            mine = self._bound
            self._bound = int(bound if mine is None else max(bound, mine))
        if before != (self._incumbent, self._bound):
            seconds = wall() - self._start
            self.trace.append(TracePoint(seconds, self._incumbent, self._bound))
            self._tell(self._incumbent, self._bound)

    def takes(self, found: Result) -> None:
        """Tell what a result is better in."""
        self.knows(found.objective, found.bound.value if found.bound else None)


def search(
    data: Instance,
    limits: Limits,
    given: Sequence[Result] = (),
    report: Report = silence,
) -> Result:
    """Return the best plan by all planners, then by the exact method.

    It goes on from the results that are `given`. Where the exact method cannot carry
    the instance, the plan is returned with a cheap bound. Ctrl-C ends the work and
    keeps what there is; it is raised where that is nothing. The result is the
    portfolio's, and so is its trace: planners' plans count from when they were there,
    what is given from the beginning.
    """
    began, made, known = wall(), list[Result](), Closing(report)
    try:
        found = _search(data, limits, given, known, made)
    except KeyboardInterrupt:  # wherever it came, what was made is kept
        if not made and not given:
            raise
        found = with_bound(as_interrupted(least([*made, *given])))
        known.takes(found)
    method = Method(
        "portfolio",
        "exact" if found.method.kind == "exact" else "heuristic",
        backend=found.method.backend,
        version=registry.version(),
        seed=limits.seed,
        threads=limits.threads,
    )
    # Its seconds are all of them: what is not told by parts the planners took.
    rest = wall() - began - sum(found.seconds.values())
    spent = {"planners": rest, **found.seconds} if rest > 0 else found.seconds
    return replace(found, method=method, trace=tuple(known.trace), seconds=spent)


def _search(
    data: Instance,
    limits: Limits,
    given: Sequence[Result],
    known: Closing,
    made: list[Result],
) -> Result:
    """Return what `search` does; every result is put into `made` when it is there."""
    began = monotonic()
    for result in given:
        known.takes(result)
    enumerates = is_small(data)
    unlike = not enumerates and lines_up(data)
    part = PORTFOLIO.part_before(limits.time_s, enumerates=enumerates, lines_up=unlike)
    best = _by_planners(data, limits, part, given, known, made)
    if best.stop is Stop.INTERRUPTED:
        found = with_bound(best)
    else:
        made.append(best)
        known.takes(with_bound(best))
        left = limits.after(monotonic() - began)
        if best.plan is None and not enumerates and not impossible.reason(data):
            best = with_refutation(best, left.part(PORTFOLIO.refuting_share))
            if best.status is Status.INFEASIBLE:
                return best
            left = limits.after(monotonic() - began)
        try:
            raced = Schedule(shares=Shares(choices=0))  # by planners
            own = {"schedule": raced} if best.plan is not None else {}
            found = exactly("training_plan", data, left, best.plan, known.knows, own)
        except Unsupported:
            found = with_bound(improve_result(best, left, known.knows))
        else:
            found = _with_reasons(found, best)
    made.append(found)
    known.takes(found)
    return found


def improve(
    data: Instance,
    limits: Limits,
    given: Sequence[Result] = (),
    report: Report = silence,
    *,
    planner: str | None = None,
    options: Options | None = None,
) -> Result:
    """Return the best plan of one planner, or of all, after local search from there.

    One planner has as long as it wants, but for the last quarter of the time. What is
    given counts where all are asked.
    """
    start, known = monotonic(), Closing(report)
    if planner is None:
        found = _by_planners(data, limits, 1.0, given, known, [])
    else:
        found = ask(planner, data, limits.part(PORTFOLIO.one_share), options)
    try:
        left = limits.after(monotonic() - start)
        return with_bound(improve_result(found, left, known.knows))
    except KeyboardInterrupt:  # before the search, which keeps what it has
        return with_bound(as_interrupted(found))


def soon(data: Instance, limits: Limits) -> list[TrainingPlan]:
    """Return the plans of the quick planners, which have a share of the time.

    `KeyboardInterrupt` where one is ended.
    """
    names = [name for name in order(data) if name in PORTFOLIO.quick]
    results = [*in_turn(data, limits.part(PORTFOLIO.soon_share), names=names)]
    if any(result.stop is Stop.INTERRUPTED for result in results):
        raise KeyboardInterrupt
    return [one.plan for one in results if isinstance(one.plan, TrainingPlan)]


def first(data: Instance, limits: Limits) -> Result:
    """Return the first plan that is found, a proof that there is none, or neither."""
    began, results = monotonic(), list[Result]()
    for result in in_turn(data, limits.part(PORTFOLIO.explore_share)):
        if result.plan is not None or result.stop is Stop.INTERRUPTED:
            return with_bound(result)
        results.append(result)
    left = replace(limits.after(monotonic() - began), gap=PORTFOLIO.any_gap)
    if limits.time_s and left.time_s == 0:
        return with_bound(least(results))  # the method's tables alone take seconds
    return exactly("training_plan", data, left)


def _by_planners(
    data: Instance,
    limits: Limits,
    part: float,
    given: Sequence[Result],
    known: Closing,
    made: list[Result],
) -> Result:
    """Return the best of all planners' results; each is put into `made`."""
    start, ended, looked, names = monotonic(), False, False, None
    try:
        race = limits.part(part * PORTFOLIO.race_share)
        if (result := _raced(data, race, known)) is not None:
            made.append(result)
            known.takes(result)
            if result.stop is Stop.INTERRUPTED:
                raise KeyboardInterrupt
            if result.plan is not None:  # of planners only those of other packages
                package = partial(registry.package_of, "planners")
                names = [*filter(package, order(data))]
        left = limits.after(monotonic() - start)
        for result in in_turn(data, left, part, given, names=names):
            made.append(result)
            ended = result.stop is Stop.INTERRUPTED
            known.takes(result)
            if result.plan is None and not looked:
                looked = True
                if impossible.reason(data):
                    break  # nor does any other planner find one
    except KeyboardInterrupt:
        if not made and not given:
            raise
        ended = True
    # Ties are broken by name, but what was found here stands before what was known.
    best = least([*sorted(made, key=lambda result: result.method.name), *given])
    return as_interrupted(best) if ended else best


def _raced(data: Instance, limits: Limits, known: Closing) -> Result | None:
    if (
        limits.time_s is None
        or not data.workload.target.free
        or not settings.has_choices(data)
        or is_small(data)
        or impossible.reason(data)
    ):
        return None
    until = monotonic() + limits.time_s
    run = Heuristic("training_plan", data, "settings", limits)
    told = partial(known.knows, bound=None)
    race = partial(racing.raced, data, deadline=until, seed=limits.seed, report=told)
    try:
        run.ask(race, several=True)
    except Interrupted as signal:
        run.keep(signal.best)
        run.stop = Stop.INTERRUPTED
    return run.result()


def least(results: Sequence[Result]) -> Result:
    """Return the result with the least objective, with what failed on the way.

    Without any plan, with all reasons together.
    """
    failed = tuple(why for result in results for why in result.failed)
    planned = [result for result in results if result.objective is not None]
    if planned:
        best = min(planned, key=lambda result: result.objective or 0)
        return replace(best, failed=failed)
    reasons = tuple(why for result in results for why in result.reasons)
    return replace(results[0], reasons=reasons, failed=failed)


def _with_reasons(found: Result, best: Result) -> Result:
    """Return the exact method's result with what planners said before."""
    told = found.reasons
    if found.status is Status.UNDECIDED:  # then the planners' reasons say more
        told = best.reasons + told
    failed = tuple(dict.fromkeys(best.failed + found.failed))
    return replace(found, failed=failed, reasons=told, started_from=best.started_from)


def improve_result(result: Result, limits: Limits, report: Report = silence) -> Result:
    """Return the result with the best plan that local search finds within `limits`.

    Without a plan there is nothing to improve, and the result is returned. The search
    ends early where the cheap bound proves the plan optimal or within `limits.gap`. The
    trace goes on where the result's ends.
    """
    plan = result.plan
    if not isinstance(plan, TrainingPlan) or result.stop is Stop.INTERRUPTED:
        return result
    bound = training_plan_bound(result.data)
    value = bound.value
    # No plan is a million bounds away: an infinite gap is met at once, as it should be.
    share = Fraction(min(limits.gap or 0.0, 1e6))
    target = int(value * (1 + share))
    before, start = sum(result.seconds.values()), wall()
    trace = [*result.trace, TracePoint(before, result.objective, value)]

    def told(objective: int) -> None:
        seconds = before + wall() - start
        trace.append(TracePoint(seconds, objective, value))
        report(objective, value)

    report(result.objective, value)
    search = Search(result.data, plan, seed=limits.seed, target=target, report=told)
    stop = Stop.FINISHED
    try:
        deadline = None if limits.time_s is None else monotonic() + limits.time_s
        search.run(deadline=deadline)
        if deadline is not None and monotonic() >= deadline:
            stop = Stop.TIME
    except KeyboardInterrupt:
        stop = Stop.INTERRUPTED
    spent = result.seconds.get("improve", 0.0) + wall() - start
    found = replace(
        result,
        method=replace(result.method, name=f"{result.method.name}+improve"),
        plan=search.found,
        evaluation=None,
        stop=stop,
        seconds={**result.seconds, "improve": spent},
        trace=tuple(trace),
    ).with_bound(bound)
    return replace(found, stop=_why(found, target))


def _why(found: Result, target: int) -> Stop:
    """Return why the search ended: a proof and a gap say more than the clock."""
    if found.status is Status.OPTIMAL:
        return Stop.PROVED
    reached = isinstance(found.objective, int) and found.objective <= target
    if reached and found.stop is not Stop.INTERRUPTED:
        return Stop.GAP
    return found.stop


def is_small(instance: Instance) -> bool:
    """Return whether the exact method looks at every plan, given the time."""
    from ..exact import enumeration  # as long to load as all that is above

    return instance.workload.target.free and enumeration.is_small(instance)


def lines_up(instance: Instance) -> bool:
    """Tell whether the exact method seeks single pipelines of layers that differ."""
    from ..exact import training_plan

    return instance.workload.target.free and training_plan.lines_up(instance)
