"""Exact rounds: the cheapest assignment of every round, proved optimal.

The same objective, configurations and placement as `sia`; jobs of a class and nodes of
a kind are counted, costs are integers, and CP-SAT proves the optimum of the round. It
is optimal for a round, and says nothing of a whole schedule.
"""

from .. import registry
from ..exact import job_round
from ..modelling import Limits
from ..plans import Round
from ..problems.job_round import Data as RoundData
from ..problems.job_scheduling import Data
from ._rounds import RoundPolicy, kinds

__all__ = ["kinds", "policy", "problem"]

problem = "job_scheduling"


def policy(data: Data) -> RoundPolicy:
    """Works in rounds."""
    registry.entry("backends", "cpsat").version()  # loads it, before the first round
    limits = Limits(time_s=data.assumptions.round_s)

    def solve(round_: RoundData) -> Round | None:
        plan: Round | None = job_round.solve(round_, limits=limits).plan
        return plan

    return RoundPolicy(data, solve)
