"""Alpa-like: stages on uniform submeshes of averaged GPUs, by dynamic programming.

Alpa's inter-operator pass: the model is cut into stages, each on a submesh of 1, 2, 4,
... GPUs of a node or of whole nodes, with the dp x tp inside it that is cheapest; all
GPUs are used, and the sum of stage times plus (B - 1) times the slowest is the least
on GPUs of average speed (`stages`). What it cannot use: that GPUs differ (a stage
gets layers as if its GPUs were average ones, its replicas equally many samples), device
groups that are no M x N grid, machines of different size (they are cut into equal
virtual nodes, `grid`). Its plans pay the slowest GPU's time when judged.

Choices: an operator is a layer; inside a submesh dp x tp stands for Alpa's integer
programme; the programme prices a hop between stages as one between machines, and 1F1B
with hops paid by the sender, whatever the cost settings. The iteration time under
these settings decides between micro-batch sizes, as Alpa's number of micro-batches is
chosen by hand. A stage must fit the machine with the least memory. Stages take GPUs in
the instance's order, small ones the fullest node that has room.

Source: Zheng et al., OSDI 2022, section 5; Metis, table 1 and section 3.
"""

from collections.abc import Sequence
from typing import Literal

from ...errors import NoPlan, OutOfTime, keeping
from ...plans import TrainingPlan
from ...schema import Instance
from ..metis.costs import Laid, LineCost
from ..metis.grid import Grid, replicas
from .stages import Meshed, Programme

problem: Literal["training_plan"] = "training_plan"
narrower = ("one_pipeline",)


def plan(
    data: Instance, *, seed: int = 0, deadline: float | None = None
) -> TrainingPlan:
    """Return the plan that is cheapest on averaged GPUs; `NoPlan` where none fits.

    `seed` has no effect.
    """

    line = LineCost(data, deadline)
    grid = Grid(line)
    best: tuple[int, int, int, list[Laid]] | None = None
    late = False
    with keeping(lambda: None if best is None else line.plan(*best[1:])):
        for b in line.sizes:
            n = line.micro_batches(b)
            programme = Programme(grid, b, n)
            try:
                programme.best()
            except OutOfTime:  # what it found by then is used
                late = True
            if programme.found is None:
                continue
            stages = place(grid, programme.found[1], b)
            if stages is None:
                continue
            # One plan more is looked at, whatever the time.
            line.cost.deadline = grid.averaged.cost.deadline = None
            if line.fits(n, stages):
                value = grid.averaged.iteration_us(n, stages)
                if best is None or value < best[0]:
                    best = value, n, b, stages
            line.cost.deadline = grid.averaged.cost.deadline = deadline
    if best is None:
        raise NoPlan(_reason(grid, late=late))
    return line.plan(*best[1:])


def place(grid: Grid, stages: Sequence[Meshed], b: int) -> list[Laid] | None:
    """The stages on machines; None where the nodes are too broken up for them."""
    left = [grid.width] * len(grid.nodes)
    found = []
    for stage in stages:
        fullest = sorted(
            (gpus, i)
            for i, gpus in enumerate(left)
            if gpus >= min(stage.size, grid.width)
        )
        count = max(1, stage.size // grid.width)
        if len(fullest) < count:
            return None
        chosen = sorted(i for _, i in fullest[:count])
        each = stage.size // count
        for i in chosen:
            left[i] -= each
        machines = [grid.nodes[i] for i in chosen for _ in range(each // stage.tp)]
        found.append(Laid(replicas(machines, stage.tp, b), stage.first, stage.last))
    return found


def _reason(grid: Grid, *, late: bool) -> str:
    if late:
        return "alpa_like: no plan that fits was found in time"
    workload = grid.line.instance.workload
    return (
        "alpa_like: no stages on uniform submeshes use all GPUs, have equal samples "
        "and fit the machine with the least memory; micro-batch sizes "
        f"{list(workload.micro_batch_sizes)}, global batch {workload.global_batch}"
    )
