"""Post-training: divisions of the GPUs in order of their bounds, training by its own.

A box of divisions is bounded by the most GPUs that train in it, and the most that are
left to generate: training by what no plan on those GPUs beats, generation exactly. The
box of the least bound is divided, until it is one division. There the training plan is
improved and its bound raised by the exact method of training plans, for ever longer
times, until the division is closed or another one has the least bound.
"""

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
from ...search.halves import Division, Halves
from ...solving.run import Report, Run
from .. import training_plan

__all__ = ["problem", "solve"]

problem = "post_training"

_SOURCE = "divisions of the GPUs, and bounds of training"


class Sharing(NamedTuple):
    """How long the training of one division is looked at.

    At first for a share of the time limit, or so many seconds without one, then twice
    as long each time; after so many times without a plan or a proof it is left open.
    """

    share: float = 0.05
    seconds: float = 2.0
    most: int = 8


_SHARING = Sharing()


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


class _Box(NamedTuple):
    """Divisions from `low` to `high`; `low` is None where all GPUs work in turn."""

    bound: int
    number: int
    low: Division
    high: Division


class _Walk:
    """Boxes of divisions, the least bound first."""

    def __init__(self, halves: Halves, run: Run) -> None:
        self._halves, self._run = halves, run
        self._boxes: list[_Box] = []
        self._left: list[int] = []  # bounds of divisions that stay open
        self._looks: dict[Division, int] = {}
        self._numbers = count()

    def work(self) -> None:
        """Close every division, or leave at a limit."""
        run, units = self._run, self._halves.units
        self._push(None, None)
        self._push((0,) * len(units), units)
        while self._boxes:
            self._tighten(self._boxes[0].bound)
            run.check()
            if run.objective is not None and self._boxes[0].bound >= run.objective:
                break
            box = heappop(self._boxes)
            if box.low == box.high:
                self._look(box)
            else:
                self._divide(box)
        if run.objective is not None:
            self._tighten(int(run.objective))
        elif not self._left:
            run.reasons = (
                "memory: no division of the GPUs has a training plan that fits, and "
                "engines that hold the weights and an answer, nor do all in turn",
            )

    def _tighten(self, bound: int) -> None:
        """State a bound of the boxes; no plan that is known is better."""
        known = [] if self._run.objective is None else [int(self._run.objective)]
        self._run.tighten(min([bound, *self._left, *known]), _SOURCE)

    def _push(self, low: Division, high: Division) -> None:
        """Keep a box, unless it is proved to have no plan."""
        halves = self._halves
        if high is not None and not any(high):
            return
        least = halves.trained(high).at_least_us
        if least is None:
            return
        rooms = halves.rooms(low, least=True) if low != high else None
        bound = halves.step_us(high, least, rooms)
        if bound is not None:
            heappush(self._boxes, _Box(bound, next(self._numbers), low, high))

    def _divide(self, box: _Box) -> None:
        assert box.low is not None
        assert box.high is not None
        low, high = box.low, box.high
        kind = max(range(len(low)), key=lambda k: high[k] - low[k])
        middle = (low[kind] + high[kind]) // 2
        self._push(low, (*high[:kind], middle, *high[kind + 1 :]))
        self._push((*low[:kind], middle + 1, *low[kind + 1 :]), high)

    def _look(self, box: _Box) -> None:
        """Look longer at the training of one division."""
        halves, run, division = self._halves, self._run, box.high
        looks = self._looks.get(division, 0)
        if looks == _SHARING.most:
            self._left.append(box.bound)
            return
        self._looks[division] = looks + 1
        self._train(division, 2**looks)
        known = halves.trained(division)
        if known.plan is not None and known.us is not None:
            run.offer(halves.plan(division, known.plan, known.us))
            if halves.step_us(division, known.us) == box.bound:
                return
        self._push(division, division)

    def _train(self, division: Division, times: int) -> None:
        halves, run = self._halves, self._run
        instance = halves.instance(division)
        twin = settings.on_target(instance)
        start = halves.trained(division).plan
        seconds, whole = _SHARING.seconds * times, run.limits.time_s
        if whole is not None and (left := run.left_s()) is not None:
            seconds = min(left, whole * _SHARING.share * times)
        found = training_plan.solve(
            twin,
            limits=replace(run.limits, time_s=seconds, gap=None),
            warm_start=start and choices.said(twin, instance, start),
        )
        if uninterrupted(found).status is Status.INFEASIBLE:
            halves.rule_out(division)
            return
        plan = found.plan and choices.said(instance, twin, found.plan)
        least = None if found.bound is None else int(found.bound.value)
        halves.learn(division, plan, least)
