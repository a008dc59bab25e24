"""The module asks whether a model fits, and with what margin.

A first plan is looked for, the quickest planners first; where there is none, a proof
that none exists. Both are monotone in memory, so the last value with a plan and the
first one that is refuted close in on each other. A plan that is found is stretched as
far as the judge lets it, which saves most of the search.
"""

from collections.abc import Iterator
from contextlib import contextmanager
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
#: A search ends where what is not known is this part of what is.
_NEAR = 100
#: Doublings of the memory that is missing, before nothing is said to fit.
_DOUBLINGS = 10
#: Of memory, nearer is near enough.
_NEAR_MIB = 64


@dataclass(frozen=True)
class Reach:
    """The largest value with a plan, and the least that is proved to have none.

    `value` is None where no plan is known, `refuted` where nothing is proved; `result`
    is of the plan at the largest value, on the instance that has it. Where Ctrl-C ended
    the search, it is not `complete`.
    """

    value: int | None
    refuted: int | None
    result: Result | None
    complete: bool = True


def first_plan(data: Instance, limits: Limits) -> Result:
    """Return the first plan that is found, a proof that there is none, or neither.

    The cheapest planner is asked before anything else: a proof that there is none takes
    ten times as long as it does.
    """
    began = monotonic()
    found = cheapest_plan(data, limits)
    if found.plan is not None or found.stop is Stop.INTERRUPTED:
        return portfolio.with_bound(found)
    deadline = began + (inf if limits.time_s is None else limits.time_s)
    if (why := covering.reason(data, deadline=deadline)) is not None:
        return nothing(data, why)
    left = limits.after(monotonic() - began)
    return found if left.time_s == 0 else portfolio.first(data, left)


def cheapest_plan(data: Instance, limits: Limits) -> Result:
    """Return a plan of the planner that takes least, if it has one; any will do."""
    any_plan = replace(limits, gap=inf)
    return portfolio.ask(portfolio.PORTFOLIO.cheapest, data, any_plan, several=True)


def nothing(data: Instance, why: str) -> Result:
    """Return the result that there is no plan, which is proved for that reason."""
    method = Method("covering", "exact")
    told = "training_plan", data, method, Status.INFEASIBLE, Stop.PROVED
    return Result(*told, reasons=(why,))


def judged(data: Instance, plan: TrainingPlan) -> Result | None:
    """Return the plan as a result on an instance; None where it breaks a rule there."""
    found = training_plan.evaluate(data, plan)
    if not found.valid or not isinstance(found.objective, int):
        return None
    method = Method("stretched", "given")
    made = Result(
        "training_plan", data, method, Status.FEASIBLE, Stop.FINISHED, plan=plan
    )
    return portfolio.with_bound(made)


# --- the margin ------------------------------------------------------------------


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
    with search.until_interrupted():
        fits = search.know(0, plan) if plan is not None else search.ask(0)
        step, low = max(rooms), 0
        while not fits and search.time_left and low > -(step << _DOUBLINGS):
            low = min(2 * low, -step)
            fits = search.ask(low)
        search.close_in(min(rooms) - 1)
    return search.reach


# --- how it is done --------------------------------------------------------------


class _Search:
    """Memory taken off with a plan and without one, closing in on each other."""

    def __init__(self, data: Instance, limits: Limits) -> None:
        self._data, self._limits = data, limits
        self._began = monotonic()
        self._found: int | None = None
        self._plan: TrainingPlan | None = None
        self._refuted: int | None = None  # the least that is proved
        self._missed: int | None = None  # the least of which no plan was found
        self._complete = True

    def _make(self, mib: int) -> Instance:
        return with_less_memory(self._data, mib)

    @contextmanager
    def until_interrupted(self) -> Iterator[None]:
        """End the work within at Ctrl-C; what is known by then is kept."""
        try:
            yield
        except KeyboardInterrupt:
            self._complete = False

    @property
    def time_left(self) -> bool:
        """Return whether there is time for another question."""
        return self._left().time_s != 0

    def _left(self) -> Limits:
        return self._limits.after(monotonic() - self._began)

    def ask(self, value: int) -> bool:
        """Return whether a plan is found at a value; it is kept as far as it goes."""
        left = self._left()
        share = None if left.time_s is None else left.time_s * _SHARE
        result = first_plan(self._make(value), replace(left, time_s=share))
        if result.plan is not None:
            self.know(value, result.plan)
        if uninterrupted(result).plan is not None:
            return True
        if result.status is Status.INFEASIBLE:
            known = value if self._refuted is None else self._refuted
            self._refuted = min(value, known)
        self._missed = value if self._missed is None else min(value, self._missed)
        return False

    def know(self, value: int, plan: TrainingPlan) -> bool:
        """Keep a plan of a value, as far as it reaches; there is one."""
        spare = training_plan.evaluate(self._make(value), plan).parts
        left = value + int(spare["least_headroom_mib"])
        self._found, self._plan = max(left, value), plan
        return True

    def close_in(self, most: int) -> None:
        """Ask between what is found and what is not; then prove what lies beyond."""
        if self._found is None:
            return
        while self._found < most and self.time_left:
            high = most + 1 if self._missed is None else self._missed
            if high - self._found <= max(_NEAR_MIB, abs(self._found) // _NEAR):
                break
            self.ask((self._found + high) // 2)
        if self._refuted is None or self._refuted > self._found + 1:
            self._prove(most)

    def _prove(self, most: int) -> None:
        """Close in on the least value that arithmetic refutes."""
        assert self._found is not None
        low, high = self._found, most + 1 if self._refuted is None else self._refuted
        while high - low > max(_NEAR_MIB, abs(low) // _NEAR) and self.time_left:
            middle = (low + high) // 2
            left = self._left().time_s
            deadline = inf if left is None else monotonic() + left
            if covering.reason(self._make(middle), deadline=deadline) is None:
                low = middle
            else:
                high = self._refuted = middle

    @property
    def reach(self) -> Reach:
        """Return what is known by now."""
        if self._found is None or self._plan is None:
            return Reach(None, self._refuted, None, self._complete)
        result = judged(self._make(self._found), self._plan)
        return Reach(self._found, self._refuted, result, self._complete)
