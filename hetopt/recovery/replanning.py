"""New training plans after a change, weighed with the time to move their states.

Candidates: the pipelines that lost no GPU, with the batch shared anew; what planners
make of the new cluster, nodes exchanged so that states stay where they are
(`placing`); the same after a local search; with `exact` the exact method's plan. Each
is judged, and its recovery timed by AutoHet's rules, before one is chosen: the plan
that does the most iterations in what the recovery leaves of the time until the next
change (the horizon).
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from fractions import Fraction
from math import inf
from time import monotonic

from .. import portfolio
from ..errors import Interrupted, NoPlan, PlanRejected, Unsupported
from ..modelling import Limits
from ..planners import autohet_recovery
from ..plans import Recovery, TrainingPlan
from ..problems import recovery, training_plan
from ..problems.recovery import Storage
from ..problems.recovery.changes import Change
from ..problems.recovery.posing import pose
from ..result import Method, Result, Status, Stop
from ..search.balancing import shared
from ..search.fast_cost import FastCost, Pipe
from ..search.quick import time_of
from .placing import exchange_nodes

DEFAULT_TIME_S = 1.5
HORIZON_S = 3600.0


def worth(
    horizon_s: float, recovery_us: int, iteration_us: int
) -> tuple[Fraction, int]:
    """Return the key by which plans are compared for so long a run; less is better.

    With an infinite one the fastest plan is best, whatever it takes to move.
    """
    if horizon_s == inf:
        return Fraction(iteration_us), recovery_us
    left = max(0, round(horizon_s * 10**6) - recovery_us)
    # Where nothing is left for any plan, the one that starts first is best.
    return -Fraction(left, iteration_us), recovery_us + iteration_us


@dataclass(frozen=True)
class Candidate:
    """A judged training plan; `recovery_us` is None where its states are lost."""

    name: str
    plan: TrainingPlan
    iteration_us: int
    recovery_us: int | None

    def to_json(self) -> dict[str, object]:
        """Name and times."""
        return {key: x for key, x in vars(self).items() if key != "plan"}


class Replanning:
    """Makes candidates for one change, and chooses among them."""

    def __init__(
        self, change: Change, old_plan: TrainingPlan, storage: Storage
    ) -> None:
        """Nothing is planned yet."""
        self.change, self.old_plan = change, old_plan
        self.storage = storage
        self.candidates: list[Candidate] = []
        self.reasons: list[str] = []
        self.interrupted = False  # by Ctrl-C: the candidates until then count
        self._planning = ""  # the planner at work

    def work(
        self,
        planners: Sequence[str] | None = None,
        *,
        exact: bool = False,
        time_s: float | None = DEFAULT_TIME_S,
        seed: int = 0,
        started: Callable[[str], None] | None = None,
    ) -> None:
        """Make candidates by these planners, or by all, in `time_s` seconds together.

        They work in turn by the shares of the portfolio, and local search from the best
        of their plans has the rest. With `exact` the exact method works in its place.
        """
        try:
            limits = Limits(time_s=time_s, seed=seed)
            tell = started or (lambda name: None)
            self._work(planners, limits, tell, exact=exact)
        except KeyboardInterrupt as signal:
            self.interrupted = True
            if isinstance(signal, Interrupted) and self._planning:
                self.consider(self._planning, signal.best)
            if not self.candidates:
                raise

    def _work(
        self,
        planners: Sequence[str] | None,
        limits: Limits,
        tell: Callable[[str], None],
        *,
        exact: bool,
    ) -> None:
        start, results = monotonic(), list[Result]()
        if kept := kept_plan(self.change, self.old_plan):
            self.consider("kept", kept)
            results += self._as_result("kept", kept)

        def begin(name: str) -> None:
            self._planning = name
            tell(name)

        new, known = self.change.new, results[:]
        for result in portfolio.in_turn(new, limits, 1.0, known, begin, planners):
            results.append(result)
            self.reasons += result.reasons
            self._consider_of(result.method.name, result)
        best = portfolio.least(results) if results else None
        if best is None or best.plan is None:
            return
        left = limits.after(monotonic() - start)
        if exact:
            begin("exact")
            self._exact(best, left)
        elif left.time_s:
            tell("local search")
            self._planning = f"{best.method.name}+improve"
            self._consider_of(self._planning, portfolio.improve_result(best, left))

    def _as_result(self, name: str, plan: TrainingPlan) -> list[Result]:
        """Return a plan as a result; an empty list for one that breaks a rule."""
        new = self.change.new
        if time_of(new, plan) is None:
            return []
        method = Method(name, "given")
        told = "training_plan", new, method, Status.FEASIBLE, Stop.FINISHED
        return [Result(*told, plan=plan)]

    def _consider_of(self, name: str, result: Result) -> None:
        if isinstance(result.plan, TrainingPlan):
            self.consider(name, result.plan)
        if result.stop is Stop.INTERRUPTED:
            raise KeyboardInterrupt

    def _exact(self, best: Result, limits: Limits) -> None:
        try:
            new = self.change.new
            found = portfolio.exactly("training_plan", new, limits, best.plan)
        except Unsupported as error:
            self.reasons.append(str(error))
            return
        self._consider_of("exact", found)

    def consider(self, name: str, plan: TrainingPlan) -> None:
        """Judge a plan, as it is and with nodes exchanged, and keep what is valid."""
        change = self.change
        judged = training_plan.evaluate(change.new, plan)
        if judged.violations or not isinstance(judged.objective, int):
            self.reasons.append(f"{name}: {judged.violations[0]}")
            return
        data = pose(change, self.old_plan, plan, self.storage)
        moved = exchange_nodes(change.new.planned_cluster, plan, data)
        posed = [(plan, data)]
        if moved != plan:
            posed.append((moved, pose(change, self.old_plan, moved, self.storage)))
        for one, data in posed:
            took = recovery_us(data)
            self.candidates.append(Candidate(name, one, judged.objective, took))

    def by_worth(self, horizon_s: float = HORIZON_S) -> list[Candidate]:
        """Return the candidates whose states can be had, the best first."""
        able = [c for c in self.candidates if c.recovery_us is not None]
        return sorted(able, key=lambda c: _worth_of(c, horizon_s))

    def chosen(self, horizon_s: float = HORIZON_S) -> Candidate | None:
        """The best candidate; None where there is none, or the states are lost."""
        return next(iter(self.by_worth(horizon_s)), None)

    def of_each_name(self, horizon_s: float = HORIZON_S) -> Iterator[Candidate]:
        """The better of the candidates of each name, in the order of their making."""
        for name in dict.fromkeys(c.name for c in self.candidates):
            mine = [c for c in self.candidates if c.name == name]
            able = [c for c in mine if c.recovery_us is not None]
            yield min(able or mine, key=lambda c: _worth_of(c, horizon_s))


def _worth_of(candidate: Candidate, horizon_s: float) -> tuple[Fraction, int]:
    return worth(horizon_s, candidate.recovery_us or 0, candidate.iteration_us)


def recovery_us(data: recovery.Data) -> int | None:
    """Time of AutoHet's recovery; None where something lies nowhere any more."""
    try:
        return judged_us(data, autohet_recovery.plan(data))
    except NoPlan:
        return None


def judged_us(data: recovery.Data, plan: Recovery) -> int:
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
