"""Methods on instances that offer several ways to divide sequences and experts.

Context parallelism and expert parallelism are of the whole plan, as the maker of its
cards is where a target joins no others. A method sees one way at a time, those with the
least bound first, until none can be better. The best plan wins; what no way beats is a
bound. So are planners of offers asked for each variant of a provisioning problem.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace
from functools import partial
from operator import itemgetter
from typing import Any, NamedTuple

from .. import capability
from ..bounds.training_plan import training_plan_bound
from ..clock import monotonic, wall
from ..modelling import Limits
from ..problems import Objective, provisioning
from ..problems.training_plan import settings
from ..result import Bound, Result, Status, Stop
from ..schema import Instance
from ..search import choices
from ..search.quick import in_turn
from ..solving.certificates import BoxCertificate, joined
from .shares import PORTFOLIO

#: The first ones, which are the most promising, may have more time than those behind.
_shared = partial(in_turn, most=PORTFOLIO.variants, stops=False)
_STOPS = {Stop.INTERRUPTED: 0, Stop.TIME: 1}  # what ended one way ended all, first


class Variant(NamedTuple):
    """A form of the data that a planner takes, and how its plans are read back.

    No plan of it is better than `least`, which is None where that is not asked for;
    `until` is a `clock.monotonic()` instant.
    """

    data: Any
    until: float | None
    least: Objective | None
    said: Callable[[Any], object]


def of_planner(
    planner: str, problem: str, data: Any, deadline: float | None
) -> Iterator[Variant]:
    """Yield the variants of the data that a planner carries, the most promising first.

    Each ends with its share of the time until then. Raises `Unsupported` where the
    planner carries none.
    """
    if problem == "provisioning" and data.variants:
        cases = [(one, provisioning.least(one)) for one in data.cases]
        cases.sort(key=itemgetter(1))
        for (case, least), until in _shared(cases, deadline):
            yield Variant(case, until, least, _as_it_is)
        return
    if problem != "training_plan":
        yield Variant(data, deadline, None, _as_it_is)
        return
    ways = [settings.on_target(way) for way in _variants_for(planner, data)]
    if len(ways) == 1:
        yield Variant(ways[0], deadline, None, _translation(data, ways[0]))
        return
    for (way, bound), until in _shared(_by_bound(ways), deadline):
        yield Variant(way, until, bound.value, _translation(data, way))


def _translation(data: Instance, twin: Instance) -> Callable[[Any], object]:
    """Return what makes plans of the data of plans of a twin: they say its settings."""
    return _as_it_is if twin is data else partial(choices.said, data, twin)


def _as_it_is(plan: object) -> object:
    return plan


def _variants_for(planner: str, data: Instance) -> list[Instance]:
    ways, method = settings.split_variants(data), f"planner {planner}"
    known = [way for way in ways if capability.carries(method, way)]
    if not known:
        capability.require(method, ways[0])
    return known


def _by_bound(ways: Sequence[Instance]) -> list[tuple[Instance, Bound]]:
    """Return the ways with what no plan of each beats, the least first."""
    pairs = [(way, training_plan_bound(way)) for way in ways]
    return sorted(pairs, key=lambda pair: pair[1].value)


def solve_variants(
    ways: Sequence[Instance],
    limits: Limits,
    solve: Callable[[Instance, Limits], Result],
) -> Result:
    """Solve every variant by `solve`, and return one result for all of them."""
    start = wall()
    end = None if limits.time_s is None else monotonic() + limits.time_s
    found: dict[str, Result] = {}
    waiting = _by_bound(ways)
    bounds, late = {way.digest: bound for way, bound in waiting}, False
    for (way, bound), until in _shared(waiting, end):
        best = _best(found.values())
        if _is_interrupted(found.values()) or (
            best and bound.value >= (best.objective or 0)
        ):
            continue
        if found and end is not None and monotonic() >= end:
            late = True
            break
        left = None if until is None else max(0.0, until - monotonic())
        mine = way.digest
        found[mine] = solve(way, replace(limits, time_s=left))
        if found[mine].status is Status.INFEASIBLE:
            bounds.pop(mine, None)
        else:
            bounds[mine] = found[mine].bound or bound
    spent = {"solve": wall() - start}
    results = [found.get(way.digest) for way in ways]
    proofs = [result and result.certificate for result in results]
    together = _together([*found.values()], [*bounds.values()])
    if late and together.stop is Stop.FINISHED:
        together = replace(together, stop=Stop.TIME)
    whole = _join([*zip(ways, proofs, strict=True)])
    return replace(together, certificate=whole, seconds=spent)


def _is_interrupted(results: Iterable[Result]) -> bool:
    return any(result.stop is Stop.INTERRUPTED for result in results)


def _join(proofs: Sequence[tuple[Instance, object]]) -> BoxCertificate | None:
    """One certificate of those of all ways, in the order of `settings.variants`.

    None where one of them has none, or not one for each of its own variants.
    """
    pairs: list[tuple[int, BoxCertificate]] = []
    for way, proof in proofs:
        if not isinstance(proof, BoxCertificate):
            return None
        each = (proof.model_copy(update={"further": ()}), *proof.further)
        zeros = [one.workload.costs.updates.zero for one in settings.variants(way)]
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
        if not unknown:  # ways that nobody looked at may have some
            open_ = replace(results[0], status=Status.UNDECIDED, stop=Stop.TIME)
            return replace(open_, bound=least, reasons=())
        first = min(unknown, key=lambda result: _STOPS.get(result.stop, len(_STOPS)))
        return replace(first, bound=least)
    if least.value >= best.objective:
        proved = Bound(best.objective, least.source)
        return replace(best, status=Status.OPTIMAL, stop=Stop.PROVED, bound=proved)
    stop = Stop.FINISHED if best.stop is Stop.PROVED else best.stop
    stop = Stop.INTERRUPTED if _is_interrupted(results) else stop
    return replace(best, status=Status.FEASIBLE, stop=stop, bound=least)
