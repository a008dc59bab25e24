"""The module chooses GPUs to rent: cheapest, fastest, every trade of cost and time.

Every point of a trade is the judge's.
"""

from collections.abc import Sequence
from contextlib import nullcontext, suppress
from dataclasses import dataclass, replace
from pathlib import Path
from time import monotonic
from typing import TYPE_CHECKING

from .. import portfolio
from ..errors import InstanceError, Unsupported, naming
from ..modelling import Limits
from ..plans import Provisioning
from ..problems import provisioning as judge
from ..problems.provisioning import Data
from ..result import Result, Stop
from ..schema import Instance, Requirements
from ..text.complaints import validated
from ..text.documents import Document, Fields
from .calling import (
    AnyInstance,
    AnyLimits,
    AnyProgress,
    limits_of,
    progress_of,
    refuse_unknown,
)
from .judging import load
from .solving import planners_for

if TYPE_CHECKING:
    from ..exact.provisioning import Frontier

FRONT, HOMOGENEOUS = "exact front", "homogeneous"
STEPS = 10


@dataclass(frozen=True)
class Offered:
    """A plan with its time and cost; `asked_s` is the deadline it was made for.

    `machines` are the judge's: what is rented of each offer, whole.
    """

    method: str
    plan: Provisioning
    total_s: float
    usd: float
    asked_s: float | None = None
    interrupted: bool = False
    machines: tuple[Fields, ...] = ()

    @property
    def rented(self) -> dict[str, int]:
        """GPUs by type that the stages use."""
        found: dict[str, int] = {}
        for stage in self.plan.stages:
            found[stage.gpu] = found.get(stage.gpu, 0) + self.plan.data_parallel
        return dict(sorted(found.items()))


@dataclass(frozen=True)
class Failed:
    """A deadline at which a planner found no plan, and its reason."""

    method: str
    asked_s: float
    reason: str


@dataclass(frozen=True)
class Tradeoffs:
    """All points of one instance, and the deadlines at which planners failed."""

    name: str
    front: "Frontier"
    points: tuple[Offered, ...]
    failed: tuple[Failed, ...]

    def __repr__(self) -> str:
        others = len(self.points) - len(self.front.points)
        return f"<Tradeoffs of {self.name}: {self.front!r}, {others} plans beside it>"

    def of(self, method: str) -> list[Offered]:
        """The points of a method, by time."""
        mine = [point for point in self.points if point.method == method]
        return sorted(mine, key=lambda point: (point.total_s, point.usd))

    @property
    def methods(self) -> list[str]:
        """Methods that have points, in the order in which they came."""
        return list(dict.fromkeys(point.method for point in self.points))

    def to_json(self) -> Document:
        """The front's document, with the other points and the failures."""
        return {
            **self.front.to_json(),
            "instance": self.name,
            "others": [
                {
                    "method": point.method,
                    "asked_s": point.asked_s,
                    "total_s": point.total_s,
                    "usd": point.usd,
                    "machines": list(point.machines),
                    "plan": point.plan.model_dump(mode="json"),
                }
                for point in self.points
                if point.method != FRONT
            ],
            "failed": [vars(failure) for failure in self.failed],
        }


def provision(
    instance: AnyInstance,
    planner: str | None = None,
    *,
    deadline_s: float | str | None = None,
    budget_usd: float | str | None = None,
    limits: AnyLimits = 60,
    progress: AnyProgress = None,
) -> Result:
    """Rent the cheapest GPUs that meet a deadline, or the fastest within a budget.

    Without either, the instance's own requirements hold; both may be texts with units,
    `3d`, `$5500`. By the exact method, or by
    one `planner`, without a proof. Raises `InstanceError` for an instance without
    offers, or when both are given, and `UnknownName` for an unknown planner.
    """
    asked, report = limits_of(limits), progress_of(progress).report
    loaded, data = _problem_of(instance, deadline_s, budget_usd)
    if planner is not None:
        refuse_unknown("planner", [planner], planners_for("provisioning"))
        found = portfolio.ask(planner, data, asked)
    else:
        found = portfolio.exactly("provisioning", data, asked, None, report)
    return replace(found, posed_by=loaded)


def alternatives(
    instance: AnyInstance,
    count: int = 3,
    *,
    deadline_s: float | str | None = None,
    budget_usd: float | str | None = None,
    limits: AnyLimits = 60,
    progress: AnyProgress = None,
) -> list[Result]:
    """Return the best plan, then the best with another number of machines, and so on.

    There are at most `count` results. Each has its own bound: no plan is better whose
    number of machines differs from those of the results before. A last result without a
    plan says that there are no more. `limits` are for all together. Raises as
    `provision` does, and `Unsupported` for a count below 1.
    """
    if count < 1:
        raise Unsupported(f"found {count} alternatives, expected at least 1")
    asked, report = limits_of(limits), progress_of(progress).report
    loaded, data = _problem_of(instance, deadline_s, budget_usd)
    found: list[Result] = []
    start = monotonic()
    while len(found) < count:
        left = asked.after(monotonic() - start)
        result = portfolio.exactly("provisioning", data, left, None, report)
        found.append(replace(result, posed_by=loaded))
        if found[-1].evaluation is None or found[-1].stop is Stop.INTERRUPTED:
            break
        rented = found[-1].evaluation.parts["machines"]
        machines = sum(row["machines"] for row in rented)
        counts = (*data.other_than_machines, machines)
        data = data.model_copy(update={"other_than_machines": counts})
    return found


