"""A walk over plans: so many random moves at once, of which some are taken."""

from collections.abc import Sequence
from math import exp
from random import Random

from .balancing import Balancer
from .fast_cost import Pipe
from .moves import Moves
from .state import State, first_state


class Walk:
    """The best plan so far, and the one that the walk is at."""

    def __init__(self, start: State, balancer: Balancer, seed: int) -> None:
        """Begin at a state; `seed` is that of all draws."""
        self._best = self._state = start
        self._draws = Random(seed)
        self._moves = Moves(balancer, self._draws)

    @property
    def objective(self) -> int:
        """The objective of the best plan."""
        return self._best.objective

    def begin(self) -> None:
        """Go on from the best plan."""
        self._state = self._best

    def pipes(self) -> tuple[Pipe, ...]:
        """Return the best plan in compact form."""
        return self._best.pipes()

    def run(self, most: int, temperature: float, target: int | None) -> int:
        """Look at `most` candidates, or fewer where the target is reached.

        A worse one is taken by chance, by its score and the temperature. Returns how
        many were looked at.
        """
        for number in range(most):
            if target is not None and self.objective <= target:
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
                if trial.objective < self._best.objective:
                    self._best = trial
        return most


def walk_from(pipes: Sequence[Pipe], balancer: Balancer, seed: int) -> Walk | None:
    """Return a walk from a plan; None where its micro-batches cannot be shared anew."""
    state = first_state(balancer.cost, pipes)
    return None if state is None else Walk(state, balancer, seed)
