"""A job on spot GPUs, replayed: what a way to recover makes of a trace.

Every `interval_us` of training, at the end of an iteration, a checkpoint is written, in
the background; the shards lie where `posing` says. At each change of the nodes:

- A node of the plan left: the job falls back to its last checkpoint, new plans are
  weighed on what is left, and the states are moved from where that checkpoint lies, on
  the nodes that have stayed ever since, or in the cloud.
- Only nodes that are not in use left: the job goes on, nothing is planned.
- Nodes arrived: new plans are weighed against going on. A move that nothing forces
  begins with a checkpoint, and costs no iteration but the one at work.
- A recovery that a loss cuts short begins anew, from the same checkpoint; arrivals only
  may leave it to go on.
- Without a plan that fits, or with none or too few nodes, the job waits.

Every move takes `overhead_us` and the time of its recovery, by the judge; the exact
method's also its whole time limit, where it has one. The method weighs plans by its own
recovery times; the exact method, which is never slower than AutoHet's rules, by theirs.
A planner of recoveries that fails beside others has none for that plan, and says why.

GPU time is accounted in whole:

    useful      iterations that count in the end
    redone      iterations after the last checkpoint, when the job fell back
    cut         the iteration at work when a move or the end came
    recovering  GPUs of the new plan, while it is made and states move
    idle        GPUs that the plan does not use, and all of them while the job waits
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

from ... import entries
from ...errors import InstanceError, NoPlan, PlanRejected
from ...modelling import Limits
from ...plans import Recovery, TrainingPlan
from ...problems import training_plan
from ...problems.recovery import Data, Storage, changes
from ...problems.recovery.changes import Change
from ...problems.recovery.posing import pose
from ...result import Status, Stop
from ...schema import Instance
from ...search.attempts import tried
from ..pooling import Pool
from ..replanning import HORIZON_S, Candidate, judged_us, worth
from .traces import Moment

EXACT = "recovery"
KINDS = ("useful", "redone", "cut", "recovering", "idle")


@dataclass(frozen=True)
class Rules:
    """Rules say how and where checkpoints are written, and what else a move costs."""

    interval_us: int
    overhead_us: int = 0
    storage: Storage = field(default_factory=Storage)
    horizon_s: float = HORIZON_S


@dataclass(frozen=True)
class Run:
    """A plan at work from `start_us`, training from `ready_us` on."""

    name: str
    instance: Instance
    plan: TrainingPlan
    iteration_us: int
    start_us: int
    ready_us: int

    @property
    def gpus(self) -> int:
        """Return the GPUs of the plan."""
        return self.plan.gpu_count

    def iterations(self, time_us: int) -> int:
        """Iterations that are done at a time."""
        return max(0, time_us - self.ready_us) // self.iteration_us


@dataclass(frozen=True)
class Leg:
    """A leg is a run that is over: when it ended, and what counts of it."""

    run: Run
    end_us: int
    iterations: int
    redone: int


@dataclass
class Tally:
    """A tally counts along the way; GPU time is in us by KINDS."""

    gpu_us: dict[str, int] = field(default_factory=lambda: dict.fromkeys(KINDS, 0))
    available_us: int = 0
    recovery_us: int = 0
    iterations: int = 0
    redone: int = 0
    redone_us: int = 0
    replans: int = 0
    moves: int = 0
    proved: int = 0
    waiting_us: int = 0


class Replay:
    """One method along one trace; moments are entered in turn."""

    def __init__(
        self,
        method: str,
        instance: Instance,
        old: tuple[Instance, TrainingPlan],
        pool: Pool,
        rules: Rules,
        limits: Limits,
        *,
        several: bool = False,
    ) -> None:
        """The job runs `old`, a plan on its instance, up to the first moment.

        With `several` methods one that fails does not end the others.
        """
        self.method, self.tally, self.legs = method, Tally(), list[Leg]()
        self._instance, self._pool, self._rules = instance, pool, rules
        self._limits, self._several = limits, several
        self.failed: tuple[str, ...] = ()  # what failed, each reason once
        self._overhead_us = rules.overhead_us
        if self.exact and limits.time_s is not None:
            self._overhead_us += round(limits.time_s * 10**6)
        # Where the last checkpoint lies: a plan on its instance, without what left.
        self._base, self._gone = old, set[str]()
        judged = training_plan.evaluate(*old)
        if not isinstance(judged.objective, int):
            raise InstanceError(f"the old plan breaks a rule: {judged.violations[0]}")
        self._run: Run | None = Run("old plan", *old, judged.objective, 0, 0)
        self._there = tuple(node.name for node in old[0].planned_cluster.nodes)
        self._now, self._counts = 0, dict[str, int]()

    @property
    def exact(self) -> bool:
        """Return whether recoveries are the exact method's."""
        return self.method == EXACT

    def enter(self, moment: Moment) -> None:
        """Go on to a moment, and act on what left and what arrived."""
        self._pass(moment.time_us)
        before, after = set(self._there), set(moment.nodes)
        left, arrived = self._changes(before, after)
        self._there = moment.nodes
        nodes = {node.name: node.count for node in self._instance.planned_cluster.nodes}
        self._counts = {name: nodes[name] for name in moment.nodes}
        run = self._run
        # States on their way may come from any node that leaves.
        moving = run is not None and self._now < run.ready_us
        if run and left and (moving or run.plan.gpus_by_node.keys() & left):
            self._fall_back(run)
        self._gone |= left
        if self._run is None or arrived:
            self._replan()

    def close(self, time_us: int) -> None:
        """End the replay: all iterations that are done count."""
        self._pass(time_us)
        if self._run is not None:
            self._end(self._run, self._run.iterations(time_us), 0)
        spent = sum(self.tally.gpu_us.values())
        self.tally.gpu_us["idle"] = self.tally.available_us - spent

    def _changes(self, before: set[str], after: set[str]) -> tuple[set[str], set[str]]:
        """Nodes that left and arrived; another machine of the same name is both."""
        left, arrived = before - after, after - before
        if self._now == 0 and not self._counts:
            old, new = self._base[0].planned_cluster, self._instance.planned_cluster
            other = {n for n in before & after if old.node[n] != new.node[n]}
            return left | other, arrived | other
        return left, arrived

    def _pass(self, time_us: int) -> None:
        passed = time_us - self._now
        self.tally.available_us += passed * sum(self._counts.values())
        if self._run is None:
            self.tally.waiting_us += passed
        self._now = time_us

    # --- ends ---------------------------------------------------------------------

    def _fall_back(self, run: Run) -> None:
        """The run ends; what it did since its last checkpoint is lost."""
        done = run.iterations(self._now)
        each = -(-self._rules.interval_us // run.iteration_us)
        saved = done - done % max(1, each)
        if saved:
            self._base, self._gone = (run.instance, run.plan), set()
        self._end(run, saved, done - saved)

    def _end(self, run: Run, counted: int, redone: int) -> None:
        tally, done = self.tally, counted + redone
        moving = min(run.ready_us, self._now) - run.start_us
        trained = max(0, self._now - run.ready_us)
        tally.gpu_us["recovering"] += run.gpus * moving
        tally.gpu_us["useful"] += run.gpus * counted * run.iteration_us
        tally.gpu_us["redone"] += run.gpus * redone * run.iteration_us
        tally.gpu_us["cut"] += run.gpus * (trained - done * run.iteration_us)
        tally.recovery_us += moving
        tally.iterations += counted
        tally.redone += redone
        tally.redone_us += redone * run.iteration_us
        self.legs.append(Leg(run, self._now, counted, redone))
        self._run = None

    # --- beginnings ---------------------------------------------------------------

    def _replan(self) -> None:
        """Weigh new plans, and going on where it is possible; move to the best."""
        if not self._there:
            return
        run, base, gone = self._run, self._base, self._gone
        if run is not None and self._now >= run.ready_us:
            # It would be saved before the move.
            base, gone = (run.instance, run.plan), set()
        cluster = self._instance.planned_cluster
        left = cluster.only([cluster.node[name] for name in self._there])
        here = self._instance.model_copy(update={"cluster": left})
        change = changes.between(base[0], here)
        known = set(base[0].planned_cluster.node)
        storage = self._rules.storage.model_copy(
            update={"unsaved": tuple(sorted(gone & known))}
        )
        self.tally.replans += 1
        work = self._pool.considered(change, base[1], storage)
        best: tuple[Any, Candidate, Data, int] | None = None
        horizon_s = self._rules.horizon_s
        for candidate in work.of_each_name(horizon_s):
            data = pose(change, base[1], candidate.plan, storage)
            took = self._recovery_us(candidate, data)
            if took is None:
                continue
            wait_us = took + self._overhead_us
            value = worth(horizon_s, wait_us, candidate.iteration_us)
            if best is None or value < best[0]:
                best = value, candidate, data, took
        if best is None:
            return
        if run is not None:
            left_us = max(0, run.ready_us - self._now)
            if worth(horizon_s, left_us, run.iteration_us) <= best[0]:
                return
        self._base, self._gone = base, gone
        self._move(change, *best[1:])

    def _recovery_us(self, candidate: Candidate, data: Data) -> int | None:
        """Return the method's recovery time, at most; None where states are lost."""
        if self.exact or self.method == "autohet_recovery":
            return candidate.recovery_us
        plan, several = entries.planner(self.method).plan, self._several
        found = tried(
            self.method, lambda: judged_us(data, _recovery(plan(data))), several=several
        )
        if found.failed and found.reason not in self.failed:
            self.failed += (str(found.reason),)
        return found.made

    def _move(
        self, change: Change, candidate: Candidate, data: Data, took: int
    ) -> None:
        if self.exact:
            took = self._exact_us(data)
        if self._run is not None:
            self._end(self._run, self._run.iterations(self._now), 0)
        ready_us = self._now + self._overhead_us + took
        self.tally.moves += 1
        plan, each_us = candidate.plan, candidate.iteration_us
        self._run = Run(candidate.name, change.new, plan, each_us, self._now, ready_us)

    def _exact_us(self, data: Data) -> int:
        """Return the judge's time of the exact recovery that is carried out."""
        solved = entries.exact_method(EXACT).solve(data, limits=self._limits)
        self.tally.proved += solved.status is Status.OPTIMAL
        if solved.stop is Stop.INTERRUPTED:
            raise KeyboardInterrupt
        if solved.plan is None:
            raise PlanRejected(f"{EXACT}: no recovery where there was one")
        return judged_us(data, solved.plan)


def _recovery(plan: object) -> Recovery:
    if not isinstance(plan, Recovery):
        raise NoPlan("no recovery was found")
    return plan


def along(
    moments: Sequence[Moment],
    replays: Sequence[Replay],
    report: Callable[[int, int], None] | None = None,
) -> int:
    """Enter all moments, every method in turn, and end; the time of the end, in us.

    Ctrl-C ends all of them at the moment that was being entered.
    """
    end_us = moments[-1].time_us
    time_us = 0
    try:
        for number, moment in enumerate(moments[:-1]):
            time_us = moment.time_us
            for one in replays:
                one.enter(moment)
            if report is not None:
                report(number + 1, len(moments) - 1)
    except KeyboardInterrupt:
        end_us = time_us
    for one in replays:
        one.close(end_us)
    return end_us
