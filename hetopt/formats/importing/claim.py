"""What another planner's file claims: plans in its order, with the times it gave."""

from typing import NamedTuple

from ...plans import TrainingPlan


class Claim(NamedTuple):
    """One plan of a file; without `plan`, `refused` says why it has no form of ours."""

    rank: int
    place: str
    claimed_us: int | None
    plan: TrainingPlan | None
    refused: str | None = None
