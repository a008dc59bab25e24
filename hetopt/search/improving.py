"""Local search from any training plan, under the judge's objective.

Simulated annealing in a few cycles, each longer and hotter than the one before: a
cycle starts from the best plan so far and cools down. The first starts from the given
plan, the second from the best partition into islands (`hetopt.search.islands`) where
that is better. The moves are those of `moves`: boundaries, layers, GPUs, stages and
pipelines; the layers of a pipeline whose stages changed are balanced anew, and the
micro-batches of all pipelines always are.
"""

from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import partial
from math import exp
from random import Random

from ..clock import monotonic, spend
from ..errors import OutOfTime, keeping
from ..plans import TrainingPlan
from ..problems import training_plan
from ..problems.training_plan import targets
from ..schema import Instance
from . import choices, grid, islands
from .attempts import tried
from .balancing import Balancer
from .fast_cost import FastCost, Pipe
from .moves import Moves
from .state import State, first_state

# Cycles of annealing: when each ends, as a share of the budget, and how hot it begins,
# as a share of the objective. The first looks nearby, the later ones in other valleys.
CYCLES = ((0.08, 3e-3), (0.4, 1e-2), (1.0, 3e-2))
COLD = 5e-5
_VISIT = 0.22  # of the time that is left at the most, to look for islands
ROUNDS = 20_000  # where there is no budget at all
_FEW_PIPELINES = 4  # of more, a move changes so much less of the score: it is cooler
_AT_ONCE = 16  # candidates between two looks at the clock, at one temperature
Report = Callable[[int], None]


def improve(
    instance: Instance,
    plan: TrainingPlan,
    *,
    deadline: float | None = None,
    seed: int = 0,
    rounds: int | None = None,
    target: int | None = None,
    report: Report | None = None,
) -> TrainingPlan:
    """A plan no worse than `plan`, which is returned itself where nothing is better.

    `deadline` is a `clock.monotonic()` instant, `rounds` a number of candidates: the
    search ends at the earlier one, after 20,000 candidates where neither is given,
    and as soon as the objective is at most `target`. With `rounds` alone the same seed
    gives the same plan. `report` is called with the objective of every better plan.
    A plan that the judge refuses is returned as it is; the settings that a plan chose
    are kept. One with several replicas in a
    stage is no start for the moves: the search then begins with the islands. Where the
    target runs grids alone, they are searched (`hetopt.search.grid`) in place of moves.
    """
    search = Search(instance, plan, seed=seed, target=target, report=report)
    with keeping(lambda: search.found):
        search.run(deadline=deadline, rounds=rounds)
    return search.found


class _Budget:
    """How much of the time or of the candidates is used up."""

    def __init__(self, deadline: float | None, rounds: int | None) -> None:
        self._start = monotonic()
        self.deadline = deadline
        self.rounds = rounds
        self.looked_at = 0

    def next(self, most: int) -> int:
        """How many candidates may follow at once, of `most`."""
        return most if self.rounds is None else min(most, self.rounds - self.looked_at)

    def used(self) -> float:
        """The larger share; 1 or more at the end."""
        shares = [0.0]
        if self.rounds is not None:
            shares.append(self.looked_at / self.rounds if self.rounds else 1.0)
        if self.deadline is not None:
            length = self.deadline - self._start
            passed = monotonic() - self._start
            shares.append(passed / length if length > 0 else 1.0)
        return max(shares)


