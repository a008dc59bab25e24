"""Plans whose groups or experts are divided further must meet these rules."""

from collections.abc import Iterator
from typing import NamedTuple

from ...costs import CostTable
from ...plans import Stage, TrainingPlan
from ...schema import Instance, Split
from .. import Violation
from .shapes import holders


class Block(NamedTuple):
    """GPUs that together have all experts of their layers, and their pipelines."""

    gpus: tuple[str, ...]
    pipelines: tuple[int, ...]  # ascending


def blocks(plan: TrainingPlan, e: int) -> Iterator[Block]:
    """Yield blocks of `e` GPUs that divide the experts of the same layers.

    They come in the order of ranks, as `costs` times them. Stages whose GPUs are no
    multiple of `e` have no blocks.
    """
    alike: dict[tuple[int, int], list[tuple[str, int]]] = {}
    for p, pipeline in enumerate(plan.pipelines):
        for stage in pipeline.stages:
            alike.setdefault(stage.layers, []).extend(
                (gpu, p) for replica in stage.replicas for gpu in replica.gpus
            )
    for rows in alike.values():
        for first in range(0, len(rows) if len(rows) % e == 0 else 0, e):
            gpus, pipelines = zip(*rows[first : first + e], strict=True)
            yield Block(gpus, tuple(sorted(set(pipelines))))


def experts_broken(
    data: Instance, plan: TrainingPlan, split: Split
) -> Iterator[Violation]:
    """Experts that no block of GPUs has, or GPUs that differ.

    Tokens pass between all GPUs that divide the experts of a layer, so these are alike:
    of one type, in groups of one size, with the same layers and samples.
    """
    if (e := split.experts) == 1:
        return
    cluster = data.planned_cluster
    held: dict[int, list[Stage]] = {}
    for stage in plan.stages():
        for layer in stage.span:
            if data.model.routed_parameters[layer]:
                held.setdefault(layer, []).append(stage)
    for layer, stages in held.items():
        if held.get(layer - 1) == stages:
            continue  # said of the layer before
        replicas = [replica for stage in stages for replica in stage.replicas]
        gpus = sum(replica.degree for replica in replicas)
        if gpus % e:
            what = f"{gpus} GPUs hold layer {layer}, not a multiple of {e}"
            yield Violation("expert_parallel", "plan", what)
        kinds = {(cluster.node[r.node].gpu, r.degree, r.samples) for r in replicas}
        if len(kinds) > 1 or len({stage.layers for stage in stages}) > 1:
            what = f"replicas that share the experts of layer {layer} differ"
            yield Violation("expert_parallel", "plan", what)


def groups_broken(table: CostTable, plan: TrainingPlan) -> Iterator[Violation]:
    """Replicas of layers that make no whole groups of ZeRO, or divide nothing in them.

    `table` is under the plan's settings.
    """
    r = table.split.groups
    if r == 1:
        return
    if not table.workload.costs.updates.zero:
        yield Violation("zero_groups", "plan", f"{r} groups need zero 1, 2 or 3")
    before = None
    for layer, replicas in enumerate(holders(plan, table.layers)):
        if (replicas % r or replicas == r) and before != replicas:
            what = f"{replicas} replicas of layer {layer} do not form {r} groups"
            yield Violation("zero_groups", "plan", what)
        before = replicas


def groups(plan: TrainingPlan, split: Split) -> Iterator[Violation]:
    """Yield the groups that cannot be divided into context-parallel parts."""
    c = split.context
    for number, pipeline in enumerate(plan.pipelines):
        for j, stage in enumerate(pipeline.stages):
            for r, replica in enumerate(stage.replicas):
                if replica.degree % c:
                    where = f"pipelines[{number}].stages[{j}].replicas[{r}]"
                    what = f"{replica.degree} GPUs are not a multiple of {c}"
                    yield Violation("context_parallel", where, what)
