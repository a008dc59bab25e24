"""New training plans after a change, weighed with the time to move their states.

Candidates: the pipelines that lost no GPU, with the batch shared anew; what planners
make of the new cluster, nodes exchanged so that states stay where they are
(`placing`); the same after a local search; with `exact` the exact method's plan. Each
is judged, and its recovery timed by AutoHet's rules, before one is chosen:

- with a horizon of S seconds until the next change, the plan that does the most
  iterations in what the recovery leaves of them;
- with a horizon of n iterations, the least recovery time + n x iteration time.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import partial
from math import inf
from time import monotonic
from typing import Any

from .. import registry
from ..errors import (
    InstanceError,
    Interrupted,
    NoPlan,
    PlanRejected,
    Unsupported,
)
from ..modelling import Limits
from ..planners import autohet_recovery
from ..plans import Recovery, TrainingPlan
from ..problems import recovery, training_plan
from ..problems.recovery import Saved
from ..problems.recovery.changes import Change
from ..problems.recovery.posing import posed
from ..problems.recovery.storage import Storage
from ..result import Stop
from ..search.attempts import tried
from ..search.balancing import shared
from ..search.fast_cost import FastCost, Pipe
from ..search.improving import improve
from .placing import settled

PLANNERS = ("megatron", "autohet", "hexiscale", "islands")
DEFAULT_TIME_S = 1.5
_FOR_PLANNERS = 0.6  # of the time; the rest is the local search's


@dataclass(frozen=True)
class Horizon:
    """How long the new plan will run, as far as is known: seconds or iterations.

    `seconds` may be infinite: the fastest plan is then best, whatever it takes to move.
    """

    seconds: float | None = 3600.0
    iterations: int | None = None

    def __post_init__(self) -> None:
        """Refuse what is no length of time."""
        for name, value in (("seconds", self.seconds), ("iterations", self.iterations)):
            if value is not None and not value >= 0:
                raise InstanceError(
                    f"horizon: {name}: found {value}, expected 0 or more; correct it"
                )

    def worth(self, recovery_us: int, iteration_us: int) -> tuple[Fraction, int]:
        """What candidates are compared by; less is better."""
        if self.iterations is not None:
            total = recovery_us + self.iterations * iteration_us
            return Fraction(total), iteration_us
        if self.seconds == inf:
            return Fraction(iteration_us), recovery_us
        left = max(0, round((self.seconds or 0.0) * 10**6) - recovery_us)
        # Where nothing is left for any plan, the one that starts first is best.
        return -Fraction(left, iteration_us), recovery_us + iteration_us


@dataclass(frozen=True)
class Candidate:
    """A judged training plan; `recovery_us` is None where its states are lost."""

    name: str
    plan: TrainingPlan
    iteration_us: int
    recovery_us: int | None

    def to_json(self) -> dict[str, Any]:
        """Name and times."""
        return {
            "name": self.name,
            "iteration_us": self.iteration_us,
            "recovery_us": self.recovery_us,
        }


class Replanning:
    """Makes candidates for one change, and chooses among them."""

    def __init__(
        self,
        change: Change,
        old_plan: TrainingPlan,
        storage: Storage,
        saved: Sequence[Saved] | None = None,
    ) -> None:
        """Nothing is planned yet."""
        self.change, self.old_plan = change, old_plan
        self.storage, self.saved = storage, saved
        self.candidates: list[Candidate] = []
        self.reasons: list[str] = []
        self.interrupted = False  # by Ctrl-C: the candidates until then count
        self._planning = ""  # the planner at work

    def work(
        self,
        planners: Sequence[str] = PLANNERS,
        *,
        exact: bool = False,
        time_s: float | None = DEFAULT_TIME_S,
        seed: int = 0,
        started: Callable[[str], None] | None = None,
    ) -> None:
        """Make candidates, the planners in turn, in `time_s` seconds together.

        What a planner leaves of its share goes to those after it; the local search
        gets the rest. With `exact` the exact method works in its place.
        """
        try:
            self._work(planners, exact, time_s, seed, started or (lambda name: None))
        except KeyboardInterrupt as signal:
            self.interrupted = True
            if isinstance(signal, Interrupted) and self._planning:
                self.consider(self._planning, signal.best)
            if not self.candidates:
                raise

    def _work(
        self,
        planners: Sequence[str],
        exact: bool,
        time_s: float | None,
        seed: int,
        tell: Callable[[str], None],
    ) -> None:
        start = monotonic()
        if kept := kept_plan(self.change, self.old_plan):
            self.consider("kept", kept)
        for waiting, name in zip(range(len(planners), 0, -1), planners, strict=True):
            tell(name)
            share = None
            if time_s is not None:
                left = _FOR_PLANNERS * time_s - (monotonic() - start)
                share = monotonic() + max(0.0, left) / waiting
            plan = partial(registry.entry("planners", name).plan, self.change.new)
            planned = partial(plan, seed=seed, deadline=share)
            self._planning = name
            found = tried(name, partial(self._consider_of, name, planned))
            if found.reason is not None:
                self.reasons.append(found.reason)
        best = min(self.candidates, key=lambda c: c.iteration_us, default=None)
        if best is None:
            return
        left_s = None if time_s is None else time_s - (monotonic() - start)
        if exact:
            tell("exact")
            self._exact(best, left_s, seed)
        elif left_s is not None and left_s > 0:
            tell("local search")
            self._improved(best, monotonic() + 0.7 * left_s, seed)

    def _consider_of(self, name: str, make: Callable[[], Any]) -> None:
        if (made := make()) is not None:
            self.consider(name, made)

    def _improved(self, best: Candidate, deadline: float, seed: int) -> None:
        self._planning = f"{best.name}+improve"
        found = improve(self.change.new, best.plan, deadline=deadline, seed=seed)
        if found != best.plan:
            self.consider(self._planning, found)

    def _exact(self, best: Candidate, left_s: float | None, seed: int) -> None:
        module: Any = registry.entry("exact", "training_plan")
        limits = Limits(time_s=left_s, seed=seed)
        self._planning = "exact"
        try:
            found = module.solve(self.change.new, limits=limits, warm_start=best.plan)
        except Unsupported as error:
            self.reasons.append(str(error))
            return
        if isinstance(found.plan, TrainingPlan):
            self.consider("exact", found.plan)
        self.interrupted = found.stop is Stop.INTERRUPTED

    def consider(self, name: str, plan: TrainingPlan) -> None:
        """Judge a plan, as it is and with nodes exchanged, and keep what is valid."""
        judged = training_plan.evaluate(self.change.new, plan)
        if judged.violations or not isinstance(judged.objective, int):
            self.reasons.append(f"{name}: {judged.violations[0]}")
            return
        data = posed(self.change, self.old_plan, plan, self.storage, self.saved)
        self._keep(name, plan, judged.objective, data)
        moved = settled(self.change.new.planned_cluster, plan, data)
        if moved != plan:
            data = posed(self.change, self.old_plan, moved, self.storage, self.saved)
            self._keep(name, moved, judged.objective, data)

    def _keep(
        self, name: str, plan: TrainingPlan, iteration_us: int, data: recovery.Data
    ) -> None:
        took = recovery_us(data)
        self.candidates.append(Candidate(name, plan, iteration_us, took))

    def chosen(self, horizon: Horizon) -> Candidate | None:
        """The best candidate; None where there is none, or the states are lost."""
        able = [c for c in self.candidates if c.recovery_us is not None]
        return _best(able, horizon) if able else None

    def of_each_name(self, horizon: Horizon) -> Iterator[Candidate]:
        """The better of the candidates of each name, in the order of their making."""
        for name in dict.fromkeys(c.name for c in self.candidates):
            mine = [c for c in self.candidates if c.name == name]
            able = [c for c in mine if c.recovery_us is not None]
            yield _best(able or mine, horizon)


def _best(candidates: list[Candidate], horizon: Horizon) -> Candidate:
    return min(
        candidates, key=lambda c: horizon.worth(c.recovery_us or 0, c.iteration_us)
    )


def recovery_us(data: recovery.Data) -> int | None:
    """Time of AutoHet's recovery; None where something lies nowhere any more."""
    try:
        return timed(data, autohet_recovery.plan(data))
    except NoPlan:
        return None


def timed(data: recovery.Data, plan: Recovery) -> int:
    """The judge's time, in us; `PlanRejected` where the recovery breaks a rule."""
    judged = recovery.evaluate(data, plan)
    if not isinstance(judged.objective, int):
        raise PlanRejected(f"a recovery breaks a rule: {judged.violations[0]}")
    return judged.objective


def kept_plan(change: Change, old_plan: TrainingPlan) -> TrainingPlan | None:
    """The pipelines that lost no GPU, with the batch shared anew; None without any.

    Pipelines with several replicas in a stage are not timed by the fast cost model:
    where there are any, the others are kept.
    """
    cost = FastCost(change.new)
    pipes: list[Pipe] = []
    for pipeline in change.survivors(old_plan):
        if pipeline.micro_batch_size in change.new.workload.micro_batch_sizes:
            pipes += cost.compact(TrainingPlan(pipelines=(pipeline,))) or ()
    if not pipes:
        return None
    timings = [cost.timing(pipe.size, pipe.slots) for pipe in pipes]
    counts = shared(cost, timings, [pipe.size for pipe in pipes])
    if counts is None:
        return None
    return cost.plan(
        pipe._replace(micro_batches=n) for pipe, n in zip(pipes, counts, strict=True)
    )
