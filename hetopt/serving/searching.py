"""A plan while one watches: planners in turn, local search, then the exact method.

It is the way of `hetopt plan` from the same starts, taken in steps, so that every
planner's plan is heard of as soon as it is there, and the cheap bound before all.
"""

from collections.abc import Callable
from dataclasses import replace
from time import monotonic
from typing import Protocol

from .. import api, registry
from ..api.improving import improved, is_small
from ..api.planning import GOOD, QUICK, in_turn, waited
from ..api.solving import bounded
from ..api.starts import NOTHING, Known
from ..errors import Unsupported
from ..modelling import Limits
from ..problems.training_plan import support
from ..result import Result, Status, Stop
from ..schema import Instance

PLANNERS = (*QUICK, *GOOD)  # in this order, before the others
_WALK = 0.25  # of the time, for local search; the exact method has the rest


class Hearing(Protocol):
    """Hears how far the work is; objectives and bounds are in us."""

    def began(self, what: str) -> None:
        """A planner, `local search` or `exact method` begins."""

    def knows(self, incumbent: int | None, bound: int | None) -> None:
        """The best plan so far, and what is proved; never worse than before."""

    def tried(self, planner: str, found: Result) -> None:
        """A planner is through; for a plan that is known, where that is from."""


class _Best:
    """The best result so far, and the best bound of all."""

    def __init__(self, hearing: Hearing) -> None:
        self.hearing = hearing
        self.result: Result | None = None
        self.incumbent: int | None = None
        self.bound: int | None = None

    def know(self, incumbent: int | None, bound: int | None) -> None:
        """Take what is better, and pass it on."""
        if incumbent is not None:
            self.incumbent = min(incumbent, self.incumbent or incumbent)
        if bound is not None:
            self.bound = max(bound, self.bound or 0)
        self.hearing.knows(self.incumbent, self.bound)

    def take(self, found: Result) -> bool:
        """Keep a result where it is the best; whether the work goes on.

        `KeyboardInterrupt` where it was interrupted, once it is kept.
        """
        self.result = found if self.result is None else joined(self.result, found)
        whole = found.objective
        bound = found.bound.value if found.bound else None
        self.know(
            None if whole is None else int(whole), None if bound is None else int(bound)
        )
        if found.stop is Stop.INTERRUPTED:
            raise KeyboardInterrupt
        return self.result.status not in (Status.OPTIMAL, Status.INFEASIBLE)


def joined(one: Result, other: Result) -> Result:
    """The better plan of two results, and the better bound; the later one's of equals.

    A result without a plan says more the later it comes.
    """
    mine, theirs = one.objective, other.objective
    if theirs is None:
        best, rest = (other, one) if mine is None else (one, other)
    else:
        later = mine is None or theirs <= mine
        best, rest = (other, one) if later else (one, other)
    if rest.bound is None or best.objective is None:
        return best
    if best.bound is not None and best.bound.value >= rest.bound.value:
        return best
    return replace(best, certificate=rest.certificate).with_bound(rest.bound)


def searched(
    data: Instance, time_s: float, hearing: Hearing, known: Known = NOTHING
) -> Result | None:
    """The best plan that is found in so many seconds, with the best bound.

    It starts from what is known. Ctrl-C ends it and keeps what there is: None where
    that is nothing. Raises `Unsupported` where the program that has to run the plan
    can run none of the instance.
    """
    best, start = _Best(hearing), monotonic()
    stop = None
    try:
        _work(data, start + time_s, time_s, best, known)
    except KeyboardInterrupt:
        stop = Stop.INTERRUPTED
    if best.result is None:
        return None
    found = waited(known.bounded(best.result), monotonic() - start)
    return found if stop is None else replace(found, stop=stop)


def _work(data: Instance, end: float, time_s: float, best: _Best, known: Known) -> None:
    def left() -> float:
        return max(0.0, end - monotonic())

    support.require(data)
    best.know(None, int(api.no_plan_is_shorter(data).value))
    if (proved := known.bound(data)) is not None:
        best.know(None, int(proved.value))
    registry.known_for("planners", "training_plan")  # loads them: a second
    starts = known.results(data)
    for start in starts:
        best.take(start)
        best.hearing.tried(start.method.name, start)
    for found in in_turn(data, Limits(left()), 1.0, starts, best.hearing.began):
        goes_on = best.take(bounded(found))  # kept before anybody can stop the work
        best.hearing.tried(found.method.name, found)
        if not goes_on:
            return
    first = best.result
    if first is None or first.plan is None:
        best.hearing.began("all planners, and the exact method")
        best.take(api.plan(data, start=known, limits=left(), progress=best.know))
        return
    _closed_in(data, time_s, left, best)


def _closed_in(
    data: Instance, time_s: float, left: Callable[[], float], best: _Best
) -> None:
    """Better plans from the best one, and proofs.

    Where the exact method looks at every plan it goes first: it leaves none better.
    """

    def walked() -> bool:
        best.hearing.began("local search")
        start = best.result
        assert start is not None
        share = Limits(min(left(), time_s * _WALK))
        return best.take(bounded(improved(start, share, best.know)))

    def proved(seconds: float) -> bool:
        start = best.result
        assert start is not None
        best.hearing.began("exact method")
        heard = best.know
        try:
            found = api.solve(
                data, warm_start=start.plan, limits=seconds, progress=heard
            )
        except Unsupported:  # of this instance there is no more to know
            return True
        return best.take(found)

    if not is_small(data):
        if walked():
            proved(left())
    elif proved(max(0.0, left() - time_s * _WALK)):
        walked()
