"""The schedule is what a stage does in one iteration, in order, by micro-batch.

Sends wait for nobody, so any of these orders ends: a pass waits for its neighbour's
pass of the same micro-batch alone, and both directions come in the order of the
micro-batches.

With several runs of layers a stage (interleaved 1F1B, arXiv 2104.04473, section 2.2.2)
micro-batches go in groups of as many as there are stages, each group through one run
after another.
"""

from typing import Literal, NamedTuple

Schedule = Literal["1f1b", "gpipe", "one"]


class Action(NamedTuple):
    """A pass of one micro-batch through a run of a stage's layers."""

    kind: Literal["forward", "backward"]
    micro_batch: int
    run: int = 0


def actions(
    schedule: Schedule, stage: int, stages: int, count: int, runs: int = 1
) -> list[Action]:
    """The passes of a stage, for `count` micro-batches.

    1F1B fills the pipeline and then goes back once for each micro-batch that enters;
    GPipe lets all enter first; `one` has one micro-batch in a stage at a time. Several
    `runs` are of 1F1B alone, and `count` is a multiple of `stages` then.
    """
    order = [(i, 0) for i in range(count)]
    ahead = {"1f1b": stages - 1 - stage, "gpipe": count, "one": 0}[schedule]
    if runs > 1:
        order = [
            (first + i, run)
            for first in range(0, count, stages)
            for run in range(runs)
            for i in range(stages)
        ]
        ahead = 2 * (stages - 1 - stage) + (runs - 1) * stages
    forward = [Action("forward", i, run) for i, run in order]
    backward = [Action("backward", i, runs - 1 - run) for i, run in order]
    ahead = min(ahead, len(order))
    found = forward[:ahead]
    for pair in zip(forward[ahead:], backward, strict=False):
        found += pair
    return found + backward[len(order) - ahead :]