def frontier(
    instance: AnyInstance,
    *,
    limits: AnyLimits = 60,
    progress: AnyProgress = None,
) -> "Frontier":
    """Return all plans that none beats in both cost and time, on an instance's offers.

    Plans beyond the instance's own deadline or budget are left out. `progress` gets the
    number of plans so far, and no bound.
    """
    from ..exact import provisioning as exact

    asked, report = limits_of(limits), progress_of(progress).report
    _, data = _problem_of(instance, None, None)
    return exact.frontier(data, limits=asked, report=report)


def tradeoffs(
    instance: AnyInstance,
    planners: Sequence[str] = (),
    *,
    limits: AnyLimits = 60,
    progress: AnyProgress = None,
) -> Tradeoffs:
    """The front of an instance with offers, with planners' and homogeneous plans.

    A planner is asked for the cheapest plan at deadlines in geometric steps from the
    least time of the front to that of its cheapest plan. The time limit holds for the
    front and, again, for all planners together. Raises as `frontier` does, and
    `UnknownName` for an unknown planner.
    """
    from ..exact import provisioning as exact
    from ..planners import sia_plus

    asked, heard = limits_of(limits), progress_of(progress)
    refuse_unknown("planner", planners, planners_for("provisioning"))
    loaded, data = _problem_of(instance, None, None)
    name = loaded.name
    front = exact.frontier(data, limits=asked, report=heard.report)
    if front.stop is Stop.INTERRUPTED:
        planners = ()
    open_to_all = dict.fromkeys(("deadline_s", "budget_usd"))
    free = data.model_copy(update={**open_to_all, "other_than_machines": ()})
    points = [_point_of(FRONT, free, point.plan) for point in front.points]
    steps = deadlines([point.total_s for point in points])
    failed: list[Failed] = []
    with suppress(KeyboardInterrupt):  # what is there by then is shown
        if points:
            for one in free.cases if free.variants else (free,):
                for plan in sia_plus.homogeneous(one):
                    points.append(_point_of(HOMOGENEOUS, free, plan))
        end = None if asked.time_s is None else monotonic() + asked.time_s
        for planner in planners:
            heard.started(f"{name}: {planner}")
            for asked_s in steps:
                due = free.model_copy(update={"deadline_s": asked_s})
                found = _ask_planner(planner, due, asked_s, end, asked.seed)
                if isinstance(found, Failed):
                    failed.append(found)
                else:
                    points.append(found)
                    if found.interrupted:
                        raise KeyboardInterrupt
    return Tradeoffs(name, front, tuple(points), tuple(failed))


def deadlines(times_s: Sequence[float], steps: int = STEPS) -> list[float]:
    """Geometric steps from the least to the largest time, a hair above each."""
    if not times_s:
        return []
    low, high = min(times_s), max(times_s)
    found = [low * (high / low) ** (i / (steps - 1)) for i in range(steps)]
    return sorted({round(step + 0.001, 3) for step in found})


# --- how it is done --------------------------------------------------------------


def _problem_of(
    instance: AnyInstance,
    deadline_s: float | str | None,
    budget_usd: float | str | None,
) -> tuple[Instance, Data]:
    """An instance under other requirements, and its provisioning problem."""
    loaded = load(instance)
    if deadline_s is not None and budget_usd is not None:
        raise InstanceError("deadline and budget exclude each other: give one")
    if deadline_s is not None or budget_usd is not None:
        asked = {"deadline_s": deadline_s, "budget_usd": budget_usd}
        requirements = validated(Requirements, asked, "asked for", file="")
        loaded = loaded.model_copy(update={"requirements": requirements})
    with naming(instance) if isinstance(instance, str | Path) else nullcontext():
        if loaded.cluster is not None:
            raise InstanceError(
                f"instance {loaded.name!r}: found a cluster, expected offers to rent; "
                "`hetopt solve INSTANCE --problem provisioning` treats the GPUs of a "
                "cluster as offers"
            )
        return loaded, judge.data(loaded)


def _ask_planner(
    planner: str, due: Data, asked_s: float, end: float | None, seed: int
) -> Offered | Failed:
    """Return what a planner finds for one deadline, or why it finds nothing."""
    left = None if end is None else end - monotonic()
    if left is not None and left < 0:
        return Failed(planner, asked_s, "no time was left")
    limits = Limits(time_s=left, seed=seed)
    found = portfolio.ask(planner, due, limits, several=True)
    if not isinstance(found.plan, Provisioning):
        if found.stop is Stop.INTERRUPTED:
            raise KeyboardInterrupt
        return Failed(planner, asked_s, found.reasons[0] if found.reasons else "None")
    made = _point_of(planner, due, found.plan, asked_s)
    return replace(made, interrupted=found.stop is Stop.INTERRUPTED)


def _point_of(
    method: str, data: Data, plan: Provisioning, asked_s: float | None = None
) -> Offered:
    parts = judge.evaluate(data, plan).parts
    machines = tuple(parts["machines"])
    return Offered(
        method, plan, parts["total_s"], parts["usd"], asked_s, machines=machines
    )
