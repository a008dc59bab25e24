"""One pipeline, event by event: what every stage does, and when.

Every stage works through its passes in the order that its schedule fixes: 1F1B (at most
P - j micro-batches in flight on stage j, backward before forward once there are) or
GPipe (all forward passes, then all backward passes). A forward pass needs that of the
stage before it, a backward pass that of the stage behind it; the last stage needs its
own forward pass. Half of a hop lengthens the sender's forward pass and half of it its
backward pass, as the cost model charges both directions to the sender.

Interleaved, each of P stages is v runs of layers, the k-th of them behind the k-th of
the stage before: a micro-batch passes P v virtual stages. Megatron's order (arXiv
2104.04473, section 2.2.2): P micro-batches at a time through one run after another,
2 (P - j - 1) + (v - 1) P forward passes ahead, then one of each kind in turn. Runs of
a stage take a v-th of its time each.

Under `hops: both` the receiver spends a transfer as well, at the same time as the
sender: its pass may begin that much before the sender's ends.
"""

from collections import deque
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from fractions import Fraction
from heapq import heappop, heappush
from itertools import accumulate
from typing import Literal

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
    """One pass of one micro-batch through one stage: F or B."""

    kind: str
    stage: int
    micro_batch: int
    start_us: Fraction
    end_us: Fraction
    run: int = 0  # of the stage's layers, where there are several


@dataclass(frozen=True)
class Timeline:
    """A timeline lists what happened in one pipeline, in the order of the starts."""

    times: tuple[Times, ...]
    micro_batches: int
    passes: tuple[Pass, ...]
    runs: int = 1

    @property
    def total_us(self) -> Fraction:
        """Return when the last pass ends."""
        return max(done.end_us for done in self.passes)

    @property
    def closed_us(self) -> Fraction:
        """Return the closed form: n max tau, and filling: a v-th of the other taus."""
        slowest = max(stage.both_us for stage in self.times)
        whole = sum((t.both_us - 2 * t.shared_us for t in self.times), Fraction(0))
        return self.micro_batches * slowest + (whole - slowest) / self.runs

    @property
    def idle_us(self) -> tuple[Fraction, ...]:
        """Idle time of every stage, from the first pass of all to the last."""
        total = self.total_us
        return tuple(total - self.micro_batches * t.both_us for t in self.times)

    @property
    def held(self) -> tuple[Fraction, ...]:
        """The most micro-batches that wait for their backward pass, by stage.

        Interleaved, runs of layers count as a `runs`-th each.
        """
        changes: list[list[tuple[Fraction, int]]] = [[] for _ in self.times]
        for one in self.passes:
            if one.kind == "F":
                changes[one.stage].append((one.start_us, 1))
            else:
                changes[one.stage].append((one.end_us, -1))
        waiting = (accumulate(change for _, change in sorted(x)) for x in changes)
        return tuple(Fraction(max(x), self.runs) for x in waiting)

    @property
    def bubble(self) -> float:
        """Share of all stages' time that is idle."""
        return float(sum(self.idle_us, Fraction(0)) / (self.total_us * len(self.times)))


def order(
    schedule: Schedule, stages: int, stage: int, n: int, runs: int = 1
) -> Iterator[Task]:
    """Yield the passes of one stage in the order in which it works through them.

    With several runs of layers a stage, tasks name virtual stages: run k of stage j is
    k P + j.
    """
    if runs > 1:
        yield from _interleave(stages, stage, n, runs)
        return
    ahead = n if schedule == "gpipe" else min(n, stages - stage)
    for m in range(ahead):
        yield "F", stage, m
    for m in range(n):
        yield "B", stage, m
        if m + ahead < n:
            yield "F", stage, m + ahead


def _interleave(stages: int, stage: int, n: int, runs: int) -> Iterator[Task]:
    """Megatron's interleaved 1F1B; micro-batches come in multiples of the stages."""
    groups = [range(m, m + stages) for m in range(0, n, stages)]
    passes = [(k * stages + stage, m) for g in groups for k in range(runs) for m in g]
    forward: list[Task] = [("F", *one) for one in passes]
    # Backward passes come in the same order, but through the last run first.
    behind = (runs - 1) * stages + 2 * stage
    backward: list[Task] = [("B", behind - place, m) for place, m in passes]
    ahead = min(len(forward), 2 * (stages - stage - 1) + (runs - 1) * stages)
    yield from forward[:ahead]
    for one, other in zip(forward[ahead:], backward, strict=False):
        yield one
        yield other
    yield from backward[len(forward) - ahead :]


def run_passes(
    times: Sequence[Times], n: int, schedule: Schedule, runs: int = 1
) -> Timeline:
    """Run `n` micro-batches through stages that take `times`, event by event."""
    count = len(times)
    work = _Work(times, runs)
    todo = [deque(order(schedule, count, j, n, runs)) for j in range(count)]
    done: set[Task] = set()
    busy = [False] * count
    # What neighbours see, and what ends: when, which, what, since when.
    events: list[tuple[Fraction, bool, Task, Fraction]] = []
    passes: list[Pass] = []
    now = Fraction(0)

    def start(stage: int) -> None:
        if busy[stage] or not todo[stage] or not work.ready(todo[stage][0], done):
            return
        task = todo[stage].popleft()
        lasts, early = work.lasts(task), work.early(task)
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
            if kind == "F" and place == work.last:
                done.add(task)  # nothing is sent: its backward pass is next
            passes.append(Pass(kind, stage, m, begun, now, run))
            start(stage)
        else:
            done.add(task)
            for neighbour in {(stage - 1) % count, stage, (stage + 1) % count}:
                start(neighbour)
    passes.sort(key=lambda one: (one.start_us, one.stage))
    return Timeline(tuple(times), n, tuple(passes), runs)


class _Work:
    """The work of virtual stages: how long passes take, and what each needs."""

    def __init__(self, times: Sequence[Times], runs: int) -> None:
        self._times, self._runs = times, runs
        self.last = len(times) * runs - 1

    def _of(self, place: int) -> Times:
        return self._times[place % len(self._times)]

    def lasts(self, task: Task) -> Fraction:
        """Return how long a pass keeps its stage busy."""
        kind, place, _ = task
        mine = self._of(place)
        return (mine.forward_us if kind == "F" else mine.backward_us) / self._runs

    def early(self, task: Task) -> Fraction:
        """Return how long before its end the next sees a pass."""
        kind, place, _ = task
        border = place if kind == "F" else place - 1
        return min(self.lasts(task), self._of(border).shared_us / self._runs)

    def ready(self, task: Task, done: set[Task]) -> bool:
        """Return whether the inputs of a pass are there."""
        kind, place, m = task
        if kind == "F":
            return place == 0 or ("F", place - 1, m) in done
        if place == self.last:
            return ("F", place, m) in done
        return ("B", place + 1, m) in done
