"""Local search from any training plan, under the judge's objective.

Simulated annealing in cycles: each starts from the best plan so far and cools down.
The moves are those of `_improve_moves`: boundaries, layers, GPUs, stages and pipelines;
layers of a pipeline whose stages changed are balanced anew, micro-batches always are.
"""

import time
from collections.abc import Callable
from math import exp
from random import Random

from ._improve_moves import Moves
from ._improve_state import State, first_state
from .balancing import Balancer
from .fast_cost import FastCost
from .plans import TrainingPlan
from .problems import training_plan
from .schema import Instance

HOT, COLD = 4e-3, 5e-5  # temperatures, as shares of the objective
CYCLE = 12_000  # candidates of the first cycle; the later ones are longer
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
    search = _Annealing(cost, state, Random(seed), report)
    search.run(deadline, 100_000 if rounds is None and deadline is None else rounds)
    if judged.objective is not None and search.best.objective >= judged.objective:
        return plan
    return cost.plan(search.best.pipes())


class _Annealing:
    def __init__(
        self, cost: FastCost, state: State, random: Random, report: Report | None
    ) -> None:
        self.best = state
        self._cost = cost
        self._random = random
        self._moves = Moves(Balancer(cost), random)
        self._report = report
        self._looked_at = 0

    def run(self, deadline: float | None, rounds: int | None) -> None:
        """Cycle after cycle until the deadline or the number of candidates."""
        length = CYCLE
        while not self._over(deadline, rounds):
            left = length if rounds is None else min(length, rounds - self._looked_at)
            self._cycle(left, deadline)
            length = length * 3 // 2

    def _over(self, deadline: float | None, rounds: int | None) -> bool:
        if rounds is not None and self._looked_at >= rounds:
            return True
        return deadline is not None and time.monotonic() >= deadline

    def _cycle(self, length: int, deadline: float | None) -> None:
        """Cool from hot to cold over `length` candidates, from the best plan."""
        state = self.best
        scale = state.objective
        for step in range(length):
            if step % 64 == 0 and self._over(deadline, None):
                return
            self._looked_at += 1
            move = self._moves.draw(state)
            trial = None if move is None else state.changed(*move)
            if trial is None:
                continue
            temperature = scale * HOT * (COLD / HOT) ** (step / length)
            worse = trial.score - state.score
            if worse <= 0 or self._random.random() < exp(-worse / temperature):
                state = trial
                if state.objective < self.best.objective:
                    self.best = state
                    if self._report is not None:
                        self._report(state.objective)
