"""A walk over plans: so many random moves at once, of which some are taken.

`Walk` is made of the moves and states in Python. Where the compiled core is there and
carries the settings (`compiled_walks.carried`), `walk_from` makes a walk that does the
same there: the same seed gives the same plans. A walk in the core may find a number
that is beyond the core's (`OverflowError`); it goes on in Python then (`in_python`).
"""

from collections.abc import Sequence
from math import exp
from typing import Protocol

from . import compiled_walks
from .balancing import Balancer
from .draws import Draws
from .fast_cost import Pipe
from .moves import Moves
from .state import State, first_state


class Walking(Protocol):
    """A walk as annealing asks for it."""

    @property
    def objective(self) -> int:
        """The objective of the best plan so far."""

    def begin(self) -> None:
        """Go on from the best plan."""

    def pipes(self) -> tuple[Pipe, ...]:
        """Return the best plan in compact form."""

    def run(self, most: int, temperature: float, target: int | None) -> int:
        """Look at `most` candidates, or fewer where the target is reached.

        A worse one is taken by chance, by its score and the temperature. Returns how
        many were looked at.
        """


class Walk:
    """A walk in Python."""

    def __init__(self, start: State, balancer: Balancer, seed: int) -> None:
        """Begin at a state; `seed` is that of all draws."""
        self._best = self._state = start
        self._draws = Draws(seed)
        self._moves = Moves(balancer, self._draws)

    @property
    def objective(self) -> int:
        """The objective of the best plan."""
        return self._best.objective

    def now(self) -> tuple[tuple[Pipe, ...], int, float, int]:
        """Return the plan at hand, its objective and score, and the draws' state."""
        state = self._state
        return state.pipes(), state.objective, state.score, self._draws.state

    def begin(self) -> None:
        """Go on from the best plan."""
        self._state = self._best

    def pipes(self) -> tuple[Pipe, ...]:
        """Return the best plan in compact form."""
        return self._best.pipes()

    def run(self, most: int, temperature: float, target: int | None) -> int:
        """Look at `most` candidates, as `Walking` says."""
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
                temperature > 0 and self._draws.share() < exp(-worse / temperature)
            ):
                self._state = trial
                if trial.objective < self._best.objective:
                    self._best = trial
        return most


def walk_from(pipes: Sequence[Pipe], balancer: Balancer, seed: int) -> Walking | None:
    """Return a walk from a plan; None where its micro-batches cannot be shared anew."""
    state = first_state(balancer.cost, pipes)
    if state is None:
        return None
    walk = compiled_walks.walk_from(state, balancer, seed)
    return Walk(state, balancer, seed) if walk is None else walk


def in_python(walk: Walking, balancer: Balancer, seed: int) -> Walking:
    """Return a walk in Python from the best plan of a walk."""
    state = first_state(balancer.cost, walk.pipes())
    return walk if state is None else Walk(state, balancer, seed)
