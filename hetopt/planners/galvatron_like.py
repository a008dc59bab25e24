"""Galvatron-like: one dp x tp x pp for all stages, layers balanced on averaged GPUs.

As `amp`, with two differences: stages may have different numbers of layers, those that
are best on averaged GPUs within the real memory (all cuts are looked at, in effect),
and plans that do not fit are never priced. What it cannot use: that GPUs differ (the
cuts follow uneven layers and memory, not speed), stages of different size or degree,
machines of different size.

Galvatron itself chooses a strategy for each layer on equal GPUs; like Metis's authors
we give all layers of the model one. Cuts are the best for 1F1B with hops paid by the
sender, whatever the cost settings; structures are compared under these.

Source: Miao et al., VLDB 2022; HexiScale and Metis name it as a baseline.
"""

from typing import Literal

from ..plans import TrainingPlan
from ..schema import Instance
from ..search.symmetric import equal_cuts
from .amp import Structure, cheapest, lay_out
from .metis.cuts import NEVER, best
from .metis.grid import Grid

problem: Literal["training_plan"] = "training_plan"


def plan(
    data: Instance, *, seed: int = 0, deadline: float | None = None
) -> TrainingPlan:
    """The structure that is cheapest on averaged GPUs and fits; `NoPlan` says why not.

    `seed` has no effect.
    """
    return cheapest("galvatron_like", data, deadline, _cuts)


def _cuts(grid: Grid, one: Structure) -> list[int] | None:
    """The cuts that are best on averaged GPUs, None where none fit the real ones."""
    line, n = grid.line, grid.line.micro_batches(one.b)
    rows = [
        stage.shares for stage in lay_out(grid, one, equal_cuts(line.layers, one.pp))
    ]
    hops = [
        line.hop_us(rows[j], rows[j + 1]) if j + 1 < one.pp else 0
        for j in range(one.pp)
    ]

    def tau(j: int, first: int, last: int) -> int:
        line.cost.check()
        if line.short_mib(n, one.pp, j, rows[j], first, last) > 0:
            return NEVER
        return grid.time_us(one.tp, one.b // one.dp, first, last) + hops[j]

    return best(one.pp, line.layers, n, tau, line.cost.check)
