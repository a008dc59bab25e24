"""Metis: one pipeline on device groups of unequal size and mixed types.

Algorithm 1 as published. For every number of stages, mapping of stages to device
groups (`groups`) and micro-batch size: stages begin with data parallelism only;
samples are balanced inside a mixed group, layers across stages in proportion to their
capacity; where a stage is out of memory its tensor-parallel degree is doubled, or its
layers are moved away, depth first (`intra`). The cheapest plan that fits is
kept, by its Eq. 1: sum_j t_j + (B - 1) max_j t_j + the slowest synchronisation.

All GPUs are used. Choices where the paper is silent, and deviations:
- device groups are all of section 4.1, k GPUs of each node. First come those of GPUs
  next to each other in a row, by type or in turns of the types; then all others, sizes
  in turns; both in turns of the numbers of stages;
- group sizes are powers of two; where no powers of two add up, any sizes;
- where a micro-batch has fewer samples than the group GPUs, the degree is doubled as
  if the stage were out of memory;
- the stage that is settled first is the first in the pipeline that lacks memory, also
  one that lacked none before layers were moved to it; a stage's layers are moved to
  all others, and at most 64 partial plans of a mapping are looked at;
- the load of a layer is its time, summed over the GPU types;
- at most `most_plans` partial plans are looked at: by default so many that it takes
  seconds, where the paper's search takes ten minutes at 64 GPUs.

Source: Um et al., ATC 2024, sections 4.1 and 4.2.
"""

from collections.abc import Iterator
from itertools import chain
from typing import Annotated, Literal

from pydantic import Field

from ...errors import NoPlan, in_time
from ...plans import TrainingPlan
from ...schema import Instance
from .costs import Laid, LineCost
from .intra import Intra, Shape
from .node_groups import Group, groups, in_turns, mappings, rows, sizes

problem: Literal["training_plan"] = "training_plan"
narrower = ("one_pipeline",)


def plan(
    data: Instance,
    *,
    seed: int = 0,
    deadline: float | None = None,
    variance: Annotated[float, Field(ge=0, le=1)] = 0.5,
    max_permute_len: Annotated[int, Field(ge=1)] = 10,
    layer_balancing: bool = True,
    dp_first: bool = True,
    most_plans: Annotated[int, Field(ge=1)] = 20_000,
) -> TrainingPlan:
    """The cheapest plan found; `NoPlan` says what is short. `seed` has no effect.

    `deadline` is a `clock.monotonic()` instant. Groups are pruned by `variance`, from 0
    (equal size) to 1 (any), and `max_permute_len`; at most `most_plans` partial plans
    are looked at. For section 5.4: without `layer_balancing` all cuts between layers
    are looked at, in effect; without `dp_first` all degrees of all stages, which takes
    exponential time in the number of stages.
    """
    line = LineCost(data, deadline)
    intra = Intra(line, layer_balancing=layer_balancing, dp_first=dp_first)
    best: tuple[int, int, int, list[Laid]] | None = None
    with in_time("metis", lambda: None if best is None else line.plan(*best[1:])):
        for shape in _shapes(line, variance, max_permute_len):
            if intra.looked >= most_plans:
                break
            for found in intra.plans(shape):
                value = line.iteration_us(shape.n, found)
                if best is None or value < best[0]:
                    best = value, shape.n, shape.b, found
    if best is None:
        raise NoPlan(f"metis: {_reason(line, intra)}")
    return line.plan(*best[1:])


def _shapes(line: LineCost, variance: float, max_permute_len: int) -> Iterator[Shape]:
    """Micro-batches and device groups of every number of stages."""
    gpus, cost = line.instance.planned_cluster.gpu_count, line.cost
    numbers, in_rows = range(1, min(gpus, line.layers) + 1), rows(cost)

    def ordered(stages: int) -> Iterator[tuple[int, ...]]:
        return sizes(gpus, stages, variance, max_permute_len, cost.check)

    def first(parts: tuple[int, ...]) -> list[tuple[Group, ...]]:
        found = (tuple(groups(cost, row, parts)) for row in in_rows)
        return list(dict.fromkeys(found))

    def others(parts: tuple[int, ...]) -> Iterator[tuple[Group, ...]]:
        known = {tuple(map(frozenset, chosen)) for chosen in first(parts)}
        for chosen in mappings(cost, parts):
            if tuple(map(frozenset, chosen)) not in known:
                yield chosen

    def every() -> Iterator[tuple[Group, ...]]:
        yield from in_turns(
            chain.from_iterable(map(first, ordered(n))) for n in numbers
        )
        yield from in_turns(in_turns(map(others, ordered(n))) for n in numbers)

    for chosen in every():
        cost.check()
        for b in line.sizes:
            yield Shape(line.micro_batches(b), b, chosen)


def _reason(line: LineCost, intra: Intra) -> str:
    if intra.nearest_mib is not None:
        return (
            "no mapping of stages to device groups fits; the nearest lacks "
            f"{intra.nearest_mib} MiB a GPU in a stage"
        )
    workload = line.instance.workload
    return (
        "no mapping of all GPUs to stages has a sample for every replica and known "
        f"times, with micro-batch sizes of {list(workload.micro_batch_sizes)} that "
        f"divide the global batch {workload.global_batch}"
    )
