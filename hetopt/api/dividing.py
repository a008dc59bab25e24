"""Methods on instances that offer several ways to divide sequences and experts.

Context parallelism and expert parallelism are of the whole plan, and a method sees one
way at a time, those with the least bound first, until none can be better. The best plan
wins; what no way beats is a bound. So are planners of offers asked for each variant of
a provisioning problem.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from time import monotonic
from typing import TypeVar

from .. import capability
from ..bounds.training_plan import training_plan_bound
from ..errors import Interrupted, NoPlan, keeping
from ..modelling import Limits
from ..plans import Provisioning, TrainingPlan
from ..problems import Objective, provisioning, training_plan
from ..problems.provisioning import Data
from ..problems.training_plan import settings
from ..result import Bound, Result, Status, Stop
from ..schema import Instance, Split
from ..search import attempts
from ..solving.certificates import (
    BoxCertificate,
    Certificate,
    TrainingCertificate,
    joined,
)

_STOPS = {Stop.INTERRUPTED: 0, Stop.TIME: 1}  # what ended one way ended all, first
_SHARES = 3  # of the time that is left, one is for the next way
_Item = TypeVar("_Item")
_Make = Callable[[Instance, float | None], TrainingPlan | None]


def ways_of(planner: str, data: Instance) -> list[Instance]:
    """The instance once for each way that a planner carries.

    Raises `Unsupported` where it carries none.
    """
    ways, method = settings.divided(data), f"planner {planner}"
    known = [way for way in ways if capability.carries(method, way)]
    if not known:
        capability.require(method, ways[0])
    return known


def best_of(
    ways: Sequence[Instance], make: _Make, deadline: float | None
) -> tuple[Instance, TrainingPlan | None]:
    """The best plan that `make` finds, with its way; raises what the last one does."""
    if len(ways) == 1:
        return ways[0], make(ways[0], deadline)
    found: tuple[int, Instance, TrainingPlan] | None = None
    failed: NoPlan | None = None
    for (way, bound), until in _in_turn(_by_bound(ways), deadline):
        if found is not None and bound.value >= found[0]:
            break  # nor does any way behind it have a better plan
        try:
            plan = make(way, until)
        except NoPlan as error:
            failed = error
            continue
        if plan is None:
            continue
        judged = training_plan.evaluate(way, plan)
        value = judged.objective
        if not (judged.valid and isinstance(value, int)):
            continue
        if found is None or value < found[0]:
            found = value, way, plan
    if found is None:
        if failed is not None:
            raise failed
        return ways[0], None
    return found[1], found[2]


def rented(
    data: Data,
    make: Callable[[Data, float | None], Provisioning],
    deadline: float | None,
) -> Provisioning:
    """The best plan that a planner of offers finds, asked for one variant at a time.

    Raises what the last one does where none has a plan. Ctrl-C takes along the best.
    """
    if not data.variants:
        return make(data, deadline)
    best = _Best(data)
    failed = NoPlan("no variant of the problem has a plan")
    with keeping(lambda: best.plan):
        cases = sorted(((provisioning.least(x), x) for x in data.cases), key=_first)
        for (least, case), until in _in_turn(cases, deadline):
            if best.value is not None and least >= best.value:
                break
            try:
                best.take(make(case, until))
            except NoPlan as error:
                failed = error
            except Interrupted as signal:
                best.take(signal.best)
                raise KeyboardInterrupt from None
    if best.plan is None:
        raise failed
    return best.plan


class _Best:
    """The best plan so far; one that the judge refuses is `PlanRejected`."""

    def __init__(self, data: Data) -> None:
        self._data = data
        self.plan: Provisioning | None = None
        self.value: Objective | None = None

    def take(self, plan: Provisioning) -> None:
        _, found = attempts.judged(
            "provisioning", self._data, "a planner of offers", plan
        )
        if found.objective is not None and (
            self.value is None or found.objective < self.value
        ):
            self.plan, self.value = plan, found.objective


def _first(pair: tuple[Objective, Data]) -> Objective:
    return pair[0]


def _by_bound(ways: Sequence[Instance]) -> list[tuple[Instance, Bound]]:
    """The ways with what no plan of each beats, the least first."""
    pairs = [(way, training_plan_bound(way)) for way in ways]
    return sorted(pairs, key=lambda pair: pair[1].value)


def _in_turn(
    items: Sequence[_Item], deadline: float | None
) -> Iterator[tuple[_Item, float | None]]:
    """Every item with the end of its share of the time: the first ones may have more.

    They are the most promising; where they need less, it is left to those behind.
    """
    for number, item in enumerate(items):
        if deadline is None:
            yield item, None
            continue
        now = monotonic()
        shares = min(len(items) - number, _SHARES)
        yield item, now + max(0.0, deadline - now) / shares


def solved(
    ways: Sequence[Instance],
    limits: Limits,
    solve: Callable[[Instance, Limits], Result],
) -> Result:
    """What an exact method finds over all ways, each by `solve`, as one result."""
    start = monotonic()
    end = None if limits.time_s is None else start + limits.time_s
    found: dict[Split, Result] = {}
    waiting = _by_bound(ways)
    bounds = {way.workload.costs.split: bound for way, bound in waiting}
    while waiting:
        for (way, bound), until in _in_turn(waiting, end):
            best = _best(found.values())
            if _interrupted(found.values()) or (
                best and bound.value >= (best.objective or 0)
            ):
                continue
            left = None if until is None else max(0.0, until - monotonic())
            mine = way.workload.costs.split
            found[mine] = solve(way, replace(limits, time_s=left))
            if found[mine].status is Status.INFEASIBLE:
                bounds.pop(mine, None)
            else:
                bounds[mine] = found[mine].bound or bound
        waiting = _cut_short(waiting, found, end)
    spent = {"solve": monotonic() - start}
    results = [found.get(way.workload.costs.split) for way in ways]
    proofs = [result and result.certificate for result in results]
    together = _together([*found.values()], [*bounds.values()])
    whole = _joined([*zip(ways, proofs, strict=True)])
    return replace(together, certificate=whole, seconds=spent)


def _cut_short(
    waiting: Sequence[tuple[Instance, Bound]],
    found: Mapping[Split, Result],
    end: float | None,
) -> list[tuple[Instance, Bound]]:
    """Ways whose share of the time was too short, where others left some of theirs.

    Only while there is no plan.
    """
    over = end is not None and monotonic() >= end
    if over or _interrupted(found.values()) or _best(found.values()):
        return []
    return [
        (way, bound)
        for way, bound in waiting
        if found[way.workload.costs.split].stop is Stop.TIME
    ]


def _interrupted(results: Iterable[Result]) -> bool:
    return any(result.stop is Stop.INTERRUPTED for result in results)


def _joined(
    proofs: Sequence[tuple[Instance, object]],
) -> TrainingCertificate | BoxCertificate | None:
    """One certificate of those of all ways, in the order of `settings.variants`.

    None where one of them has none, or not one for each of its own variants.
    """
    return _joined_of(proofs, TrainingCertificate) or _joined_of(proofs, BoxCertificate)


def _joined_of(
    proofs: Sequence[tuple[Instance, object]], kind: type[Certificate]
) -> Certificate | None:
    """The same of certificates of one kind."""
    pairs: list[tuple[int, Certificate]] = []
    for way, proof in proofs:
        if not isinstance(proof, kind):
            return None
        mine: Certificate = proof
        each = (mine.model_copy(update={"further": ()}), *mine.further)
        zeros = [one.workload.costs.zero for one in settings.variants(way)]
        if len(each) != len(zeros):
            return None
        pairs += zip(zeros, each, strict=True)
    return joined([one for _, one in sorted(pairs, key=lambda pair: pair[0])])


def _best(results: Iterable[Result]) -> Result | None:
    planned = [result for result in results if result.objective is not None]
    return min(planned, key=lambda result: result.objective or 0, default=None)


def _together(results: Sequence[Result], bounds: Sequence[Bound]) -> Result:
    """The best result, with what no way beats; `bounds` of all that may have plans."""
    if not bounds:  # no way has any plan, each for a reason of its own
        told = dict.fromkeys(reason for each in results for reason in each.reasons)
        return replace(results[0], reasons=tuple(told))
    least = min(bounds, key=lambda bound: bound.value)
    best = _best(results)
    if best is None or best.objective is None:
        unknown = [r for r in results if r.status is not Status.INFEASIBLE]
        first = min(unknown, key=lambda result: _STOPS.get(result.stop, len(_STOPS)))
        return replace(first, bound=least)
    if least.value >= best.objective:
        proved = Bound(best.objective, least.source)
        return replace(best, status=Status.OPTIMAL, stop=Stop.PROVED, bound=proved)
    stop = Stop.FINISHED if best.stop is Stop.PROVED else best.stop
    stop = Stop.INTERRUPTED if _interrupted(results) else stop
    return replace(best, status=Status.FEASIBLE, stop=stop, bound=least)
