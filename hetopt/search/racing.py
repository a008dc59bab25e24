"""A race of settings: most of the time goes to the few whose plans are best.

A setting is a way to divide the model, a stage of ZeRO (but those for which others
stand) and one rule of recomputation everywhere. First come the grids of each way to
divide, which are plans of every target, then islands of each setting, those that
recompute least first, and none whose bound is no better than the best plan. Local
search starts from the best two.
"""

from collections.abc import Callable, Sequence
from functools import partial
from math import inf

from ..bounds.training_plan import training_plan_bound
from ..clock import monotonic
from ..costs import under
from ..errors import keeping
from ..plans import TrainingPlan
from ..problems import Objective
from ..problems.training_plan import settings
from ..schema import Instance
from . import grid, islands, symmetric
from .attempts import tried
from .choices import said
from .improving import improve
from .quick import in_turn, time_of

#: Shares of the time at whose ends grids and islands are over.
_ENDS = (0.4, 0.7)
#: The first setting has one in so many parts of the time for grids, at the least.
_FIRST = 3
#: How many settings have local search, and how near they are to the best plan.
_WALKS, _NEAR = 2, 1.3


def raced(
    instance: Instance,
    *,
    deadline: float | None = None,
    seed: int = 0,
    rounds: int = 20_000,
    report: Callable[[int], None] = lambda us: None,
) -> TrainingPlan | None:
    """Return the best plan of the race; None where no setting has any.

    `deadline` is a `clock.monotonic()` instant; without one the same seed gives the
    same plan. `rounds` bounds the candidates of each local search. `report` hears the
    time of each better plan, in us.
    """
    race = _Race(instance, seed, report)
    start = monotonic()
    ends = [deadline and start + share * (deadline - start) for share in _ENDS]
    with keeping(lambda: race.plan):
        every = range(len(race.settings))
        for number, end in in_turn(every, ends[0], _FIRST, stops=True):
            race.fill_grids(number, end)
        for numbers, end in in_turn(race.groups(), ends[1], stops=True):
            race.look_at(numbers, end)
        for number, end in in_turn(race.standing(), deadline, stops=True):
            race.walk(number, end, rounds)
    return race.plan


class _Race:
    def __init__(
        self, instance: Instance, seed: int, report: Callable[[int], None]
    ) -> None:
        self._instance, self._seed, self._report = instance, seed, report
        self.plan: TrainingPlan | None = None
        self._us = inf
        self.settings = [
            under(way, rule, zero)
            for way in map(settings.on_target, settings.split_variants(instance))
            for zero, rule in settings.state_choices(way)
            if zero in settings.lightest_zeros(way.workload)
        ]
        self.settings.sort(
            key=lambda one: grid.RANKS.get(one.workload.costs.compute.recompute, 1)
        )
        self._least: dict[int, Objective] = {}
        self._best: dict[int, tuple[int, TrainingPlan]] = {}  # by number of setting

    def fill_grids(self, number: int, deadline: float | None) -> None:
        """Look for the best grid of a setting."""
        if self._may_be_better(number):
            data = self.settings[number]
            found = grid.search(data, deadline=deadline, below=self._us)
            self._keep(number, found.plan)

    def look_at(self, numbers: Sequence[int], deadline: float | None) -> None:
        """Look for islands of the first of these settings that has any."""
        for number in numbers:
            if not self._may_be_better(number):
                continue
            data = self.settings[number]
            for plan in (islands.plan, symmetric.plan):
                make = partial(plan, data, seed=self._seed, deadline=deadline)
                if self._keep(number, tried("settings", make).made):
                    return

    def walk(self, number: int, deadline: float | None, rounds: int) -> None:
        """Search locally from the best plan of a setting."""
        data, start = self.settings[number], self._best[number][1]
        seed = self._seed
        plan = improve(data, start, deadline=deadline, seed=seed, rounds=rounds)
        self._keep(number, plan)

    def groups(self) -> list[list[int]]:
        """Return the settings of each split and stage of ZeRO, the best first."""
        found: dict[object, list[int]] = {}
        for number in sorted(range(len(self.settings)), key=self._rank):
            costs = self.settings[number].workload.costs
            found.setdefault((costs.split, costs.updates.zero), []).append(number)
        return [*found.values()]

    def standing(self) -> list[int]:
        """Return the settings from whose plans local search starts, the best first."""
        return sorted(filter(self._stands, self._best), key=self._rank)[:_WALKS]

    def _rank(self, number: int) -> tuple[float, int]:
        return self._best.get(number, (inf, None))[0], number

    def _stands(self, number: int) -> bool:
        near = self._rank(number)[0] <= _NEAR * self._us
        return near and self._may_be_better(number)

    def _may_be_better(self, number: int) -> bool:
        if self._us < inf and number not in self._least:
            self._least[number] = training_plan_bound(self.settings[number]).value
        return self._us == inf or self._least[number] < self._us

    def _keep(self, number: int, plan: TrainingPlan | None) -> bool:
        data = self.settings[number]
        us = None if plan is None else time_of(data, plan)
        if plan is None or us is None:
            return False
        if number not in self._best or us < self._best[number][0]:
            self._best[number] = us, plan
        if us < self._us:
            self.plan, self._us = said(self._instance, data, plan), us
            self._report(us)
        return True
