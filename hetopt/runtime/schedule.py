"""What a stage does in one iteration, in order: passes of micro-batches.

Sends wait for nobody, so any of these orders ends: a pass waits for its neighbour's
pass of the same micro-batch alone, and both directions come in the order of the
micro-batches.
"""

from typing import Literal, NamedTuple

Schedule = Literal["1f1b", "gpipe", "one"]


class Action(NamedTuple):
    """A pass of one micro-batch through a stage."""

    kind: Literal["forward", "backward"]
    micro_batch: int


def actions(schedule: Schedule, stage: int, stages: int, count: int) -> list[Action]:
    """The passes of a stage, for `count` micro-batches.

    1F1B fills the pipeline and then goes back once for each micro-batch that enters;
    GPipe lets all enter first; `one` has one micro-batch in a stage at a time.
    """
    ahead = {"1f1b": stages - 1 - stage, "gpipe": count, "one": 0}[schedule]
    ahead = min(ahead, count)
    found = [Action("forward", i) for i in range(ahead)]
    for i in range(ahead, count):
        found += [Action("forward", i), Action("backward", i - ahead)]
    return found + [Action("backward", i) for i in range(count - ahead, count)]
