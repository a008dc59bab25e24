"""What the exporters of launchers share: hosts that can be named, grids of ranks."""

import re
from collections.abc import Sequence
from itertools import groupby

from ..plans import Pipeline, Replica, Stage, TrainingPlan
from ..schema import Instance
from ._shapes import place

HOST = r"[A-Za-z0-9]([A-Za-z0-9._-]{0,253}[A-Za-z0-9])?"


def bad_hosts(plan: TrainingPlan) -> list[str]:
    """Reasons to refuse nodes whose names no launcher takes for a host."""
    nodes = sorted({replica.node for replica in plan.replicas()})
    return [
        f"node {name!r} has a name that is no host's"
        for name in nodes
        if not re.fullmatch(HOST, name)
    ]


def bad_degrees(data: Instance, plan: TrainingPlan) -> list[str]:
    """Reasons to refuse degrees that do not divide the heads, by Megatron's rule."""
    heads, groups = data.model.heads, data.model.kv_heads or data.model.heads
    degrees = sorted({replica.degree for replica in plan.replicas()})
    return [
        f"tensor-parallel degree {t} does not divide {heads} heads and {groups} "
        "key-value heads"
        for t in degrees
        if heads % t or groups % t
    ]


def ranks(pipeline: Pipeline) -> list[str]:
    """GPUs in Megatron's order of ranks: within a replica, replicas, then stages."""
    return [
        gpu
        for stage in pipeline.stages
        for replica in stage.replicas
        for gpu in replica.gpus
    ]


def runs(gpus: Sequence[str]) -> list[tuple[str, list[int]]]:
    """Neighbouring GPUs of one node: the node and the indices."""
    return [
        (node, [index for _, index in run])
        for node, run in groupby(map(place, gpus), key=lambda at: at[0])
    ]


def staged(
    gpus: Sequence[str],
    layers: Sequence[int],
    shapes: Sequence[tuple[int, int, int]],
    micro_batches: int,
) -> TrainingPlan:
    """The plan of GPUs in order of ranks; `shapes` are (degree, replicas, samples)."""
    stages, first, used = [], 0, 0
    for count, (degree, replicas, samples) in zip(layers, shapes, strict=True):
        groups = []
        for _ in range(replicas):
            groups.append(
                Replica(gpus=tuple(gpus[used : used + degree]), samples=samples)
            )
            used += degree
        stages.append(Stage(layers=(first, first + count), replicas=tuple(groups)))
        first += count
    _, replicas, samples = shapes[0]
    return TrainingPlan(
        pipelines=(
            Pipeline(
                micro_batches=micro_batches,
                micro_batch_size=replicas * samples,
                stages=tuple(stages),
            ),
        )
    )
