"""Greedy round: the job and configuration that spare the most cost a GPU, one by one.

Classes and configurations by (cost of a job left out - its cost) / GPUs, the largest
first; each serves as many of its jobs as there are GPUs for, by best fit. A knapsack's
greedy rule, and a baseline: no paper has it by this name.
"""

from collections import Counter
from fractions import Fraction
from typing import Literal

from ..plans import Round
from ..problems.job_round import Data
from ..search.rounds import Blocks

problem: Literal["job_round"] = "job_round"


def plan(data: Data, *, seed: int = 0, deadline: float | None = None) -> Round:
    """Return the greedy assignment. Neither seed nor deadline has an effect."""
    blocks = Blocks(data)
    left = Counter({one.name: one.jobs for one in data.classes})
    gains = sorted(
        (
            (Fraction(one.unserved - x.cost, x.gpus), one.name, x.gpu, x.gpus)
            for one in data.classes
            for x in one.configurations
            if x.cost < one.unserved
        ),
        key=lambda row: (-row[0], *row[1:]),
    )
    for _, name, gpu, gpus in gains:
        while left[name] and blocks.take(name, gpu, gpus):
            left[name] -= 1
    return blocks.plan()
