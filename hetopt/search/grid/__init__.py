"""Grids: the plans of trainers that cut all pipelines alike, best first and bounded.

Megatron-LM, torchtitan and DeepSpeed run `stages` x `replicas` groups of `t` GPUs:
every pipeline has the same cuts and as many micro-batches, whatever GPUs it is on. Such
plans are few enough to look at all their shapes, that is, setting of recomputation and
ZeRO, degree, replicas, stages and size of micro-batches. For each shape there is a time
that no plan of it beats (`least`), and shapes are filled with GPUs in the order of
these times (`filling`) until the next one cannot be better than the best plan.

On targets that run more than grids these plans are a start, and the bound is none.
Those that give whole models unequal shares of the batch have more of them (`sharing`).
"""

from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from heapq import heapify, heappop, heapreplace, nsmallest
from math import inf
from typing import NamedTuple

from ...bounds.single_gpu import single_gpu_plans
from ...costs import under
from ...errors import OutOfTime, keeping
from ...plans import TrainingPlan
from ...problems import training_plan
from ...problems.training_plan import divided, settings, targets
from ...problems.training_plan.shapes import merge, split_of
from ...schema import Instance, Recompute
from ...schema.targets import Feature
from .. import choices
from ..balancing import Balancer
from ..fast_cost import FastCost, Pipe
from . import sharing
from .filling import Filling, Shape, shapes
from .least import Least

Report = Callable[[int], None]
#: Places of rules, the fastest first; others are between the two.
RANKS = {"none": 0, "full": 2}
_FIRST = 8  # shapes of a setting, filled before others are listed


class Found(NamedTuple):
    """The best plan with its time, and a time that no grid beats; both in us.

    No plan: none was found, and with `bound_us` infinite there is none.
    """

    plan: TrainingPlan | None
    objective: int | None
    bound_us: float


class _Setting:
    """The shapes of grids under one rule of recomputation and one stage of ZeRO."""

    def __init__(
        self, instance: Instance, zero: int, rule: Recompute, deadline: float | None
    ) -> None:
        self._whole, self._zero, self._rule = instance, zero, rule
        self.cost = FastCost(under(instance, rule, zero), deadline)
        self.least = Least(self.cost)
        self.filling = Filling(self.cost, Balancer(self.cost))

    def plan(self, shape: Shape, pipes: tuple[Pipe, ...]) -> TrainingPlan:
        """The plan of the instance, replicas that share a micro-batch together."""
        plan = self.cost.plan(pipes)
        if (several := shape.together) > 1:
            alone = plan.pipelines
            parts = (alone[i : i + several] for i in range(0, len(alone), several))
            plan = TrainingPlan(pipelines=tuple(map(merge, parts)))
        twin = under(self._whole, self._rule, self._zero)
        return choices.said(self._whole, twin, plan)


def search(
    instance: Instance,
    *,
    deadline: float | None = None,
    report: Report | None = None,
    most: int | None = None,
    below: float = inf,
) -> Found:
    """The best grid on the instance's target, and what no grid beats.

    `deadline` is a `clock.monotonic()` instant; `most` bounds the shapes that are
    filled. Shapes that take no less than `below` us need not be looked at. `report`
    hears the objective of every better plan.
    """
    look = _Search(instance, deadline, report, below)
    with suppress(OutOfTime), keeping(lambda: look.plan):
        look.list_single_gpus()
        look.share()
        look.run(most)
    return Found(look.plan, look.objective, look.bound_us())


