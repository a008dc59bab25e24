"""One scheduling round as Sia states it, on every back end, beside all assignments."""

from random import Random
from typing import Any

from soaking import job_round
from soaking._subproblems import FLOATS, numbers

BACKENDS = ("cpsat", "pulp", "scip")

WEIGHT = 30


def draw(rng: Random) -> dict[str, Any]:
    """A round, and the back end that is to carry Sia's statement of it."""
    data = job_round.draw(rng)["data"]
    small = max(numbers(data)) <= FLOATS
    backend = rng.choice(BACKENDS) if small else "cpsat"
    return {"data": data, "statement": ["sia_round", backend]}


def check(data: dict[str, Any]) -> str:
    """The statement's optimum is the best of all."""
    return job_round.check(data)
