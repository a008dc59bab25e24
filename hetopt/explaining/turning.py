"""Schedules whose layers turn back at the last stage: ZBV, and DualPipe.

Of P stages, virtual stage p lies on stage p, and P + p on stage P - 1 - p.

ZBV (Qi et al., Pipeline Parallelism with Controllable Memory, arXiv 2405.15362,
section 4.2) gives every stage two runs of layers, the second ones in the opposite
order, so that a micro-batch turns on the last stage. Of equal stages whose passes F, B
and W are equally long none is idle once it has begun, and the first holds P
micro-batches, as 1F1B's does. Its order is that of PyTorch's `ScheduleZBVZeroBubble`
(torch/distributed/pipelining/schedules.py).

DualPipe (DeepSeek-V3, arXiv 2412.19437, section 3.2.1) feeds micro-batches from both
ends. Stage j has its own layers, for one half of them, and those of stage P - 1 - j for
the other: twice the parameters. With a backward pass B of which W makes the gradients
of weights, each of equal stages is idle for (P / 2 - 1) (F&B + B - 3 W) where F, W and
the rest of B are equally long, for no more where W <= F <= B - W; it holds P + 1
micro-batches at the most. F&B is a forward pass among a backward one: it takes the time
of both here, and what they make is there when both have ended. It needs an even number
of stages, and of micro-batches, two a stage at least. Its order is that of the released
`DualPipe.step`. That the two copies of a layer sum their gradients is not timed.
"""

from collections import deque
from collections.abc import Iterator

Task = tuple[str, int, int]  # F, B or W, virtual stage, micro-batch
#: A forward pass among the backward pass that comes next.
AMONG = "F&"


def stage_of(stages: int, place: int) -> int:
    """Return the stage on which a virtual one lies."""
    return place if place < stages else 2 * stages - 1 - place


def zbv(stages: int, stage: int, n: int) -> Iterator[Task]:
    """The passes of one stage in order; those of micro-batches beyond `n` are left out.

    The order is of 2 P - 1 micro-batches, or more.
    """
    places, many = (stage, 2 * stages - 1 - stage), max(2 * stages - 1, n)
    done = {(kind, run): 0 for kind in "FBW" for run in (0, 1)}

    def next_of(kind: str, run: int) -> Iterator[Task]:
        m = done[kind, run]
        done[kind, run] += 1
        if m < n:
            yield kind, places[run], m

    def each(*tasks: str) -> Iterator[Task]:
        for task in tasks:
            yield from next_of(task[0], int(task[1]))

    for _ in range(2 * (stages - stage) - 1):
        yield from each("F0")
    for _ in range(stage):
        yield from each("F1", "F0")
    for _ in range(stages - stage):
        yield from each("F1", "B1", "W1")
    while done["F", 1] < done["F", 0] or done["F", 0] < many:
        if done["F", 0] < many:
            yield from each("F0")
        yield from each("B0", "W0", "F1", "B1", "W1")
    for _ in range(stage):
        yield from each("B0", "B1")
    for _ in range(stages - stage):
        yield from each("B0", "W0")
    for run in (1, 0):
        while done["W", run] < done["B", run]:
            yield from each(f"W{run}")


def dualpipe(stages: int, stage: int, n: int) -> Iterator[Task]:
    """Yield the passes of one stage in order; B without a W behind it is a whole one.

    Micro-batches of the second half begin on the last stage.
    """
    half, near = stages // 2, min(stage, stages - 1 - stage)
    made = _Dual(stages, stage, n // 2)
    for _ in range(2 * (half - near - 1)):
        yield made.forward(0)
    for _ in range(near + 1):
        yield made.forward(0)
        yield made.forward(1)
    for _ in range(half - near - 1):
        yield made.backward(1, divided=True)
        yield made.weights()
        yield made.forward(1)
    for i in range(n // 2 - stages + near + 1):
        # On the middle stages the first of them are one after the other.
        yield made.forward(0, among=i > 0 or near < half - 1)
        yield made.backward(1)
        yield made.forward(1, among=True)
        yield made.backward(0)
    for _ in range(half - near - 1):
        yield made.backward(1)
        yield made.forward(1, among=True)
        yield made.backward(0)
    divided = False
    for i in range(near + 1):
        divided |= i == (near + 1) // 2 and near % 2 == 1
        yield made.backward(1, divided)
        divided |= i == (near + 1) // 2 and near % 2 == 0
        yield made.backward(0, divided)
    for _ in range(half - near - 1):
        yield made.weights()
        yield made.backward(0, divided=True)
    while made.waiting:
        yield made.weights()


class _Dual:
    """A stage counts its micro-batches from its nearer end, 0, and from the other."""

    def __init__(self, stages: int, stage: int, each: int) -> None:
        turned = stage >= stages // 2
        places = (stage, 2 * stages - 1 - stage)
        self._ends = [(places[end ^ turned], each * (end ^ turned)) for end in (0, 1)]
        self._done = {(kind, end): 0 for kind in "FB" for end in (0, 1)}
        self.waiting: deque[Task] = deque()

    def _next(self, kind: str, end: int) -> Task:
        place, first = self._ends[end]
        self._done[kind, end] += 1
        return kind, place, first + self._done[kind, end] - 1

    def forward(self, end: int, among: bool = False) -> Task:
        task = self._next("F", end)
        return (AMONG, *task[1:]) if among else task

    def backward(self, end: int, divided: bool = False) -> Task:
        task = self._next("B", end)
        if divided:
            self.waiting.append(("W", *task[1:]))
        return task

    def weights(self) -> Task:
        return self.waiting.popleft()
