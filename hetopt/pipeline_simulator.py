"""A pipeline step by step: an independent judge of the closed form of its time.

Every stage works through its passes in the order that its schedule fixes: 1F1B (at most
P - j micro-batches in flight on stage j, backward before forward once there are) or
GPipe (all forward passes, then all backward passes). A forward pass needs that of the
stage before it, a backward pass that of the stage behind it; the last stage needs its
own forward pass. Half of a hop lengthens the sender's forward pass and half of it its
backward pass, as the cost model charges both directions to the sender. Gradients are
synchronised after the slowest pipeline, as the judge says.

Against the closed form, sum tau + (n - 1) max tau: equal for equal stages. With
backward passes in proportion to forward ones 1F1B was never longer in what was tried,
and is shorter where stages behind the slowest work while it takes its next forward
pass. Stages slow in opposite passes can make it longer, 22 for 20 in the smallest case
found. GPipe takes sum tau + (n - 1) (max forward + max backward), exactly. An instance
that is `lockstep` is judged by slots as long as their slowest stage, no less than this.
"""

from collections import deque
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from fractions import Fraction
from heapq import heappop, heappush
from typing import Any, Literal

from .errors import InstanceError
from .plans import TrainingPlan
from .problems import training_plan
from .schema import Instance, exact

Schedule = Literal["1f1b", "gpipe"]
Task = tuple[str, int, int]  # F or B, stage, micro-batch


@dataclass(frozen=True)
class Times:
    """Both passes of a stage for one micro-batch, its halves of the hop included."""

    forward_us: Fraction
    backward_us: Fraction

    @property
    def both_us(self) -> Fraction:
        """Both passes together."""
        return self.forward_us + self.backward_us


@dataclass(frozen=True)
class Pass:
    """One pass of one micro-batch through one stage."""

    kind: str
    stage: int
    micro_batch: int
    start_us: Fraction
    end_us: Fraction


@dataclass(frozen=True)
class Timeline:
    """What happened in one pipeline, in the order of the starts."""

    times: tuple[Times, ...]
    micro_batches: int
    passes: tuple[Pass, ...]

    @property
    def total_us(self) -> Fraction:
        """When the last pass ends."""
        return max(done.end_us for done in self.passes)

    @property
    def closed_us(self) -> Fraction:
        """The closed form: sum of tau + (n - 1) max tau."""
        both = [stage.both_us for stage in self.times]
        return sum(both, Fraction(0)) + (self.micro_batches - 1) * max(both)

    @property
    def idle_us(self) -> tuple[Fraction, ...]:
        """Idle time of every stage, from the first pass of all to the last."""
        total = self.total_us
        return tuple(total - self.micro_batches * t.both_us for t in self.times)

    @property
    def bubble(self) -> float:
        """Share of all stages' time that is idle."""
        return float(sum(self.idle_us, Fraction(0)) / (self.total_us * len(self.times)))

    def critical_path(self) -> list[Pass]:
        """Passes without a gap between them, from time 0 to the end."""
        known = {(one.kind, one.stage, one.micro_batch): one for one in self.passes}
        before: dict[Pass, Pass] = {}
        last: dict[int, Pass] = {}
        for one in self.passes:
            if one.stage in last:
                before[one] = last[one.stage]
            last[one.stage] = one
        path = [max(self.passes, key=lambda one: one.end_us)]
        while path[-1].start_us > 0:
            now = path[-1]
            # It waited for its own stage, or for the neighbour in its direction.
            source = now.stage - 1 if now.kind == "F" else now.stage + 1
            neighbour = known.get((now.kind, source, now.micro_batch))
            choices = (neighbour, before.get(now))
            path.append(next(c for c in choices if c and c.end_us == now.start_us))
        return path[::-1]


def order(schedule: Schedule, stages: int, stage: int, n: int) -> Iterator[Task]:
    """The passes of one stage in the order in which it works through them."""
    ahead = n if schedule == "gpipe" else min(n, stages - stage)
    for m in range(ahead):
        yield "F", stage, m
    for m in range(n):
        yield "B", stage, m
        if m + ahead < n:
            yield "F", stage, m + ahead


