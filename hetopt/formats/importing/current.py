"""The plan of a run that goes on: a grid of ranks, on the hosts in their order."""

from collections.abc import Mapping, Sequence
from itertools import accumulate, pairwise
from typing import Any, NamedTuple

from ...errors import InstanceError, UnknownName
from ...plans import Pipeline, Replica, Stage, TrainingPlan
from ...schema import Instance, Recompute, Split
from ...schema.splits import FIELDS
from ...schema.targets import ONE


class Layout(NamedTuple):
    """What a trainer is told of its ranks: stages, replicas, tensor-parallel ranks.

    `layers` are the numbers of layers of the stages, `samples` the sequences of a
    micro-batch of one replica. `degree` are the GPUs of a replica: its tensor-parallel
    ranks times those among which it divides sequences.
    """

    layers: tuple[int, ...]
    replicas: int
    degree: int
    samples: int
    micro_batches: int
    recompute: Recompute
    zero: int
    split: Split = ONE


def gpus(data: Instance, hosts: str) -> list[str]:
    """The GPUs of the hosts that are named, else of all, as ranks take them."""
    node = data.planned_cluster.node
    names = [name.strip() for name in hosts.split(",")] if hosts else list(node)
    for name in names:
        if name not in node:
            raise UnknownName("host", name, list(node))
    return [f"{name}:{index}" for name in names for index in range(node[name].count)]


def replicas_of(ranks: int, others: int, place: str) -> int:
    """How many replicas the ranks leave; `InstanceError` where not a whole number."""
    if not others or ranks % others:
        raise InstanceError(
            f"{place}: found {ranks} GPUs, expected a multiple of stages x "
            f"GPUs of a replica = {others}; name the hosts of the run (hosts=A,B)"
        )
    return ranks // others


def cut(
    parts: Sequence[int], stages: int, layers: int, place: str
) -> tuple[tuple[int, ...], int]:
    """Layers of each stage, and its runs, of the parts of the model in their order.

    The first run of every stage comes first, then the second of every stage.
    """
    runs, over = divmod(len(parts), stages)
    if over or sum(parts) != layers:
        raise InstanceError(
            f"{place}: found {sum(parts)} layers in {len(parts)} parts, expected "
            f"{layers} in {stages}, or in a multiple of it; correct it"
        )
    held = tuple(sum(parts[stage::stages]) for stage in range(stages))
    if list(parts) != in_runs(held, runs):
        raise InstanceError(
            f"{place}: found the parts {list(parts)}, expected {in_runs(held, runs)}: "
            "plans here divide the layers of a stage equally among its runs"
        )
    return held, runs


def in_runs(layers: Sequence[int], runs: int) -> list[int]:
    """Layers of every run of every stage: where they do not divide, the first has more.

    In the order of `cut`.
    """
    return [
        count // runs + (run < count % runs) for run in range(runs) for count in layers
    ]


def same(place: str, found: Mapping[str, Any], expected: Mapping[str, Any]) -> None:
    """`InstanceError` where a run is of another model or batch than the instance."""
    for name, value in found.items():
        if value is not None and value != expected[name]:
            raise InstanceError(
                f"{place}: {name}: found {value}, expected {expected[name]} as the "
                "instance has it; assemble one of the run's model and batch"
            )


def plan_of(
    layout: Layout, ranks: list[str], data: Instance, place: str
) -> TrainingPlan:
    """The plan, a pipeline for each replica, as micro-batches are a replica's.

    Raises `InstanceError` for settings that the instance does not weigh.
    """
    rule, zero = _settings(layout, data, place)
    left = iter(ranks)
    rows = []
    for span in pairwise(accumulate(layout.layers, initial=0)):
        groups = [
            tuple(next(left) for _ in range(layout.degree))
            for _ in range(layout.replicas)
        ]
        rows.append(
            [
                Stage(
                    layers=span,
                    replicas=(Replica(gpus=gpus, samples=layout.samples),),
                    recompute=rule,
                )
                for gpus in groups
            ]
        )
    pipelines = tuple(
        Pipeline(
            micro_batches=layout.micro_batches,
            micro_batch_size=layout.samples,
            stages=stages,
        )
        for stages in zip(*rows, strict=True)
    )
    own = data.workload.costs.split
    chosen = {
        name: value
        for name, value, usual in zip(FIELDS, layout.split, own, strict=True)
        if value != usual
    }
    return TrainingPlan(pipelines=pipelines, zero=zero, **chosen)


def _settings(
    layout: Layout, data: Instance, place: str
) -> tuple[Recompute | None, int | None]:
    """Recomputation and ZeRO as a plan says them: None where the instance does."""
    workload = data.workload
    for name, value, offered in (
        ("recompute", layout.recompute, workload.recomputes),
        ("zero", layout.zero, workload.zeros),
    ):
        if value not in offered:
            raise InstanceError(
                f"{place}: the run has {name} {value}, the instance weighs "
                f"{', '.join(map(str, offered))}; add it to "
                f"workload.alternatives.{name}"
            )
    if layout.split not in workload.splits:
        wanted = ", ".join(
            f"{name} {value}" for name, value in zip(FIELDS, layout.split, strict=True)
        )
        raise InstanceError(
            f"{place}: the run has {wanted}, which the instance does not offer; add "
            "them to workload.alternatives"
        )
    own = workload.costs
    return (
        None if layout.recompute == own.recompute else layout.recompute,
        None if layout.zero == own.zero else layout.zero,
    )
