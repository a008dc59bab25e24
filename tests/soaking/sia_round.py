"""One scheduling round as Sia states it, on every back end, beside all assignments."""

from random import Random
from typing import Any

from soaking import job_round

BACKENDS = ("cpsat", "highs", "pulp", "scip")

WEIGHT = 30


def draw(rng: Random) -> dict[str, Any]:
    """A round, and the back end that is to carry Sia's statement of it."""
    data = job_round.draw(rng)["data"]
    return {"data": data, "statement": ["sia_round", rng.choice(BACKENDS)]}


def check(data: dict[str, Any]) -> str:
    """The statement's optimum is the best of all."""
    return job_round.check(data)
