"""Local search from any training plan, under the judge's objective.

Simulated annealing in a few cycles, each longer than the one before: a cycle starts
from the best plan so far and cools down. The first starts from the given plan, the
second from the best partition into islands (`hetopt.planners.islands`) where that is
better. The moves are those of `_improve_moves`: boundaries, layers, GPUs, stages and
pipelines; the layers of a pipeline whose stages changed are balanced anew, and the
micro-batches of all pipelines always are.
"""

import time
from collections.abc import Callable
from math import exp
from random import Random

from ._improve_moves import Moves
from ._improve_state import State, first_state
from .balancing import Balancer
from .errors import NoPlan
from .fast_cost import FastCost
from .planners import islands
from .plans import TrainingPlan
from .problems import training_plan
from .schema import Instance

HOT, COLD = 3e-3, 5e-5  # temperatures, as shares of the objective
CYCLES = (0.08, 0.3, 1.0)  # when each cycle ends, as shares of the budget
Report = Callable[[int], None]


def improve(
    instance: Instance,
    plan: TrainingPlan,
    *,
    deadline: float | None = None,
    seed: int = 0,
    rounds: int | None = None,
    report: Report | None = None,
) -> TrainingPlan:
    """A plan no worse than `plan`, which is returned itself where nothing is better.

    `deadline` is a `time.monotonic()` instant, `rounds` a number of candidates: the
    search ends at the earlier one, after 100,000 candidates where neither is given.
    With `rounds` alone the same seed gives the same plan. `report` is called with the
    objective of every better plan. A plan with several replicas in a stage, or one
    that the judge refuses, is returned as it is.
    """
    cost = FastCost(instance)
    pipes = cost.compact(plan)
    judged = training_plan.evaluate(instance, plan)
    state = first_state(cost, pipes) if pipes is not None and judged.valid else None
    if state is None:
        return plan
    if rounds is None and deadline is None:
        rounds = 100_000
    search = _Annealing(cost, state, Random(seed), report)
    search.run(_Budget(deadline, rounds))
    if judged.objective is not None and search.best.objective >= judged.objective:
        return plan
    return cost.plan(search.best.pipes())


class _Budget:
    """How much of the time or of the candidates is used up."""

    def __init__(self, deadline: float | None, rounds: int | None) -> None:
        self._start = time.monotonic()
        self.deadline = deadline
        self.rounds = rounds
        self.looked_at = 0

    def used(self) -> float:
        """The larger share; 1 or more at the end."""
        share = 0.0
        if self.rounds is not None:
            share = self.looked_at / self.rounds if self.rounds else 1.0
        if self.deadline is not None:
            length = self.deadline - self._start
            passed = time.monotonic() - self._start
            share = max(share, passed / length if length > 0 else 1.0)
        return share


class _Annealing:
    def __init__(
        self, cost: FastCost, state: State, random: Random, report: Report | None
    ) -> None:
        self.best = state
        self._cost = cost
        self._random = random
        self._balancer = Balancer(cost)
        self._moves = Moves(self._balancer, random)
        self._report = report

    def run(self, budget: _Budget) -> None:
        """Cycle after cycle until the budget is used up."""
        begin = 0.0
        for number, end in enumerate(CYCLES):
            if number == 1:
                self._visit_islands(budget)
            begin = max(begin, budget.used())
            if begin < end:
                self._cycle(budget, begin, end)
            begin = end

    def _visit_islands(self, budget: _Budget) -> None:
        """Go on from the best partition into islands, where it is better."""
        deadline, limit = None, None
        if budget.deadline is not None:
            now = time.monotonic()
            deadline = now + (budget.deadline - now) * (CYCLES[1] - CYCLES[0])
        if budget.rounds is not None:
            limit = budget.rounds // 10
        try:
            pipes = islands.search(
                self._cost, self._balancer, self._random, deadline, limit
            )
        except NoPlan:
            return
        state = first_state(self._cost, pipes)
        if state is not None:
            self._keep(state)

    def _cycle(self, budget: _Budget, begin: float, end: float) -> None:
        """Cool from hot to cold while the budget goes from `begin` to `end`."""
        state = self.best
        scale = state.objective
        while (used := budget.used()) < end:
            budget.looked_at += 1
            move = self._moves.draw(state)
            trial = None if move is None else state.changed(*move)
            if trial is None:
                continue
            cooled = (used - begin) / (end - begin)
            temperature = scale * HOT * (COLD / HOT) ** cooled
            worse = trial.score - state.score
            if worse <= 0 or self._random.random() < exp(-worse / temperature):
                state = trial
                self._keep(state)

    def _keep(self, state: State) -> None:
        if state.objective < self.best.objective:
            self.best = state
            if self._report is not None:
                self._report(state.objective)
