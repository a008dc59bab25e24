"""A plan step by step: an independent judge of the closed form of its time.

`pipeline_timeline` runs each pipeline; gradients are synchronised after the slowest
one, as the judge says.

Against the closed form, sum tau + (n - 1) max tau: equal for equal stages. With
backward passes in proportion to forward ones 1F1B was never longer in what was tried,
and is shorter where stages behind the slowest work while it takes its next forward
pass. Stages slow in opposite passes can make it longer, 22 for 20 in the smallest case
found. GPipe takes sum tau + (n - 1) (max forward + max backward), exactly. An instance
that is `lockstep` is judged by slots as long as their slowest stage, no less than this.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Any, Literal

from ..errors import InstanceError
from ..plans import TrainingPlan
from ..problems import training_plan
from ..problems.training_plan.shapes import split_of
from ..schema import CostSettings, Instance, exact
from .delays import Delays, Idle, delays, idle
from .timeline import Schedule, Timeline, Times, simulated

Transfers = Literal["charged", "overlapped"]


@dataclass(frozen=True)
class Simulation:
    """All pipelines of a plan, and the iteration that they make."""

    schedule: Schedule
    timelines: tuple[Timeline, ...]
    judged_us: tuple[int, ...]
    sync_us: int
    update_us: int
    pipeline_factor: Fraction
    sync_factor: Fraction
    judged_iteration_us: int
    transfers: Transfers = "charged"
    tied_us: int = 0
    overhead_us: int = 0

    @property
    def iteration_us(self) -> Fraction:
        """The slowest pipeline and what follows it, as the judge adds them."""
        slowest = max(line.total_us for line in self.timelines)
        sync = self.sync_factor * self.sync_us
        end = self.tied_us + self.update_us + self.overhead_us
        return self.pipeline_factor * slowest + sync + end

    @property
    def runs(self) -> int:
        """Of layers on a stage; more than one where pipelines are interleaved."""
        return self.timelines[0].runs

    def delays(self) -> tuple[Delays, ...]:
        """Of every pipeline: why the judge's time is another one."""
        both = zip(self.timelines, self.judged_us, strict=True)
        return tuple(delays(line, judged) for line, judged in both)

    def to_json(self) -> dict[str, Any]:
        """The report: simulated beside judged, bubbles, idle time, critical path."""
        rows = zip(self.timelines, self.judged_us, self.delays(), strict=True)
        return {
            "schedule": self.schedule,
            "interleave": self.runs,
            "transfers": self.transfers,
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
                    "idle_parts_us": [_plainly(parts) for parts in idle(line)],
                    "judged_less_simulated_us": _plainly(why),
                    "critical_path": [
                        f"{one.kind}{one.micro_batch}@{one.stage}"
                        for one in line.critical_path()
                    ],
                }
                for line, judged, why in rows
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
                    "args": {"micro_batch": one.micro_batch, "run": one.run},
                }
                for one in line.passes
            ]
        return {"traceEvents": events, "displayTimeUnit": "ms"}


def _plainly(parts: Delays | Idle) -> dict[str, float]:
    return {name: float(value) for name, value in vars(parts).items()}


def _named(what: str, pid: int, tid: int, name: str) -> dict[str, Any]:
    return {"name": what, "ph": "M", "pid": pid, "tid": tid, "args": {"name": name}}


def simulate(
    data: Instance,
    plan: TrainingPlan,
    schedule: Schedule | None = None,
    transfers: Transfers = "charged",
) -> Simulation:
    """Simulate a plan that keeps the rules of structure, whether or not it fits.

    `schedule` is the one of the instance's `in_flight`, by default: GPipe where it says
    so, else 1F1B. Transfers are charged to stages as the judge does, or `overlapped`
    with what they compute. Raises `InstanceError` for a plan that the judge cannot
    time.
    """
    found = training_plan.evaluate(data, plan)
    if found.objective is None:
        broken = "; ".join(map(str, found.violations[:5]))
        raise InstanceError(f"the plan cannot be simulated: {broken}; correct it")
    costs = data.workload.costs
    if schedule is None:
        schedule = "gpipe" if costs.in_flight == "gpipe" else "1f1b"
    runs = split_of(data, plan).interleave if schedule == "1f1b" else 1
    lines = tuple(
        simulated(
            _times(costs, rows, transfers), pipeline.micro_batches, schedule, runs
        )
        for pipeline, rows in zip(plan.pipelines, found.parts["stages"], strict=True)
    )
    return Simulation(
        schedule,
        lines,
        tuple(found.parts["pipeline_us"]),
        int(found.parts["sync_us"]),
        int(found.parts["update_us"]),
        exact(costs.pipeline_factor),
        exact(costs.sync_factor),
        int(found.parts["iteration_us"]),
        transfers,
        int(found.parts["tied_us"]),
        int(found.parts["overhead_us"]),
    )


def _times(
    costs: CostSettings, rows: Sequence[dict[str, int]], transfers: Transfers
) -> list[Times]:
    found = []
    for j, row in enumerate(rows):
        forward, backward = row["compute_us"] - row["backward_us"], row["backward_us"]
        half, entering = Fraction(row["hop_us"], 2), Fraction(0)
        if transfers == "overlapped":
            found.append(Times(Fraction(forward), Fraction(backward), -half))
            continue
        if costs.hops == "both":
            entering = Fraction(rows[j - 1]["hop_us"], 2)
        busy = half + entering
        shared = half if costs.hops == "both" else Fraction(0)
        found.append(Times(forward + busy, backward + busy, shared))
    return found
