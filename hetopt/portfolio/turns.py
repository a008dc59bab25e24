"""Planners in turn, each with its share of the time."""

from collections.abc import Callable, Iterable, Iterator

from .. import registry
from ..clock import monotonic
from ..modelling import Limits
from ..result import Result, Stop
from ..schema import Instance
from .asking import ask
from .shares import PORTFOLIO


def order(data: Instance) -> list[str]:
    """Return the names of the planners that an instance is planned by, in order."""
    if data.workload.costs.compute.expert_parallel > 1 or not data.workload.target.free:
        return list(PORTFOLIO.of_grids)
    others = registry.entries_for("planners", "training_plan")
    names = [*PORTFOLIO.quick, *PORTFOLIO.good, *others]
    if len(data.planned_cluster.nodes) > PORTFOLIO.large:
        names = [PORTFOLIO.first_if_large, *names]
    return [*dict.fromkeys(names)]


def in_turn(
    data: Instance,
    limits: Limits,
    part: float = 1.0,
    known: Iterable[Result] = (),
    began: Callable[[str], None] = lambda name: None,
    names: Iterable[str] | None = None,
) -> Iterator[Result]:
    """Yield the results of every planner, or of these, until one is interrupted.

    They have a `part` of the planners' share of the time. What a planner leaves of its
    own goes to those after it. While there is no plan, not among the `known` either,
    the soonest may take all the time; where they took the planners' part, the others
    are not asked.
    """
    asked = order(data) if names is None else [*dict.fromkeys(names)]
    start, whole = monotonic(), limits.time_s
    left = 0.0 if whole is None else part * PORTFOLIO.planners_s(whole)
    planned = any(result.plan is not None for result in known)
    for waiting, name in zip(range(len(asked), 0, -1), asked, strict=True):
        seconds = None
        if whole is not None:
            if name in PORTFOLIO.parts:
                seconds = left / PORTFOLIO.parts[name][planned]
            elif name not in PORTFOLIO.soonest:  # none of them eats the clock
                parts = PORTFOLIO.good_part if name in PORTFOLIO.good else waiting
                most = part * whole * PORTFOLIO.planner_share
                seconds = min(left / parts, most)
            elif planned:
                seconds = left / PORTFOLIO.soon_part
            else:
                seconds = max(0.0, whole - (monotonic() - start))
        began(name)
        begun = monotonic()
        result = ask(name, data, limits.within(seconds), several=True)
        planned = planned or result.plan is not None
        yield result
        if result.stop is Stop.INTERRUPTED:
            return
        if whole is not None:
            left -= monotonic() - begun
            if left <= 0:  # the tables of the others alone would take longer
                return
