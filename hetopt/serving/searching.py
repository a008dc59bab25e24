"""A plan while one watches: planners in turn, local search, then the exact method.

It is the way of `hetopt plan`, taken in steps of the public interface, so that every
planner's plan is heard of as soon as it is there, and the cheap bound before all.
"""

from collections.abc import Callable
from dataclasses import replace
from time import monotonic
from typing import Protocol

from .. import api, registry
from ..api.improving import is_small
from ..errors import Unsupported
from ..result import Result, Status, Stop
from ..schema import Instance

# The quick ones first: there is a plan soon. What others add comes behind them.
PLANNERS = ("megatron", "grid", "islands", "autohet", "hexiscale", "whale", "metis")
# Of the time: all planners, each at most, local search; the exact method has the rest.
_ALL, _EACH, _WALK = 0.3, 0.1, 0.25


class Hearing(Protocol):
    """Hears how far the work is; objectives and bounds are in us."""

    def began(self, what: str) -> None:
        """A planner, `local search` or `exact method` begins."""

    def knows(self, incumbent: int | None, bound: int | None) -> None:
        """The best plan so far, and what is proved; never worse than before."""

    def tried(self, planner: str, found: Result) -> None:
        """A planner is through."""


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


def searched(data: Instance, time_s: float, hearing: Hearing) -> Result | None:
    """The best plan that is found in so many seconds, with the best bound.

    Ctrl-C ends it and keeps what there is: None where that is nothing.
    """
    best = _Best(hearing)
    try:
        _work(data, monotonic() + time_s, time_s, best)
    except KeyboardInterrupt:
        if best.result is None:
            return None
        return replace(best.result, stop=Stop.INTERRUPTED)
    return best.result


def _work(data: Instance, end: float, time_s: float, best: _Best) -> None:
    def left() -> float:
        return max(0.0, end - monotonic())

    best.know(None, int(api.no_plan_is_shorter(data).value))
    there = registry.known_for("planners", "training_plan")  # loads them: a second
    until = monotonic() + left() * _ALL
    for name in (name for name in PLANNERS if name in there):
        share = min(until - monotonic(), time_s * _EACH)
        if share <= 0:
            break
        best.hearing.began(name)
        found = api.plan(data, name, limits=share)
        goes_on = best.take(found)  # it is kept before anybody can stop the work
        best.hearing.tried(name, found)
        if not goes_on:
            return
    first = best.result
    if first is None or first.plan is None:
        best.hearing.began("all planners, and the exact method")
        best.take(api.plan(data, limits=left(), progress=best.know))
        return
    _closed_in(data, first, time_s, left, best)


def _closed_in(
    data: Instance, first: Result, time_s: float, left: Callable[[], float], best: _Best
) -> None:
    """Better plans from the best one, and proofs.

    Where the exact method looks at every plan it goes first: it leaves none better.
    """

    def walked() -> bool:
        best.hearing.began("local search")
        share, name = min(left(), time_s * _WALK), first.method.name
        heard = best.know
        found = api.plan(data, name, improve=True, limits=share, progress=heard)
        return best.take(found)

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