def simulated(times: Sequence[Times], n: int, schedule: Schedule) -> Timeline:
    """Run `n` micro-batches through stages that take `times`, event by event."""
    count = len(times)
    todo = [deque(order(schedule, count, j, n)) for j in range(count)]
    done: set[Task] = set()
    busy = [False] * count
    events: list[tuple[Fraction, Task, Fraction]] = []
    passes: list[Pass] = []
    now = Fraction(0)

    def start(stage: int) -> None:
        if busy[stage] or not todo[stage] or not _ready(todo[stage][0], count, done):
            return
        task = todo[stage].popleft()
        whole = times[stage]
        lasts = whole.forward_us if task[0] == "F" else whole.backward_us
        busy[stage] = True
        heappush(events, (now + lasts, task, now))

    for stage in range(count):
        start(stage)
    while events:
        now, task, begun = heappop(events)
        kind, stage, m = task
        done.add(task)
        busy[stage] = False
        passes.append(Pass(kind, stage, m, begun, now))
        for neighbour in (stage - 1, stage, stage + 1):
            if 0 <= neighbour < count:
                start(neighbour)
    passes.sort(key=lambda one: (one.start_us, one.stage))
    return Timeline(tuple(times), n, tuple(passes))


def _ready(task: Task, count: int, done: set[Task]) -> bool:
    kind, stage, m = task
    if kind == "F":
        return stage == 0 or ("F", stage - 1, m) in done
    if stage == count - 1:
        return ("F", stage, m) in done
    return ("B", stage + 1, m) in done


@dataclass(frozen=True)
class Simulation:
    """All pipelines of a plan, and the iteration that they make."""

    schedule: Schedule
    timelines: tuple[Timeline, ...]
    judged_us: tuple[int, ...]
    sync_us: int
    iteration_us: Fraction
    judged_iteration_us: int

    def to_json(self) -> dict[str, Any]:
        """The report: simulated beside judged, bubbles, idle time, critical path."""
        return {
            "schedule": self.schedule,
            "iteration_us": float(self.iteration_us),
            "judged_iteration_us": self.judged_iteration_us,
            "sync_us": self.sync_us,
            "pipelines": [
                {
                    "simulated_us": float(line.total_us),
                    "judged_us": judged,
                    "closed_form_us": float(line.closed_us),
                    "bubble": line.bubble,
                    "idle_us": [float(idle) for idle in line.idle_us],
                    "critical_path": [
                        f"{one.kind}{one.micro_batch}@{one.stage}"
                        for one in line.critical_path()
                    ],
                }
                for line, judged in zip(self.timelines, self.judged_us, strict=True)
            ],
        }

    def to_chrome_trace(self) -> dict[str, Any]:
        """Chrome's trace events (times in us): a process a pipeline, a thread a stage.

        Opens in Perfetto and in chrome://tracing.
        """
        events: list[dict[str, Any]] = []
        for p, line in enumerate(self.timelines):
            events.append(_named("process_name", p, 0, f"pipeline {p}"))
            events += [
                _named("thread_name", p, j, f"stage {j}")
                for j in range(len(line.times))
            ]
            events += [
                {
                    "name": f"{one.kind}{one.micro_batch}",
                    "cat": "forward" if one.kind == "F" else "backward",
                    "ph": "X",
                    "pid": p,
                    "tid": one.stage,
                    "ts": float(one.start_us),
                    "dur": float(one.end_us - one.start_us),
                }
                for one in line.passes
            ]
        return {"traceEvents": events, "displayTimeUnit": "ms"}


def _named(what: str, pid: int, tid: int, name: str) -> dict[str, Any]:
    return {"name": what, "ph": "M", "pid": pid, "tid": tid, "args": {"name": name}}


def simulate(
    data: Instance, plan: TrainingPlan, schedule: Schedule | None = None
) -> Simulation:
    """Simulate a plan that keeps the rules of structure, whether or not it fits.

    `schedule` is the one of the instance's `in_flight`, by default: GPipe where it says
    so, else 1F1B. Raises `InstanceError` for a plan that the judge cannot time.
    """
    found = training_plan.evaluate(data, plan)
    if found.objective is None:
        broken = "; ".join(map(str, found.violations[:5]))
        raise InstanceError(f"the plan cannot be simulated: {broken}; correct it")
    costs = data.workload.costs
    if schedule is None:
        schedule = "gpipe" if costs.in_flight == "gpipe" else "1f1b"
    lines = tuple(
        simulated([_times(row) for row in rows], pipeline.micro_batches, schedule)
        for pipeline, rows in zip(plan.pipelines, found.parts["stages"], strict=True)
    )
    slowest = max(line.total_us for line in lines)
    sync = int(found.parts["sync_us"])
    return Simulation(
        schedule,
        lines,
        tuple(found.parts["pipeline_us"]),
        sync,
        exact(costs.pipeline_factor) * slowest + exact(costs.sync_factor) * sync,
        int(found.parts["iteration_us"]),
    )


def _times(row: dict[str, int]) -> Times:
    half = Fraction(row["hop_us"], 2)
    forward = row["compute_us"] - row["backward_us"]
    return Times(forward + half, row["backward_us"] + half)
