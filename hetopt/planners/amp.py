"""AMP-like: one dp x tp x pp for a cluster of averaged GPUs, equal layers and samples.

Every factorisation dp tp pp = GPUs with every micro-batch size is priced as if all
GPUs had the average speed, and the cheapest that fits is kept. What it cannot use:
that GPUs differ (stages have equally many layers, replicas equally many samples),
stages of different size or degree, machines of different size (they are cut into equal
virtual nodes, `grid`). Its plans pay the slowest GPU's time when judged.

As Metis's authors run it, one pipeline whose stages are replicated dp times; tp stays
inside a virtual node, ranks are laid out tp, dp, pp in the instance's order of nodes.
Where the cheapest does not fit the next is taken: AMP itself looks at no memory, and
fails there. AMP also shifts layers, by its averaged times: of equal layers and GPUs
that gives equal stages, which is what Metis's authors saw (section 5.2.2).

Source: Li et al., NeurIPS 2022; Metis, table 1 and sections 3 and 5.
"""

from collections.abc import Callable, Iterator
from itertools import pairwise
from typing import Literal, NamedTuple

from ..errors import NoPlan, in_time
from ..plans import TrainingPlan
from ..schema import Instance
from ..search.symmetric import equal_cuts
from .metis.costs import Laid, LineCost
from .metis.grid import Grid, replicas

problem: Literal["training_plan"] = "training_plan"
narrower = ("one_pipeline",)


class Structure(NamedTuple):
    """One (dp, tp, pp) and micro-batch size of all stages."""

    b: int
    dp: int
    tp: int
    pp: int

    def __str__(self) -> str:
        sizes = f"dp {self.dp}, tp {self.tp}, pp {self.pp}"
        return f"{sizes}, micro-batches of {self.b}"


def plan(
    data: Instance, *, seed: int = 0, deadline: float | None = None
) -> TrainingPlan:
    """The structure that is cheapest on averaged GPUs and fits; `NoPlan` says why not.

    `seed` has no effect.
    """
    return cheapest(
        "amp", data, deadline, lambda grid, one: equal_cuts(grid.line.layers, one.pp)
    )


def cheapest(
    name: str,
    data: Instance,
    deadline: float | None,
    cut: Callable[[Grid, Structure], list[int] | None],
) -> TrainingPlan:
    """Return the plan of the structure that is cheapest on averaged GPUs and fits.

    Its layers are `cut` so; None where they cannot be. `NoPlan` in the `name` of a
    planner says why there is none.
    """
    line = LineCost(data, deadline)
    grid, tried = Grid(line), list[Structure]()
    priced: list[tuple[int, Structure, list[int]]] = []

    def best() -> TrainingPlan | None:
        line.cost.deadline = None  # memory of what was priced is soon known
        for _, one, cuts in sorted(priced):
            n, found = line.micro_batches(one.b), lay_out(grid, one, cuts)
            if line.fits(n, found):
                return line.plan(n, one.b, found)
        return None

    with in_time(name, best):
        for one in structures(grid):
            tried.append(one)
            if (cuts := cut(grid, one)) is not None:
                priced.append((estimate_us(grid, one, cuts), one, cuts))
    if (plan := best()) is None:
        raise NoPlan(_no_plan(name, grid, tried))
    return plan


def structures(grid: Grid) -> Iterator[Structure]:
    """Every structure on all GPUs whose replicas have equally many samples."""
    for b in grid.line.sizes:
        for tp in grid.degrees:
            groups = grid.gpus // tp
            for pp in range(1, min(groups, grid.line.layers) + 1):
                grid.line.cost.check()
                dp, left = divmod(groups, pp)
                if not left and b % dp == 0 and grid.known(tp, b // dp):
                    yield Structure(b, dp, tp, pp)


def lay_out(grid: Grid, one: Structure, cuts: list[int]) -> list[Laid]:
    """Return the stages on machines, in the order of ranks."""
    groups = [node for node in grid.nodes for _ in range(grid.width // one.tp)]
    return [
        Laid(
            replicas(groups[j * one.dp : (j + 1) * one.dp], one.tp, one.b), first, last
        )
        for j, (first, last) in enumerate(pairwise(cuts))
    ]


def estimate_us(grid: Grid, one: Structure, cuts: list[int]) -> int:
    """Iteration time if all GPUs were average ones; links are the real ones."""
    n = grid.line.micro_batches(one.b)
    return grid.averaged.iteration_us(n, lay_out(grid, one, cuts))


def _no_plan(name: str, grid: Grid, tried: list[Structure]) -> str:
    line = grid.line
    if not tried:
        workload = line.instance.workload
        return (
            f"{name}: no dp x tp x pp of all {grid.gpus} GPUs has equal samples and "
            f"known times, with micro-batch sizes {list(workload.micro_batch_sizes)} "
            f"and a global batch of {workload.global_batch}"
        )
    short = []
    for one in tried:
        n, cuts = line.micro_batches(one.b), equal_cuts(line.layers, one.pp)
        stages = enumerate(lay_out(grid, one, cuts))
        lacks = ((line.short_mib(n, one.pp, j, *s), f"stage {j}") for j, s in stages)
        short.append(max(lacks))
    (mib, stage), nearest = min(zip(short, tried, strict=True))
    return (
        f"{name}: no structure fits; the nearest ({nearest}) lacks {mib} MiB in {stage}"
    )
