"""Passes of stages take the judge's times."""

from collections.abc import Sequence
from fractions import Fraction
from typing import Literal

from ..costs import CostTable
from ..plans import TrainingPlan
from ..problems import training_plan
from ..schema import Instance
from .timeline import Times

Transfers = Literal["charged", "overlapped"]


def times_of(
    data: Instance,
    table: CostTable,
    plan: TrainingPlan,
    transfers: Transfers,
) -> list[list[Times]]:
    """Return by pipeline the times of its stages."""
    rows = training_plan.evaluate(data, plan).parts["stages"]
    return [_times(table, mine, transfers) for mine in rows]


def _times(
    table: CostTable,
    rows: Sequence[dict[str, int]],
    transfers: Transfers,
) -> list[Times]:
    found, costs = [], table.workload.costs
    for j, row in enumerate(rows):
        forward, backward = row["compute_us"] - row["backward_us"], row["backward_us"]
        half, entering = Fraction(row["hop_us"], 2), Fraction(0)
        if transfers == "overlapped":
            found.append(Times(Fraction(forward), Fraction(backward), -half))
            continue
        if costs.links.hops == "both":
            entering = Fraction(rows[j - 1]["hop_us"], 2)
        busy = half + entering
        shared = half if costs.links.hops == "both" else Fraction(0)
        found.append(Times(forward + busy, backward + busy, shared, busy))
    return found
