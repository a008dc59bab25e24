"""Provisioning, exactly: the cheapest or fastest plan, or the whole front of both.

Allocations (a data-parallel degree of a variant, and a number of stages of each offer)
are taken best first by a lower bound of their iteration, so of their cost, those of all
variants from one queue. Each is placed exactly (order and layers of its stages), with
the time at which it stops being worth having as a cut-off. Expected losses depend on
the allocation alone: they stretch its time, and shorten its cut-off (`Losses`).
Everything is counted in integers: us, or parts of one, x micro-USD an hour.

The problem is Espresso's (Eq. 1-3, 8, 9); the method is not: Espresso prunes its tree
by estimates and places the stages by a rule.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from typing import Any

from ... import entries, plans
from ...findings import Finding
from ...modelling import Limits
from ...problems import Evaluation, provisioning
from ...problems.provisioning import MICRO, Data
from ...result import Status, Stop
from ...solving.run import Report, Run
from ...text.documents import Document
from .search import Found, Least, Search, Tradeoffs, limits_of, total
from .tables import Degree, Losses

problem = "provisioning"
_PLANNERS = ("espresso", "cheapest_per_flop")  # where there is no proof
_SOURCE = "allocations best first, fastest filling of their stages"
_PROOF = "every allocation placed or bounded"


@dataclass(frozen=True)
class Point:
    """A plan of the front; optimal where it is proved that no plan beats it in both."""

    plan: plans.Provisioning
    evaluation: Evaluation
    status: Status


@dataclass(frozen=True, repr=False)
class Frontier(Finding, layout="front"):
    """Points by ascending time and descending cost.

    With `stop` proved these are all: any plan is reached by a point in both time and
    cost. Otherwise the work was cut short; points that are `feasible` may be beaten,
    and others may be missing.
    """

    data: Data
    points: tuple[Point, ...]
    stop: Stop
    seconds: float
    instance: str | None = None

    def to_json(self) -> Document:
        """A document: times in s and costs in USD of all iterations, with plans."""
        return {
            "problem": problem,
            "instance": self.instance,
            "digest": self.data.digest,
            "stop": self.stop.value,
            "seconds": round(self.seconds, 6),
            "points": [
                {
                    "status": point.status.value,
                    "plan": point.plan.model_dump(mode="json"),
                    "evaluation": point.evaluation.to_json(),
                }
                for point in self.points
            ],
        }


def solve(
    data: Data,
    *,
    limits: Limits,
    warm_start: plans.Provisioning | None = None,
    report: Report | None = None,
) -> Any:
    """The cheapest plan within the deadline, or the fastest within the budget.

    Returns a `Result`; where no plan exists its `reasons` say what could be met
    instead: the least deadline, the least budget. Raises
    `InstanceError` for a warm start that breaks a rule and `Unsupported` for times
    beyond 64-bit counting.
    """
    run = Run(problem, data, limits, report)
    run.start_from(warm_start)
    with run:
        of_time = data.minimises_time
        goal = Least(*limits_of(data), of_time=of_time, tell=run.offer)
        if warm_start is not None:
            goal.take(_priced_plan(data, warm_start))
        degrees = Degree.all_of(data)
        searching = Search(degrees, goal, run.check)
        if searching.too_large:
            for name in _PLANNERS:
                run.offer_of(name, partial(entries.planner(name).plan, data))

        def tighten(key: int) -> None:
            value = total(data, key, of_time=of_time)
            if run.objective is None or value < run.objective:
                run.tighten(value, _SOURCE)

        searching.run(tighten)
        if run.objective is not None:
            run.tighten(run.objective, _PROOF)
        else:
            run.bound = None
            for reason in _why_none(data, degrees, run.check):
                run.reasons += (reason,)
    return run.result()


def frontier(data: Data, *, limits: Limits, report: Report | None = None) -> Frontier:
    """All plans that no plan beats in both time and cost, one a pair of values.

    A deadline or a budget of `data` leaves out what exceeds it. `report` is called
    with no bound and the number of points so far.
    """
    run = Run(problem, data, limits)
    goal = Tradeoffs(*limits_of(data))
    searched: Search | None = None

    def tell(key: int) -> None:
        if report is not None:
            report(len(goal.points), None)

    with run:
        searched = Search(Degree.all_of(data), goal, run.check)
        searched.run(tell)
    points = []
    for found in goal.points:
        open_still = searched is None or searched.may_beat(found)
        status = Status.FEASIBLE if open_still else Status.OPTIMAL
        judged = provisioning.evaluate(data, found.plan)
        points.append(Point(found.plan, judged, status))
    return Frontier(data, tuple(points), run.stop or Stop.PROVED, run.wall_s())


def _priced_plan(data: Data, plan: plans.Provisioning) -> Found:
    parts = provisioning.evaluate(data, plan).parts
    prices = {offer.gpu: offer.micro_usd_per_hour for offer in data.offers}
    price = sum(prices[gpu] * n for gpu, n in parts["rented"].items())
    losses = Losses.of(data)
    lost = sum(
        losses.per_machine[row["offer"]] * row["machines"] for row in parts["machines"]
    )
    time = parts["iteration_us"] * (losses.unit + lost)
    return Found(time, price, plan)


def _why_none(
    data: Data, degrees: list[Degree], check: Callable[[], None]
) -> Iterator[str]:
    """Yield reasons, the surest first; `data` is known to have no plan."""
    if data.deadline_s is not None:
        yield f"deadline: no plan ends within {data.deadline_s} s"
    elif data.budget_usd is not None:
        yield f"budget: no plan costs {data.budget_usd} USD or less"
    fastest, cheapest = Least(of_time=True), Least()
    Search(degrees, fastest, check).run()
    if fastest.best is None:
        quotas = ", ".join(f"{offer.gpu} {offer.quota}" for offer in data.offers)
        yield f"memory: no plan within the quotas ({quotas}) holds {data.layers} layers"
        return
    least_s = float(total(data, fastest.best.time, of_time=True) / MICRO)
    yield f"deadline: the least that any plan meets is {least_s:.6f} s"
    Search(degrees, cheapest, check).run()
    if cheapest.best is not None:
        least_usd = float(total(data, cheapest.best.cost, of_time=False))
        yield f"budget: the cheapest plan costs {least_usd:.6f} USD"
