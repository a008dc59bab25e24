"""A plan under local search: its score, and what a change of some pipelines gives.

Micro-batches are no decision of the search: for every structure they are shared
exactly. The score is the objective, with a small part of it smoothed: the pipelines'
time as if micro-batches were divisible, and the mean of the stages' synchronisation.
Without it most moves would leave the maximum, and so the score, where it was.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from ..costs.communication import rounds
from .balancing import shared
from .fast_cost import FastCost, Pipe, Slot, Timing

SMOOTH = 0.3  # how much of the pipelines' time is taken as if it were fluid
SPREAD = 0.05  # weight of the mean synchronisation beside the slowest stage's


class Line(NamedTuple):
    """A pipeline without its number of micro-batches."""

    size: int
    slots: tuple[Slot, ...]


@dataclass(slots=True, eq=False)
class State:
    """Pipelines, their micro-batches and score; never changed after it was made."""

    cost: FastCost
    lines: list[Line]
    timings: list[Timing]
    counts: list[int]
    free: list[int]
    signatures: list[int]
    objective: int = field(init=False)
    score: float = field(init=False)

    def __post_init__(self) -> None:
        self.objective, self.score = self._values()

    def pipes(self) -> tuple[Pipe, ...]:
        """The plan in compact form."""
        return tuple(
            Pipe(n, line.size, line.slots)
            for n, line in zip(self.counts, self.lines, strict=True)
        )

    def changed(self, removed: Sequence[int], added: Sequence[Line]) -> "State | None":
        """The state with some pipelines taken out and others put in.

        None where GPUs, memory or the batch do not suffice.
        """
        cost, lines = self.cost, self.lines
        free = self.free.copy()
        for i in removed:
            for slot in lines[i].slots:
                free[slot.node] += slot.t
        for line in added:
            for slot in line.slots:
                free[slot.node] -= slot.t
                if free[slot.node] < 0:
                    return None
        kept = [i for i in range(len(lines)) if i not in removed]
        new_lines = [lines[i] for i in kept] + list(added)
        timings = [self.timings[i] for i in kept]
        timings += [cost.timing(line.size, line.slots) for line in added]
        if not new_lines:
            return None
        counts = shared(cost, timings, [line.size for line in new_lines])
        if counts is None or not self._fit(new_lines, counts, kept):
            return None
        if cost.syncs.is_ordered:
            places = [cost.place(line.slots) for line in new_lines]
            order = sorted(range(len(places)), key=places.__getitem__)
            new_lines = [new_lines[i] for i in order]
            timings, counts = [timings[i] for i in order], [counts[i] for i in order]
            signatures = cost.syncs.signatures(line.slots for line in new_lines)
        else:
            signatures = cost.syncs.changed(
                self.signatures,
                [lines[i].slots for i in removed],
                [line.slots for line in added],
            )
        return State(cost, new_lines, timings, counts, free, signatures)

    def _fit(self, lines: list[Line], counts: list[int], kept: list[int]) -> bool:
        """Tell whether memory suffices; `kept` are those of this state, by number.

        They still fit where they had as much in flight as they can have.
        """
        before = [self.counts[i] for i in kept]
        fits, costs = self.cost.fits, self.cost.costs
        flight = costs.schedule.in_flight
        for i, (line, n) in enumerate(zip(lines, counts, strict=True)):
            settled = i < len(before) and (
                flight == "one" or (flight == "1f1b" and before[i] >= len(line.slots))
            )
            # ZeRO divides by how many pipelines there are.
            settled &= not (costs.updates.zero or costs.schedule.interleave > 1)
            if not settled and not fits(Pipe(n, line.size, line.slots), len(lines)):
                return False
        return True

    def _values(self) -> tuple[int, float]:
        cost = self.cost
        passes = cost.passes_us(self.counts, self.timings)
        sync, mean = self._sync()
        end = cost.end_us([line.slots for line in self.lines])
        stages = [len(line.slots) for line in self.lines]
        sync *= rounds(cost.costs, zip(self.counts, stages, strict=True))
        whole = cost.whole_us(passes, sync, end)
        fluid = self._fluid_us() - passes
        return whole, (
            whole
            + SMOOTH * fluid * float(cost.pipeline_factor)
            + SPREAD * mean * float(cost.sync_factor)
        )

    def _sync(self) -> tuple[int, float]:
        """The slowest stage's synchronisation, and the mean over pipelines' worst."""
        pairs = [
            (line.slots, timing)
            for line, timing in zip(self.lines, self.timings, strict=True)
        ]
        times = self.cost.syncs.times(self.signatures)
        behind, total = times.behind, 0
        for slots, _ in pairs:
            total += max([behind[s.last] - behind[s.first] for s in slots])
        return self.cost.sync_us(pairs, times), total / len(pairs)

    def _fluid_us(self) -> float:
        """Time of the pipelines if micro-batches were divisible."""
        work: float = self.cost.instance.workload.global_batch
        rates = 0.0
        for line, timing in zip(self.lines, self.timings, strict=True):
            rate = line.size / max(1, timing.slowest)
            rates += rate
            work += rate * (timing.total - timing.slowest)
        return work / rates


def first_state(cost: FastCost, pipes: Sequence[Pipe]) -> State | None:
    """The state of a plan; None where its micro-batches cannot be shared anew."""
    free = [node.count for node in cost.nodes]
    for pipe in pipes:
        for slot in pipe.slots:
            free[slot.node] -= slot.t
    lines = [Line(pipe.size, pipe.slots) for pipe in pipes]
    timings = [cost.timing(line.size, line.slots) for line in lines]
    counts = shared(cost, timings, [line.size for line in lines])
    if counts is None:
        return None
    fresh = [
        Pipe(n, line.size, line.slots) for n, line in zip(counts, lines, strict=True)
    ]
    if not all(cost.fits(pipe, len(fresh)) for pipe in fresh):
        counts = [pipe.micro_batches for pipe in pipes]
    signatures = cost.syncs.signatures(line.slots for line in lines)
    return State(cost, lines, timings, counts, free, signatures)
