"""The module asks whether a model fits, and with what margin.

A first plan is looked for, the quickest planners first; where there is none, a proof
that none exists. Both are monotone in memory, so the last value with a plan and the
first one that is refuted close in on each other. A plan that is found is stretched as
far as the judge lets it, which saves most of the search.
"""

from dataclasses import dataclass, replace
from math import inf
from time import monotonic

from .. import portfolio
from ..bounds import covering
from ..modelling import Limits
from ..plans import TrainingPlan
from ..problems import training_plan
from ..problems.training_plan import support
from ..result import Method, Result, Status, Stop, uninterrupted
from ..schema import Instance, exact

#: Of the time that is left, what one question of a search may take.
_SHARE = 0.25
#: A search ends where what is not known is this part of what is, or so many MiB.
_NEAR, _NEAR_MIB = 100, 64
#: Doublings of the memory that is missing, before nothing is said to fit.
_DOUBLINGS = 10


@dataclass(frozen=True)
class Reach:
    """The largest value with a plan, and the least that is proved to have none.

    `value` and `plan` are None where no plan is known, `refuted` where nothing is
    proved.
    """

    value: int | None = None
    refuted: int | None = None
    plan: TrainingPlan | None = None


def first_plan(data: Instance, limits: Limits) -> Result:
    """Return the first plan that is found, a proof that there is none, or neither.

    The cheapest planner is asked before anything else: a proof that there is none takes
    ten times as long as it does.
    """
    began = monotonic()
    any_plan, cheapest = replace(limits, gap=inf), portfolio.PORTFOLIO.cheapest
    found = portfolio.ask(cheapest, data, any_plan, several=True)
    if found.plan is not None or found.stop is Stop.INTERRUPTED:
        return portfolio.with_bound(found)
    deadline = began + (inf if limits.time_s is None else limits.time_s)
    if (why := covering.reason(data, deadline=deadline)) is not None:
        told = Method("covering", "exact"), Status.INFEASIBLE, Stop.PROVED
        return Result("training_plan", data, *told, reasons=(why,))
    left = limits.after(monotonic() - began)
    return found if left.time_s == 0 else portfolio.first(data, left)


def with_less_memory(data: Instance, mib: int) -> Instance:
    """Return the instance with so much less memory on every GPU; more where below 0."""
    cluster = data.planned_cluster
    gpus = {
        name: gpu.model_copy(
            # A power of two divides exactly.
            update={"memory_gib": (int(exact(gpu.memory_gib) * 1024) - mib) / 1024}
        )
        for name, gpu in cluster.gpus.items()
    }
    return data.model_copy(
        update={"cluster": cluster.model_copy(update={"gpus": gpus})}
    )


def margin(data: Instance, limits: Limits, plan: TrainingPlan | None = None) -> Reach:
    """Return the most memory that every GPU can do without, in MiB.

    Negative where the model does not fit: so much more memory each GPU would need. A
    `plan` of the instance that is known is where the search begins.
    """
    support.require(data)
    rooms = [
        int(exact(g.memory_gib) * 1024) for g in data.planned_cluster.gpus.values()
    ]
    search = _Search(data, limits)
    fits = search.know(0, plan) if plan is not None else search.ask(0)
    step, low = max(rooms), 0
    while not fits and search.left.time_s != 0 and low > -(step << _DOUBLINGS):
        low = min(2 * low, -step)
        fits = search.ask(low)
    if fits:
        search.close_in(min(rooms) - 1)
    return search.reach


class _Search:
    """Memory taken off with a plan and without one, closing in on each other."""

    def __init__(self, data: Instance, limits: Limits) -> None:
        self._data, self._limits, self._began = data, limits, monotonic()
        self._missed: int | None = None  # the least of which no plan was found
        self.reach = Reach()

    @property
    def left(self) -> Limits:
        return self._limits.after(monotonic() - self._began)

    def ask(self, value: int) -> bool:
        """Return whether a plan is found at a value; it is kept as far as it goes."""
        left = self.left
        share = None if left.time_s is None else left.time_s * _SHARE
        mine = replace(left, time_s=share)
        result = uninterrupted(first_plan(with_less_memory(self._data, value), mine))
        if isinstance(result.plan, TrainingPlan):
            return self.know(value, result.plan)
        if result.status is Status.INFEASIBLE:
            known = self.reach.refuted
            least = value if known is None else min(value, known)
            self.reach = replace(self.reach, refuted=least)
        self._missed = value if self._missed is None else min(value, self._missed)
        return False

    def know(self, value: int, plan: TrainingPlan) -> bool:
        """Keep a plan of a value, as far as it reaches; there is one."""
        judged = training_plan.evaluate(with_less_memory(self._data, value), plan)
        spare = int(judged.parts["least_headroom_mib"])
        self.reach = replace(self.reach, value=value + max(0, spare), plan=plan)
        return True

    def close_in(self, most: int) -> None:
        """Ask between what is found and what is not."""
        while (low := self.reach.value or 0) < most and self.left.time_s != 0:
            high = most + 1 if self._missed is None else self._missed
            if high - low <= max(_NEAR_MIB, abs(low) // _NEAR):
                return
            self.ask((low + high) // 2)
