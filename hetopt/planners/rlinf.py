"""RLinf's automatic placement: all GPUs in turn, or the best division in two parts.

With R groups of answers a step, a and b the time in which n GPUs generate a group and
the others train it, and w groups until both are busy, it takes the least of
R (a + b) on all GPUs, and of w (a + b) + (R - w) max(a, b) over n. GPUs are of one kind
there; here the first ones train, in the order of the instance.

Source: RLinf, arXiv 2509.15965, and its code (`placement`), whose recursion over a
workflow of two tasks this is. It takes profiled times; we take the generation of a
whole batch by the judge's formula, and the cheap bound of training. Left open there:
R and w, options here.
"""

from typing import Annotated, Literal

from pydantic import Field

from ..errors import NoPlan
from ..plans import PostTraining
from ..problems.post_training import Data
from ..search.halves import Halves

problem: Literal["post_training"] = "post_training"

Groups = Annotated[int, Field(ge=1, le=10**6)]


def plan(
    data: Data,
    *,
    seed: int = 0,
    deadline: float | None = None,
    groups: Groups = 8,
    warm_up: Groups = 1,
) -> PostTraining:
    """Return the plan by the rule; `NoPlan` where no division has room."""
    halves, steps, w = Halves(data), data.tables.steps_alone, min(groups, warm_up)
    gpus, found = range(1, data.tables.cluster.gpu_count), []
    for division in dict.fromkeys([None, *map(halves.dealt, gpus)]):
        least, rooms = halves.trained(division).at_least_us, halves.rooms(division)
        if least is not None and rooms:
            a = halves.least(rooms, 0, lambda us, one: halves.most(one, steps, us))
            b = data.tables.behind_us(least, shared=division is None)
            time = w * (a + b) + (groups - w) * max(a, b)
            found.append((time if division else groups * (a + b), division))
    if not found:
        raise NoPlan("rlinf: no division has room for training and for engines")
    division = min(found, key=lambda row: row[0])[1]
    return halves.quick("rlinf", division, deadline=deadline, seed=seed)