class Search:
    """The search that `improve` runs; interrupted or not, `found` is what is known."""

    def __init__(
        self,
        instance: Instance,
        plan: TrainingPlan,
        *,
        seed: int = 0,
        target: int | None = None,
        report: Report | None = None,
    ) -> None:
        """Judge `plan`; nothing is searched yet."""
        instance = targets.on_makers_cards(instance, plan)
        self._whole, self._plan, self._report = instance, plan, report
        self._seed, self._target = seed, target
        judged = training_plan.evaluate(instance, plan)
        # Moves keep the settings that the plan has chosen: those of their instance.
        self._instance, plan = choices.settled(instance, plan)
        self._cost = FastCost(self._instance)
        self._balancer = Balancer(self._cost)
        self._given = int(judged.objective or 0) if judged.valid else None
        self._told = self._given
        self._free = instance.workload.target.free
        # Moves know nothing of GPUs that divide experts and must be alike.
        divided = self._instance.workload.costs.compute.expert_parallel > 1
        self._walks = self._given is not None and self._free and not divided
        self._best: State | None = None
        self._start = (self._cost.compact(plan) or ()) if self._walks else ()
        if self._start:
            self._go_on_from(self._start)

    def run(self, *, deadline: float | None = None, rounds: int | None = None) -> None:
        """Search until the deadline, the number of candidates or the target."""
        if rounds is None and deadline is None:
            rounds = ROUNDS
        if not self._free:
            self._look_at_grids(deadline, rounds)
        if self._walks:
            self._cost.deadline = deadline
            # Out of time, what was found is kept.
            with suppress(OutOfTime):
                self._anneal(_Budget(deadline, rounds))

    def _look_at_grids(self, deadline: float | None, rounds: int | None) -> None:
        """The best grid where it is better: no move keeps all pipelines alike."""
        if self._given is None:
            return

        def told(objective: int) -> None:
            if self._report is not None and objective < int(self._given or 0):
                self._report(objective)

        found = grid.search(self._whole, deadline=deadline, most=rounds, report=told)
        if found.objective is not None and found.objective < self._given:
            assert found.plan is not None
            self._plan, self._given = found.plan, found.objective

    @property
    def found(self) -> TrainingPlan:
        """The best plan so far: the given one itself where none is better."""
        best, given = self._best, self._given
        if best is None or given is None or best.objective >= given:
            return self._plan
        pipes = best.pipes()
        if not self._cost.syncs.is_ordered:  # then hosts' ranks had better be together
            pipes = tuple(sorted(pipes, key=lambda pipe: self._cost.place(pipe.slots)))
        return choices.said(self._whole, self._instance, self._cost.plan(pipes))

    def _go_on_from(self, pipes: Sequence[Pipe]) -> None:
        """Let a plan be the best one where it is; its micro-batches are shared anew."""
        state = first_state(self._cost, self._cost.ordered(tuple(pipes)))
        if state is not None and (
            self._best is None or state.objective < self._best.objective
        ):
            self._best = self._state = state
            self._draws = Random(self._seed)
            self._moves = Moves(self._balancer, self._draws)
            self._tell()

    def _anneal(self, budget: _Budget) -> None:
        """Cycle after cycle until the budget is used up or the target is reached."""
        begin, fresh = 0.0, self._best is None
        if fresh:
            self._visit_islands(budget)
        for number, (end, hot) in enumerate(CYCLES):
            if number == 1 and not (fresh or self._reached()):
                self._visit_islands(budget)
            begin = max(begin, budget.used())
            if self._best is not None and begin < end:
                self._cycle(self._best, budget, begin, end, hot)
            begin = end

    def _reached(self) -> bool:
        target, best = self._target, self._best
        return target is not None and best is not None and best.objective <= target

    def _visit_islands(self, budget: _Budget) -> None:
        """Go on from the best partition into islands, where it is better.

        It is looked for from the sets of nodes of the given plan: what found that may
        have had too little time.
        """
        deadline, limit = None, None
        if budget.deadline is not None:
            now = monotonic()
            deadline = now + (budget.deadline - now) * _VISIT
        if budget.rounds is not None:
            limit = budget.rounds // 10
        random = Random(self._seed)
        words = (self._cost, self._balancer, random, deadline, limit, self._start)
        try:
            self._cost.deadline = deadline
            pipes = tried("islands", partial(islands.search, *words)).made
        finally:
            self._cost.deadline = budget.deadline
        if pipes is not None:
            self._go_on_from(pipes)

    def _cycle(
        self, start: State, budget: _Budget, begin: float, end: float, hot: float
    ) -> None:
        """Cool from hot to cold while the budget goes from `begin` to `end`."""
        self._state = start
        scale = max(1, start.objective) * min(1, _FEW_PIPELINES / len(start.lines))
        while not self._reached() and (used := budget.used()) < end:
            cooled = (used - begin) / (end - begin)
            temperature = scale * hot * (COLD / hot) ** cooled
            looked_at = self._walk(budget.next(_AT_ONCE), temperature)
            budget.looked_at += looked_at
            spend(looked_at)
            self._tell()

    def _walk(self, most: int, temperature: float) -> int:
        """Look at `most` candidates, or fewer where the target is reached.

        A worse one is taken by chance, by its score and the temperature. Returns how
        many were looked at.
        """
        for number in range(most):
            if self._reached():
                return number
            move = self._moves.draw(self._state)
            trial = None if move is None else self._state.changed(*move)
            if trial is None:
                continue
            worse = trial.score - self._state.score
            # The temperature is 0 where the best plan takes no time.
            if worse <= 0 or (
                temperature > 0 and self._draws.random() < exp(-worse / temperature)
            ):
                self._state = trial
                if self._best is None or trial.objective < self._best.objective:
                    self._best = trial
        return most

    def _tell(self) -> None:
        """Report a plan that is better than the given one and all before it."""
        if self._best is None or self._told is None or self._report is None:
            return
        if self._best.objective < self._told:
            self._told = self._best.objective
            self._report(self._told)
