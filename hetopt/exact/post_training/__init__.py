"""Post-training: divisions of the GPUs in order of their bounds, training by its own.

A box of divisions is bounded by the most GPUs that train in it, and the most that are
left to generate: training by what no plan on those GPUs beats, generation exactly. The
box of the least bound is divided, until it is one division. There the training plan is
improved and its bound raised by the exact method of training plans, for ever longer
times, until the division is closed or another one has the least bound.
"""

from collections import Counter
from dataclasses import replace
from heapq import heappop, heappush
from itertools import count
from typing import NamedTuple

from ...modelling import Limits
from ...plans import PostTraining
from ...problems.post_training import Data
from ...problems.training_plan import settings, support
from ...result import Result, Status, uninterrupted
from ...search import choices
from ...search.halves import Division, Halves, Trained
from ...solving.run import Report, Run
from .. import training_plan

problem = "post_training"

_SOURCE = "divisions of the GPUs, and bounds of training"


class Looks(NamedTuple):
    """How long the training of one division is looked at, each time twice as long.

    At first for a share of the time limit, or so many seconds without one; it is left
    open after so many times. Chosen on the 64 GPUs of `post_training/` at 10 s.
    """

    share: float = 0.1
    seconds: float = 2.0
    most: int = 8


_LOOKS = Looks()


def solve(
    data: Data,
    *,
    limits: Limits,
    warm_start: PostTraining | None = None,
    report: Report | None = None,
) -> Result:
    """The best division with proof, or the best known and a bound at a limit."""
    support.require(data.instance)
    run = Run(problem, data, limits, report)
    run.start_from(warm_start)
    with run:
        _Walk(Halves(data), run).work()
    return run.result()


#: The bound of divisions from one to another, both None in turn, and a number.
_Box = tuple[int, int, Division, Division]


class _Walk:
    """Boxes of divisions, the least bound first."""

    def __init__(self, halves: Halves, run: Run) -> None:
        self._halves, self._run = halves, run
        self._boxes: list[_Box] = []
        self._open: list[int] = []  # bounds of divisions that are left open
        self._looks, self._numbers = Counter[Division](), count()

    def work(self) -> None:
        """Close every division, or leave at a limit."""
        run, units = self._run, self._halves.units
        self._push(None, None)
        self._push((0,) * len(units), units)
        while True:
            bounds = [*self._open, *(box[0] for box in self._boxes[:1])]
            bounds += [] if run.objective is None else [int(run.objective)]
            if bounds:
                run.tighten(min(bounds), _SOURCE)
            run.check()
            if not self._boxes or run.closed():
                break
            bound, _, low, high = heappop(self._boxes)
            if low == high:
                self._look(bound, high)
            elif low and high:
                self._divide(low, high)
        if not bounds:
            run.reasons = (
                "memory: no division of the GPUs has a training plan that fits, and "
                "engines that hold the weights and an answer, nor do all in turn",
            )

    def _push(self, low: Division, high: Division) -> None:
        """Keep a box, unless it is proved to have no plan."""
        if high is not None and not any(high):
            return
        halves = self._halves
        if (least := halves.trained(high).at_least_us) is not None:
            rooms = None if low == high else halves.rooms(low, least=True)
            if way := halves.way(high, least, rooms):
                heappush(self._boxes, (way.us, next(self._numbers), low, high))

    def _divide(self, low: tuple[int, ...], high: tuple[int, ...]) -> None:
        kind = max(range(len(low)), key=lambda k: high[k] - low[k])
        middle = (low[kind] + high[kind]) // 2
        self._push(low, (*high[:kind], middle, *high[kind + 1 :]))
        self._push((*low[:kind], middle + 1, *low[kind + 1 :]), high)

    def _look(self, bound: int, division: Division) -> None:
        """Look at the training of one division, twice as long as the last time."""
        halves, limits = self._halves, self._run.limits
        if self._looks[division] == _LOOKS.most:
            self._open.append(bound)
            return
        times = 2 ** self._looks[division]
        self._looks[division] += 1
        instance, start = halves.instance(division), halves.trained(division).plan
        twin, seconds = settings.on_target(instance), _LOOKS.seconds * times
        if (left := self._run.left_s()) is not None and limits.time_s is not None:
            seconds = min(left, limits.time_s * _LOOKS.share * times)
        limits = replace(limits, time_s=seconds, gap=None)
        start = start and choices.said(twin, instance, start)
        found = training_plan.solve(twin, limits=limits, warm_start=start)
        if uninterrupted(found).status is Status.INFEASIBLE:
            halves.known[division] = Trained(None)
            return
        plan = found.plan and choices.said(instance, twin, found.plan)
        least_us = int(found.bound.value) if found.bound else 0
        known = halves.learn(division, plan, least_us)
        if known.plan is not None and known.us is not None:
            self._run.offer(halves.plan(division, known.plan, known.us))
            if (way := halves.way(division, known.us)) and way.us == bound:
                return
        self._push(division, division)
