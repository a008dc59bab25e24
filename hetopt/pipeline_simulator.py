"""A pipeline step by step: an independent judge of the closed form of its time.

Every stage works through its passes in the order that its schedule fixes: 1F1B (at most
P - j micro-batches in flight on stage j, backward before forward once there are) or
GPipe (all forward passes, then all backward passes). A forward pass needs that of the
stage before it, a backward pass that of the stage behind it; the last stage needs its
own forward pass. Half of a hop lengthens the sender's forward pass and half of it its
backward pass, as the cost model charges both directions to the sender. Gradients are
synchronised after the slowest pipeline, as the judge says.

Interleaved, each of P stages is v runs of layers, the k-th of them behind the k-th of
the stage before: a micro-batch passes P v virtual stages. Megatron's order (arXiv
2104.04473, section 2.2.2): P micro-batches at a time through one run after another,
2 (P - j - 1) + (v - 1) P forward passes ahead, then one of each kind in turn. Runs of
a stage take a v-th of its time each.

Under `hops: both` the receiver spends a transfer as well, at the same time as the
sender: its pass may begin that much before the sender's ends.

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

from .errors import InstanceError, InternalError
from .plans import TrainingPlan
from .problems import training_plan
from .schema import CostSettings, Instance, exact

Schedule = Literal["1f1b", "gpipe"]
Task = tuple[str, int, int]  # F or B, stage, micro-batch


@dataclass(frozen=True)
class Times:
    """Both passes of a stage for one micro-batch, its halves of the hop included."""

    forward_us: Fraction
    backward_us: Fraction
    #: What of a pass, one transfer, the stage behind spends at the same time.
    shared_us: Fraction = Fraction(0)

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
    run: int = 0  # of the stage's layers, where pipelines are interleaved


@dataclass(frozen=True)
class Timeline:
    """What happened in one pipeline, in the order of the starts."""

    times: tuple[Times, ...]
    micro_batches: int
    passes: tuple[Pass, ...]
    runs: int = 1

    @property
    def total_us(self) -> Fraction:
        """When the last pass ends."""
        return max(done.end_us for done in self.passes)

    @property
    def closed_us(self) -> Fraction:
        """The closed form: n max tau, and filling: a v-th of the other taus."""
        slowest = max(stage.both_us for stage in self.times)
        whole = sum((t.both_us - 2 * t.shared_us for t in self.times), Fraction(0))
        return self.micro_batches * slowest + (whole - slowest) / self.runs

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
        count = len(self.times)
        known = {
            (one.kind, one.run * count + one.stage, one.micro_batch): one
            for one in self.passes
        }
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
            here = now.run * count + now.stage
            source = here - 1 if now.kind == "F" else here + 1
            neighbour = known.get((now.kind, source, now.micro_batch))
            border = now.stage - 1 if now.kind == "F" else now.stage
            shared = self.times[border].shared_us / self.runs
            own = before.get(now)
            if own is not None and own.end_us == now.start_us:
                path.append(own)
            elif neighbour is not None and neighbour.end_us - shared == now.start_us:
                path.append(neighbour)
            else:
                raise InternalError(f"{now} begins when nothing ends")
        return path[::-1]


def order(
    schedule: Schedule, stages: int, stage: int, n: int, runs: int = 1
) -> Iterator[Task]:
    """The passes of one stage in the order in which it works through them.

    With several runs of layers a stage, tasks name virtual stages: run k of stage j is
    k P + j.
    """
    if runs > 1:
        yield from _interleaved(stages, stage, n, runs)
        return
    ahead = n if schedule == "gpipe" else min(n, stages - stage)
    for m in range(ahead):
        yield "F", stage, m
    for m in range(n):
        yield "B", stage, m
        if m + ahead < n:
            yield "F", stage, m + ahead


def _interleaved(stages: int, stage: int, n: int, runs: int) -> Iterator[Task]:
    """Megatron's interleaved 1F1B; micro-batches come in multiples of the stages."""
    groups = [range(m, m + stages) for m in range(0, n, stages)]
    forward: list[Task] = [
        ("F", k * stages + stage, m) for g in groups for k in range(runs) for m in g
    ]
    backward: list[Task] = [
        ("B", (runs - 1 - k) * stages + stage, m)
        for g in groups
        for k in range(runs)
        for m in g
    ]
    ahead = min(len(forward), 2 * (stages - stage - 1) + (runs - 1) * stages)
    yield from forward[:ahead]
    for one, other in zip(forward[ahead:], backward, strict=False):
        yield one
        yield other
    yield from backward[len(forward) - ahead :]


def simulated(
    times: Sequence[Times], n: int, schedule: Schedule, runs: int = 1
) -> Timeline:
    """Run `n` micro-batches through stages that take `times`, event by event."""
    count = len(times)
    todo = [deque(order(schedule, count, j, n, runs)) for j in range(count)]
    done: set[Task] = set()
    busy = [False] * count
    # What is seen by neighbours, and what ends: when, what, since when.
    events: list[tuple[Fraction, bool, Task, Fraction]] = []
    passes: list[Pass] = []
    now = Fraction(0)

    def start(stage: int) -> None:
        if busy[stage] or not todo[stage]:
            return
        if not _ready(todo[stage][0], count * runs, done):
            return
        task = todo[stage].popleft()
        whole = times[stage]
        lasts = (whole.forward_us if task[0] == "F" else whole.backward_us) / runs
        border = stage if task[0] == "F" else stage - 1
        early = min(lasts, times[border].shared_us / runs)
        busy[stage] = True
        heappush(events, (now + lasts - early, False, task, now))
        heappush(events, (now + lasts, True, task, now))

    for stage in range(count):
        start(stage)
    while events:
        now, ends, task, begun = heappop(events)
        kind, place, m = task
        run, stage = divmod(place, count)
        if ends:
            busy[stage] = False
            passes.append(Pass(kind, stage, m, begun, now, run))
            start(stage)
        else:
            done.add(task)
            for neighbour in {(stage - 1) % count, (stage + 1) % count} - {stage}:
                start(neighbour)
    passes.sort(key=lambda one: (one.start_us, one.stage))
    return Timeline(tuple(times), n, tuple(passes), runs)


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
    runs = costs.interleave if schedule == "1f1b" else 1
    lines = tuple(
        simulated(_times(costs, rows), pipeline.micro_batches, schedule, runs)
        for pipeline, rows in zip(plan.pipelines, found.parts["stages"], strict=True)
    )
    slowest = max(line.total_us for line in lines)
    sync = int(found.parts["sync_us"])
    return Simulation(
        schedule,
        lines,
        tuple(found.parts["pipeline_us"]),
        sync,
        exact(costs.pipeline_factor) * slowest
        + exact(costs.sync_factor) * sync
        + int(found.parts["update_us"]),
        int(found.parts["iteration_us"]),
    )


def _times(costs: CostSettings, rows: Sequence[dict[str, int]]) -> list[Times]:
    found = []
    for j, row in enumerate(rows):
        half, entering = Fraction(row["hop_us"], 2), Fraction(0)
        if costs.hops == "both":
            entering = Fraction(rows[j - 1]["hop_us"], 2)
        forward = row["compute_us"] - row["backward_us"]
        found.append(
            Times(
                forward + half + entering,
                row["backward_us"] + half + entering,
                half if costs.hops == "both" else Fraction(0),
            )
        )
    return found
