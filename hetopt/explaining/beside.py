"""A step of a run beside its simulation: what took longer than predicted, and where.

The executor's traces (`hetopt run --trace`) have a file for each rank: its passes, what
of each it waited for a neighbour, the sum of gradients and the update, for every step.
Shown is the step of median time; the first is left out, which warms up, where there are
others. Clocks of hosts are taken as they are.
"""

import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

from ..errors import InstanceError
from ..plans import TrainingPlan
from ..schema import Record
from ..schema.record import GpuId, Name
from ..text.complaints import listed, validated
from ..text.documents import Document
from ..text.parsing import read_tree
from .simulator import Simulation
from .timeline import Timeline

_PASS = re.compile(r"(forward|backward) (\d+)(?: run (\d+))?")
_WAIT, _SUMS, _UPDATE = "wait", "sum of gradients", "update"


class _Event(Record):
    """A span, in us."""

    name: Name
    ph: str
    ts: float
    dur: float
    pid: Name
    tid: int


class _Rank(Record):
    """A rank tells the GPU of a file."""

    gpu: GpuId
    rank: int


class _File(Record):
    """A file of events, in Chrome's words."""

    traceEvents: tuple[_Event, ...]
    displayTimeUnit: str
    otherData: _Rank


class _Place(NamedTuple):
    pipeline: int
    stage: int
    first: bool
    micro_batches: int


@dataclass(frozen=True)
class Ran:
    """A pass as it ran: F or B, from when it had what it needs; us from the step's."""

    kind: str
    micro_batch: int
    run: int
    start_us: float
    end_us: float


@dataclass(frozen=True)
class Lane:
    """A lane is one GPU in the step; `first` marks a replica's first."""

    gpu: str
    pipeline: int
    stage: int
    first: bool
    passes: tuple[Ran, ...]
    sums_us: float
    update_us: float
    end_us: float

    @property
    def passed_us(self) -> float:
        """Return when its last pass ended."""
        return max(one.end_us for one in self.passes)

    def busy_us(self, *kinds: str) -> float:
        """Return the time spent in passes of these kinds."""
        return sum(x.end_us - x.start_us for x in self.passes if x.kind in kinds)


@dataclass(frozen=True)
class Row:
    """A part of the iteration; without a stage it is of all of it."""

    place: tuple[int, int] | None
    what: str
    predicted_us: float
    measured_us: float


@dataclass(frozen=True)
class Beside:
    """A simulation, and the step `step` of `steps` that ran."""

    found: Simulation
    lanes: tuple[Lane, ...]
    step: int
    steps: int

    @property
    def iteration_us(self) -> float:
        """Return the time of the step, from its first pass to the last update."""
        return max(lane.end_us for lane in self.lanes)

    def rows(self) -> Iterator[Row]:
        """Yield a row a stage, of its busiest GPU, then what follows the pipelines."""
        ends = []
        for p, line in enumerate(self.found.timelines):
            mine = [lane for lane in self.lanes if lane.pipeline == p]
            ends.append(max(mine, key=lambda lane: lane.passed_us))
            for j in range(len(line.times)):
                here = (lane for lane in mine if lane.stage == j)
                lane = max(here, key=lambda one: one.busy_us("F", "B"))
                told = {kind: _told_us(line, j, kind) for kind in "FB"}
                idle = float(line.total_us) - sum(told.values())
                waited = ends[-1].passed_us - lane.busy_us("F", "B")
                yield Row((p, j), "forward", told["F"], lane.busy_us("F"))
                yield Row((p, j), "backward", told["B"], lane.busy_us("B"))
                yield Row((p, j), "waiting", idle, waited)
        # Who ends its passes last waits for nobody in the sums.
        yield from self._after(max(ends, key=lambda lane: lane.passed_us))

    def _after(self, last: Lane) -> Iterator[Row]:
        found = self.found
        slowest = float(found.passes_us)
        yield Row(None, "slowest pipeline", slowest, last.passed_us)
        yield Row(None, _SUMS, float(found.sums_us), last.sums_us)
        yield Row(None, _UPDATE, float(found.update_us), last.update_us)
        rest = self.iteration_us - last.passed_us - last.sums_us - last.update_us
        yield Row(None, "the rest", float(found.overhead_us), rest)
        yield Row(None, "iteration", float(found.iteration_us), self.iteration_us)

    def to_json(self) -> Document:
        """Return the rows, and which step they are of."""
        return {
            "step": self.step,
            "steps": self.steps,
            "iteration_us": self.iteration_us,
            "rows": [
                {
                    "pipeline": row.place[0] if row.place else None,
                    "stage": row.place[1] if row.place else None,
                    "what": row.what,
                    "predicted_us": row.predicted_us,
                    "measured_us": row.measured_us,
                }
                for row in self.rows()
            ],
        }


