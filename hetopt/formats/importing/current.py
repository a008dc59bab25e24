"""The plan of a run that goes on: a grid of ranks, on the hosts in their order."""

from collections.abc import Mapping
from itertools import accumulate, pairwise
from typing import Any, NamedTuple

from ...errors import InstanceError, UnknownName
from ...plans import Pipeline, Replica, Stage, TrainingPlan
from ...schema import Instance, Recompute


class Layout(NamedTuple):
    """What a trainer is told of its ranks: stages, replicas, tensor-parallel ranks.

    `layers` are the numbers of layers of the stages, `samples` the sequences of a
    micro-batch of one replica.
    """

    layers: tuple[int, ...]
    replicas: int
    degree: int
    samples: int
    micro_batches: int
    recompute: Recompute
    zero: int


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
            f"tensor-parallel degree = {others}; name the hosts of the run (hosts=A,B)"
        )
    return ranks // others


def alone(place: str, degrees: Mapping[str, int]) -> None:
    """`InstanceError` for degrees above 1 of what plans are not read with."""
    for name, degree in degrees.items():
        if degree != 1:
            raise InstanceError(
                f"{place}: {name}: expected 1; plans here have no other"
            )


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
    """The plan; `InstanceError` for settings that the instance does not weigh."""
    rule, zero = _settings(layout, data, place)
    left = iter(ranks)
    stages = []
    for span in pairwise(accumulate(layout.layers, initial=0)):
        groups = tuple(
            Replica(
                gpus=tuple(next(left) for _ in range(layout.degree)),
                samples=layout.samples,
            )
            for _ in range(layout.replicas)
        )
        stages.append(Stage(layers=span, replicas=groups, recompute=rule))
    pipeline = Pipeline(
        micro_batches=layout.micro_batches,
        micro_batch_size=layout.samples * layout.replicas,
        stages=tuple(stages),
    )
    return TrainingPlan(pipelines=(pipeline,), zero=zero)


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
    own = workload.costs
    return (
        None if layout.recompute == own.recompute else layout.recompute,
        None if layout.zero == own.zero else layout.zero,
    )