@dataclass
class _Search:
    instance: Instance
    deadline: float | None
    report: Report | None
    below: float
    plan: TrainingPlan | None = None
    objective: int | None = None
    _shapes: list[tuple[_Setting, Shape]] = field(default_factory=list)
    #: Bound, whether it is refined, and number.
    _waiting: list[tuple[float, int, int]] = field(default_factory=list)
    _seen: set[int] = field(default_factory=set)  # shapes that were filled
    _filled: float = inf  # the least bound of the shapes that were filled
    _listed: bool = False
    _shares_us: float | None = None  # of whole models with unequal shares
    _single_us: float = inf  # on one GPU, where that takes other times

    def bound_us(self) -> float:
        """Return what no grid beats: 0 while not all shapes are listed.

        Of whole models with shares what none of these beats.
        """
        if self._shares_us is not None:
            return min(self._shares_us, self._single_us)
        if not self._listed:
            return 0
        waiting = self._waiting[0][0] if self._waiting else inf
        best = inf if self.objective is None else self.objective
        return min(waiting, self._filled, best, self._single_us)

    def list_single_gpus(self) -> None:
        """Keep the best plan on one GPU, where these take other times than shapes."""
        singles = single_gpu_plans(self.instance).values()
        if single := min(singles, key=lambda one: one.us, default=None):
            self._single_us, self.objective, self.plan = single.us, *single
            if self.report is not None:
                self.report(single.us)

    def run(self, most: int | None) -> None:
        """Fill shapes, those with the least time first, until none can be better."""
        self._list(fills=most is None)
        filled = 0
        while self._waiting and not self._closed(self._waiting[0][0]):
            bound, refined, number = self._waiting[0]
            setting, shape = self._shapes[number]
            if not refined:
                better = max(bound, setting.least.us(shape))
                heapreplace(self._waiting, (better, 1, number))
                continue
            if filled == most:
                return
            filled += 1
            self._fill(setting, shape, number)
            heappop(self._waiting)
            self._filled = min(self._filled, bound)

    def share(self) -> None:
        """Offer whole models with unequal shares of the batch, where these are run."""
        target, given = self.instance.workload.target, dict[int, list[Recompute]]()
        if not target.whole or Feature.DIFFERENT_BATCHES not in target.supports:
            return
        for zero, rule in settings.state_choices(self.instance):
            given.setdefault(zero, []).append(rule)
        bounds = []
        for zero, rules in given.items():
            mixed = zero < 2 and Feature.MIXED_RECOMPUTE in target.supports
            for some in [rules] if mixed else [[rule] for rule in rules]:
                setting = _Setting(self.instance, zero, some[0], self.deadline)
                bounds.append(sharing.least_us(setting.cost, setting.least, some))
                for pipes in sharing.plans(setting.cost, some):
                    value = setting.cost.iteration_us(pipes)
                    shape = Shape(1, len(pipes), 1, 1, 1)
                    self._offer(setting, shape, value, pipes)
        self._shares_us = min(bounds, default=inf)

    def _closed(self, bound: float) -> bool:
        best = inf if self.objective is None else self.objective
        return bound >= min(best, self.below)

    def _list(self, *, fills: bool) -> None:
        """All shapes; with `fills`, and a plan of each setting as soon as it is listed.

        Where there are many settings, time may be over before all of them are: those
        that recompute least come first.
        """
        choices = settings.state_choices(self.instance)
        for zero, rule in sorted(choices, key=lambda pair: RANKS.get(pair[1], 1)):
            setting = _Setting(self.instance, zero, rule, self.deadline)
            first = len(self._waiting)
            for shape in shapes(setting.cost):
                setting.cost.check()
                bound = setting.least.quick_us(shape)
                self._waiting.append((bound, 0, len(self._shapes)))
                self._shapes.append((setting, shape))
            if fills:
                self._fill_some(self._waiting[first:])
        heapify(self._waiting)
        self._listed = True

    def _fill_some(self, waiting: list[tuple[float, int, int]]) -> None:
        """Fill shapes of one setting, with the least time first, until one fits."""
        near = [number for _, _, number in nsmallest(_FIRST, waiting)]
        by_least = {n: self._shapes[n][0].least.us(self._shapes[n][1]) for n in near}
        for number in sorted(near, key=by_least.__getitem__):
            if self._closed(by_least[number]):
                return
            if self._fill(*self._shapes[number], number):
                return

    def _fill(self, setting: _Setting, shape: Shape, number: int) -> bool:
        """Offer the plans of a shape; whether there is any."""
        fits = False
        if number not in self._seen:
            self._seen.add(number)
            for pipes in map(setting.cost.ordered, setting.filling.plans(shape)):
                fits, value = True, setting.cost.iteration_us(pipes)
                if self.objective is None or value < self.objective:
                    self._offer(setting, shape, value, pipes)
        return fits

    def _offer(
        self, setting: _Setting, shape: Shape, value: int, pipes: tuple[Pipe, ...]
    ) -> None:
        plan = setting.plan(shape, pipes)
        split = split_of(self.instance, plan)
        if next(targets.broken(self.instance, plan), None) is not None:
            return
        if next(divided.experts_broken(self.instance, plan, split), None) is not None:
            return
        if shape.together > 1:  # it hands on by the cheapest way
            judged = training_plan.evaluate(self.instance, plan)
            if not isinstance(judged.objective, int) or judged.violations:
                return
            value = judged.objective
        if self.objective is not None and value >= self.objective:
            return
        self.plan, self.objective = plan, value
        if self.report is not None:
            self.report(value)
