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

from .. import capability
from ..costs import CostTable
from ..errors import InstanceError
from ..findings import Finding
from ..plans import TrainingPlan
from ..problems import training_plan
from ..problems.training_plan.shapes import split_of, table_of
from ..schema import Instance, exact
from ..text.documents import Document
from .timeline import Schedule, Timeline, Times, run_passes
from .times import named


@dataclass(frozen=True, repr=False)
class Simulation(Finding, layout="timeline"):
    """All pipelines of a plan, and the iteration that they make."""

    schedule: Schedule
    timelines: tuple[Timeline, ...]
    judged_us: tuple[int, ...]
    sync_us: int
    update_us: int
    pipeline_factor: Fraction
    sync_factor: Fraction
    judged_iteration_us: int
    tied_us: int = 0
    overhead_us: int = 0
    port_us: int = 0  # of the busiest network port, while pipelines run
    #: What each stage is: its layers and its GPUs.
    names: tuple[tuple[str, ...], ...] = ()
    sync_floor: Fraction = Fraction(0)
    instance: str = ""

    @property
    def iteration_us(self) -> Fraction:
        """Return the slowest pipeline and what follows it, as the judge adds them."""
        ends_us = self.tied_us + self.update_us + self.overhead_us
        return self.passes_us + self.shown_sync_us + ends_us

    @property
    def shown_sync_us(self) -> Fraction:
        """Return what synchronisation adds to the slowest pipeline."""
        beyond = self.sync_floor * self.sync_us - self.passes_us
        return max(self.sync_factor * self.sync_us, beyond)

    @property
    def passes_us(self) -> Fraction:
        """Return the time of the slowest pipeline, or of a busier network port."""
        lines = (line.total_us for line in self.timelines)
        return self.pipeline_factor * max(*lines, Fraction(self.port_us))

    @property
    def runs(self) -> int:
        """Return the virtual stages per GPU: above one where interleaved."""
        return self.timelines[0].runs

    def to_json(self) -> Document:
        """The report: simulated beside judged, bubbles and idle time."""
        rows = zip(self.timelines, self.judged_us, strict=True)
        return {
            "schedule": self.schedule,
            "interleave": self.runs,
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
                    "held_micro_batches": [float(held) for held in line.held],
                }
                for line, judged in rows
            ],
        }


def simulate(
    data: Instance, plan: TrainingPlan, schedule: Schedule | None = None
) -> Simulation:
    """Simulate a plan that keeps the rules of structure, whether or not it fits.

    `schedule` is the one of the instance's `in_flight`, by default: GPipe where it says
    so, else 1F1B. Transfers are charged to stages as the judge does. Raises
    `InstanceError` for a plan that the judge cannot time.
    """
    found = training_plan.evaluate(data, plan)
    if found.objective is None:
        broken = "; ".join(map(str, found.violations[:5]))
        raise InstanceError(f"the plan cannot be simulated: {broken}; correct it")
    costs = data.workload.costs
    if schedule is None:
        schedule = "gpipe" if costs.schedule.in_flight == "gpipe" else "1f1b"
    runs = split_of(data, plan).interleave if schedule == "1f1b" else 1
    table = table_of(data, plan)
    capability.require(f"schedule {schedule}", data)
    lines = tuple(
        run_passes(_times(table, rows), pipeline.micro_batches, schedule, runs)
        for pipeline, rows in zip(plan.pipelines, found.parts["stages"], strict=True)
    )
    return Simulation(
        schedule,
        lines,
        tuple(found.parts["pipeline_us"]),
        int(found.parts["sync_us"]),
        int(found.parts["update_us"]),
        exact(costs.schedule.pipeline_factor),
        exact(costs.updates.sync_factor),
        int(found.parts["iteration_us"]),
        int(found.parts["tied_us"]),
        int(found.parts["overhead_us"]),
        found.parts.get("ports", {}).get("pipelines", {"us": 0})["us"],
        tuple(
            tuple(named(data.planned_cluster, pipeline, runs))
            for pipeline in plan.pipelines
        ),
        costs.sync_floor,
        data.name,
    )


def _times(table: CostTable, rows: Sequence[dict[str, int]]) -> list[Times]:
    found, both = [], table.workload.costs.links.hops == "both"
    for j, row in enumerate(rows):
        forward, backward = row["compute_us"] - row["backward_us"], row["backward_us"]
        half = Fraction(row["hop_us"], 2)
        entering = Fraction(rows[j - 1]["hop_us"], 2) if both else Fraction(0)
        busy, shared = half + entering, half if both else Fraction(0)
        found.append(Times(forward + busy, backward + busy, shared))
    return found
