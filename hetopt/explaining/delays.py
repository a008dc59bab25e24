"""Delays of a simulated pipeline: where it is idle, and why the judge's time differs.

Of the slowest stage s, the first one where several are: nothing hides it, so the whole
time is exactly

    until its first pass + its passes + its idle time between them + after its last

The closed form puts the filling times of the other stages there: before its first pass
the forward passes of the stages before s, after its last their backward passes, between
them both passes of the stages behind s, as if s waited for its first micro-batch to
come back. 1F1B lets s work on its next micro-batches meanwhile. The three differences
and what the judge adds to the closed form add up to its distance from the simulation;
nothing is left over.
"""

from dataclasses import dataclass
from fractions import Fraction

from .timeline import Timeline


@dataclass(frozen=True)
class Idle:
    """Idle time of a stage: before its first pass, between passes, after its last."""

    filling_us: Fraction
    waiting_us: Fraction
    draining_us: Fraction


@dataclass(frozen=True)
class Delays:
    """The judge charges these times and the simulation does not; below 0, the reverse.

    `judge_us`: slots of `lockstep`, or rounding. `before_us` and `after_us`: filling
    and draining by the stages before the slowest. `behind_us`: stages behind it.
    """

    judge_us: Fraction
    before_us: Fraction
    behind_us: Fraction
    after_us: Fraction

    @property
    def total_us(self) -> Fraction:
        """Judged less simulated."""
        return self.judge_us + self.before_us + self.behind_us + self.after_us


def idle(line: Timeline) -> tuple[Idle, ...]:
    """Every stage's idle time, in three parts that add up to all of it."""
    total, found = line.total_us, []
    for stage, times in enumerate(line.times):
        mine = [one for one in line.passes if one.stage == stage]
        first = min(one.start_us for one in mine)
        last = max(one.end_us for one in mine)
        waiting = last - first - line.micro_batches * times.both_us
        found.append(Idle(first, waiting, total - last))
    return tuple(found)


def delays(line: Timeline, judged_us: int) -> Delays:
    """Return the difference of `judged_us` from the simulation of the same stages."""
    stages = line.times
    slowest = max(range(len(stages)), key=lambda j: stages[j].both_us)
    before, behind = stages[:slowest], stages[slowest + 1 :]
    # Transfers that keep both ends busy are in two passes, but fill only once.
    once = sum((x.shared_us for x in before), Fraction(0))
    twice = 2 * sum((x.shared_us for x in stages[slowest:]), Fraction(0))
    there = sum((x.forward_us for x in before), Fraction(0)) - once
    back = sum((x.backward_us for x in before), Fraction(0)) - once
    around = sum((x.both_us for x in behind), Fraction(0)) - twice
    mine = idle(line)[slowest]
    return Delays(
        judged_us - line.closed_us,
        there / line.runs - mine.filling_us,
        around / line.runs - mine.waiting_us,
        back / line.runs - mine.draining_us,
    )
