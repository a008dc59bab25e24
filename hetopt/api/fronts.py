"""Cost against time: the exact front, homogeneous plans, and what planners find.

Every point is the judge's. A planner is asked for the cheapest plan at deadlines in
geometric steps from the least time of the front to that of its cheapest plan.
"""

from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import partial
from time import monotonic
from typing import Any

from .. import registry
from ..errors import Interrupted
from ..exact.provisioning import Frontier, frontier
from ..modelling import Limits
from ..planners import sia_plus
from ..plans import Provisioning
from ..problems import provisioning
from ..problems.provisioning import Data
from ..result import Stop
from ..search.attempts import judged, tried
from .calling import Progress

FRONT, HOMOGENEOUS = "exact front", "homogeneous"
STEPS = 10


@dataclass(frozen=True)
class Offered:
    """A plan with its time and cost; `asked_s` is the deadline it was made for."""

    method: str
    plan: Provisioning
    total_s: float
    usd: float
    asked_s: float | None = None
    interrupted: bool = False

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
    front: Frontier
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

    def to_json(self) -> dict[str, Any]:
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
                    "plan": point.plan.model_dump(mode="json"),
                }
                for point in self.points
                if point.method != FRONT
            ],
            "failed": [vars(failure) for failure in self.failed],
        }


def compared(
    name: str,
    data: Data,
    planners: Sequence[str],
    limits: Limits,
    progress: Progress,
) -> Tradeoffs:
    """The front of `data`, and the points of planners beside it.

    The time limit holds for the front and, again, for all planners together.
    """
    front = frontier(data, limits=limits, report=progress.report)
    if front.stop is Stop.INTERRUPTED:
        planners = ()
    free = data.model_copy(update={"deadline_s": None, "budget_usd": None})
    points = [_offered(FRONT, free, point.plan) for point in front.points]
    steps = deadlines([point.total_s for point in points])
    failed: list[Failed] = []
    with suppress(KeyboardInterrupt):  # what is there by then is shown
        if points:
            for plan in sia_plus.homogeneous(free):
                points.append(_offered(HOMOGENEOUS, free, plan))
        end = None if limits.time_s is None else monotonic() + limits.time_s
        for planner in planners:
            progress.started(f"{name}: {planner}")
            for asked_s in steps:
                due = free.model_copy(update={"deadline_s": asked_s})
                found = _asked(planner, due, asked_s, end, limits.seed)
                if isinstance(found, Failed):
                    failed.append(found)
                else:
                    points.append(found)
                    if found.interrupted:
                        raise KeyboardInterrupt
    return Tradeoffs(name, front, tuple(points), tuple(failed))


def _asked(
    planner: str, due: Data, asked_s: float, end: float | None, seed: int
) -> Offered | Failed:
    """What a planner finds for one deadline, or why it finds nothing."""
    if end is not None and monotonic() > end:
        return Failed(planner, asked_s, "no time was left")
    made: Any = registry.entry("planners", planner)
    plan = partial(made.plan, due, seed=seed, deadline=end)
    try:
        found = tried(planner, partial(_offered_by, planner, due, plan, asked_s))
    except Interrupted as signal:
        return replace(_offered(planner, due, signal.best, asked_s), interrupted=True)
    return found.made or Failed(planner, asked_s, str(found.reason))


def deadlines(times_s: Sequence[float], steps: int = STEPS) -> list[float]:
    """Geometric steps from the least to the largest time, a hair above each."""
    if not times_s:
        return []
    low, high = min(times_s), max(times_s)
    found = [low * (high / low) ** (i / (steps - 1)) for i in range(steps)]
    return sorted({round(step + 0.001, 3) for step in found})


def _offered_by(
    planner: str, data: Data, make: Callable[[], Any], asked_s: float
) -> Offered:
    plan, _ = judged("provisioning", data, planner, make())
    return _offered(planner, data, plan, asked_s)


def _offered(
    method: str, data: Data, plan: Provisioning, asked_s: float | None = None
) -> Offered:
    parts = provisioning.evaluate(data, plan).parts
    return Offered(method, plan, parts["total_s"], parts["usd"], asked_s)