def _told_us(line: Timeline, stage: int, kind: str) -> float:
    mine = (one for one in line.passes if (one.stage, one.kind) == (stage, kind))
    return float(sum(one.end_us - one.start_us for one in mine))


def beside(found: Simulation, plan: TrainingPlan, folder: Path) -> Beside:
    """Return the step of median time of a run whose traces lie in a folder.

    `InstanceError` where there are none, or they are of another plan or of some of its
    GPUs alone.
    """
    files = sorted(folder.glob("rank-*.json"))
    if not files:
        raise InstanceError(
            f"{folder}: found no rank-*.json, expected what `hetopt run --trace` wrote"
        )
    place = {
        gpu: _Place(p, j, gpu == replica.gpus[0], pipeline.micro_batches)
        for p, pipeline in enumerate(plan.pipelines)
        for j, stage in enumerate(pipeline.stages)
        for replica in stage.replicas
        for gpu in replica.gpus
    }
    steps: dict[str, list[list[_Event]]] = {}
    for file in files:
        told = validated(_File, read_tree(file), str(file))
        steps[told.otherData.gpu] = list(_steps(told.traceEvents))
    _check(folder, place, steps)
    count = min(map(len, steps.values()))
    made = [
        _step(place, {gpu: rows[k] for gpu, rows in steps.items()})
        for k in range(count)
    ]
    warm = range(1 if count > 1 else 0, count)
    order = sorted(warm, key=lambda k: max(lane.end_us for lane in made[k]))
    step = order[(len(order) - 1) // 2]
    return Beside(found, made[step], step + 1, count)


def _check(
    folder: Path,
    place: Mapping[str, _Place],
    steps: Mapping[str, list[list[_Event]]],
) -> None:
    if other := sorted(place.keys() ^ steps.keys()):
        raise InstanceError(
            f"{folder}: found traces of {listed(sorted(steps))}, expected those of the "
            f"plan's GPUs; {listed(other)} are in one alone: give this plan's traces, "
            "of all hosts in one folder"
        )
    for gpu, rows in steps.items():
        want = set(range(place[gpu].micro_batches))
        found = [{_parse(x)[1] for x in row if _PASS.fullmatch(x.name)} for row in rows]
        if not found or any(one != want for one in found):
            raise InstanceError(
                f"{folder}: the trace of {gpu} has no steps of {len(want)} "
                "micro-batches: is it of this plan?"
            )


def _steps(events: Iterable[_Event]) -> Iterator[list[_Event]]:
    """Spans of each step; one begins with the first pass behind a sum."""
    step: list[_Event] = []
    for event in sorted(events, key=lambda one: (one.ts, -one.dur)):
        begins = _PASS.fullmatch(event.name) is not None
        if begins and any(one.name == _SUMS for one in step):
            yield step
            step = []
        step.append(event)
    if step:
        yield step


def _step(
    place: Mapping[str, _Place], events: Mapping[str, list[_Event]]
) -> tuple[Lane, ...]:
    """Return the lane of every GPU, from the first pass of all on."""
    start = min(event.ts for mine in events.values() for event in mine)
    found = []
    for gpu, mine in events.items():
        lasts = {name: 0.0 for name in (_SUMS, _UPDATE)}
        lasts |= {one.name: one.dur for one in mine if one.name in lasts}
        waits = [one for one in mine if one.name == _WAIT]
        passes = tuple(
            _ran(one, waits, start) for one in mine if _PASS.fullmatch(one.name)
        )
        end = max(one.ts + one.dur for one in mine) - start
        p, j, first, _ = place[gpu]
        sums, update = lasts[_SUMS], lasts[_UPDATE]
        found.append(Lane(gpu, p, j, first, passes, sums, update, end))
    return tuple(sorted(found, key=lambda one: (one.pipeline, one.stage, one.gpu)))


def _ran(event: _Event, waits: list[_Event], start: float) -> Ran:
    """Return a pass without what it waited at its beginning."""
    stop = event.ts + event.dur
    waited = sum(one.dur for one in waits if event.ts <= one.ts < stop)
    kind, micro_batch, run = _parse(event)
    return Ran(kind, micro_batch, run, event.ts + waited - start, stop - start)


def _parse(event: _Event) -> tuple[str, int, int]:
    matched = _PASS.fullmatch(event.name)
    assert matched is not None
    kind, micro_batch, run = matched.groups()
    return kind[0].upper(), int(micro_batch), int(run or 0)
