"""Shapes of plans: features that a target may lack, and one form for equal plans."""

from collections.abc import Iterator
from enum import StrEnum
from typing import Any

from ...plans import Pipeline, Replica, Stage, TrainingPlan
from ...schema import Instance


class Feature(StrEnum):
    """What a plan may do that not every target can; the value says it in words."""

    UNEVEN_LAYERS = "stages with different numbers of layers"
    DIFFERENT_CUTS = "pipelines that cut the layers differently"
    DIFFERENT_BATCHES = "pipelines with different numbers of micro-batches"
    MIXED_DEGREES = "stages with different tensor-parallel degrees"
    MIXED_DEGREES_IN_STAGE = (
        "replicas of a stage with different tensor-parallel degrees"
    )
    MIXED_REPLICAS = "stages with different numbers of replicas"
    UNEQUAL_SAMPLES = "replicas of a stage with different numbers of samples"
    MIXED_TYPES = "stages on different GPU types"
    MIXED_TYPES_IN_STAGE = "replicas of a stage on different GPU types"
    LISTED_PARAMETERS = "a model told by numbers of parameters, not by its shape"
    ZERO_1 = "optimiser states divided among replicas (ZeRO 1)"
    ZERO_2 = "gradients divided among replicas, too (ZeRO 2)"
    ZERO_3 = "weights divided among replicas, too (ZeRO 3)"
    INTERLEAVED = "several runs of layers on a GPU (interleaved 1F1B)"
    SELECTIVE = "selective recomputation"
    SINGLE_PRECISION = "training in single precision"
    NO_MASTER = "16-bit weights without a master copy"


def normal(plan: TrainingPlan) -> TrainingPlan:
    """The plan with those pipelines made one that cut and count alike.

    Pipelines, GPUs of a replica, and the places of replicas are sorted: their order
    says nothing. Two plans of one normal form run the same layers on the same GPUs with
    the same samples, and replicas of one place in their stages belong together.
    """
    alike: dict[Any, list[Pipeline]] = {}
    for pipeline in sorted(map(_sorted, plan.pipelines), key=_key):
        alike.setdefault((_cuts(pipeline), pipeline.micro_batches), []).append(pipeline)
    return TrainingPlan(pipelines=tuple(sorted(map(_merged, alike.values()), key=_key)))


def apart(plan: TrainingPlan) -> list[Pipeline] | None:
    """The plan as pipelines of one replica a stage, in order of their first GPUs.

    None where there are none: stages have different numbers of replicas, or a replica
    hands its samples on to one that takes another number.
    """
    found = []
    for pipeline in plan.pipelines:
        rows = [stage.replicas for stage in _sorted(pipeline).stages]
        if len(set(map(len, rows))) > 1:
            return None
        for place_ in zip(*rows, strict=True):
            samples = {replica.samples for replica in place_}
            if len(samples) > 1:
                return None
            found.append(
                Pipeline(
                    micro_batches=pipeline.micro_batches,
                    micro_batch_size=samples.pop(),
                    stages=tuple(
                        Stage(layers=stage.layers, replicas=(replica,))
                        for stage, replica in zip(pipeline.stages, place_, strict=True)
                    ),
                )
            )
    return sorted(found, key=_key)


def features(data: Instance, plan: TrainingPlan) -> frozenset[Feature]:
    """The features that a plan uses."""
    made = normal(plan)
    found = set(_between_pipelines(made))
    for pipeline in made.pipelines:
        found |= set(_of_pipeline(data, pipeline))
    return frozenset(found | set(_of_instance(data)))


_ZERO = (Feature.ZERO_1, Feature.ZERO_2, Feature.ZERO_3)


def _of_instance(data: Instance) -> Iterator[Feature]:
    """What the model and the cost settings ask of whoever runs the plan."""
    costs = data.workload.costs
    if _only_counted(data):
        yield Feature.LISTED_PARAMETERS
    if costs.zero:
        yield _ZERO[costs.zero - 1]
    if costs.interleave > 1:
        yield Feature.INTERLEAVED
    if costs.recompute == "selective":
        yield Feature.SELECTIVE
    if costs.precision == "fp32":
        yield Feature.SINGLE_PRECISION
    if costs.precision == "bf16":
        yield Feature.NO_MASTER


def _only_counted(data: Instance) -> bool:
    model = data.model
    whole = model.parameters_per_layer
    counted = whole is not None and whole != 12 * model.hidden**2
    return model.layer_parameters is not None or counted


def place(gpu: str) -> tuple[str, int]:
    """Node and index of a GPU."""
    node, _, index = gpu.rpartition(":")
    return node, int(index)


def _between_pipelines(plan: TrainingPlan) -> Iterator[Feature]:
    if len({_cuts(pipeline) for pipeline in plan.pipelines}) > 1:
        yield Feature.DIFFERENT_CUTS
    if len({pipeline.micro_batches for pipeline in plan.pipelines}) > 1:
        yield Feature.DIFFERENT_BATCHES


def _of_pipeline(data: Instance, pipeline: Pipeline) -> Iterator[Feature]:
    cluster = data.planned_cluster
    stages = pipeline.stages
    if len({len(stage.span) for stage in stages}) > 1:
        yield Feature.UNEVEN_LAYERS
    degrees = [{replica.degree for replica in stage.replicas} for stage in stages]
    types = [
        {cluster.node[replica.node].gpu for replica in stage.replicas}
        for stage in stages
    ]
    if any(len(degree) > 1 for degree in degrees):
        yield Feature.MIXED_DEGREES_IN_STAGE
    if any(degree != degrees[0] for degree in degrees):
        yield Feature.MIXED_DEGREES
    if any(len(kinds) > 1 for kinds in types):
        yield Feature.MIXED_TYPES_IN_STAGE
    if any(kinds != types[0] for kinds in types):
        yield Feature.MIXED_TYPES
    if len({len(stage.replicas) for stage in stages}) > 1:
        yield Feature.MIXED_REPLICAS
    if any(len({replica.samples for replica in s.replicas}) > 1 for s in stages):
        yield Feature.UNEQUAL_SAMPLES


def _merged(pipelines: list[Pipeline]) -> Pipeline:
    """One pipeline of the replicas of several that cut and count alike."""
    rows = [
        [replica for pipeline in pipelines for replica in pipeline.stages[j].replicas]
        for j in range(len(pipelines[0].stages))
    ]
    if len(set(map(len, rows))) == 1:
        places = sorted(
            zip(*rows, strict=True), key=lambda held: place(held[0].gpus[0])
        )
        rows = [list(row) for row in zip(*places, strict=True)]
    return Pipeline(
        micro_batches=pipelines[0].micro_batches,
        micro_batch_size=sum(pipeline.micro_batch_size for pipeline in pipelines),
        stages=tuple(
            Stage(layers=stage.layers, replicas=tuple(row))
            for stage, row in zip(pipelines[0].stages, rows, strict=True)
        ),
    )


def _cuts(pipeline: Pipeline) -> tuple[tuple[int, int], ...]:
    return tuple(stage.layers for stage in pipeline.stages)


def _sorted(pipeline: Pipeline) -> Pipeline:
    stages = tuple(
        Stage(layers=stage.layers, replicas=tuple(map(_ordered, stage.replicas)))
        for stage in pipeline.stages
    )
    return pipeline.model_copy(update={"stages": stages})


def _ordered(replica: Replica) -> Replica:
    gpus = tuple(sorted(replica.gpus, key=place))
    return Replica(gpus=gpus, samples=replica.samples)


def _key(pipeline: Pipeline) -> tuple[str, int]:
    return place(pipeline.stages[0].replicas[0].gpus[0])
