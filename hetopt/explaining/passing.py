"""Passes take time on stages, and on virtual stages where layers turn back.

Gradients of weights have the share of a backward pass that they have of its FLOPs. Of
DualPipe's second direction times are the judge's of the same pipeline on the stages'
GPUs from the last one on. Under ZBV the first stage has the last layers, and the head.
"""

from collections.abc import Sequence
from fractions import Fraction
from typing import Literal

from .. import capability
from ..costs import CostTable, compute
from ..errors import InstanceError
from ..plans import Pipeline, TrainingPlan
from ..problems import training_plan
from ..schema import Instance
from .timeline import Schedule, Times

Transfers = Literal["charged", "overlapped"]


def refuse_shape(schedule: Schedule, data: Instance, plan: TrainingPlan) -> None:
    """Raise `InstanceError` for a schedule that a pipeline has no shape for.

    `Unsupported` for one that does not carry a setting of the instance.
    """
    capability.require(f"schedule {schedule}", data)
    for number, pipeline in enumerate(plan.pipelines):
        stages, n = len(pipeline.stages), pipeline.micro_batches
        if schedule == "dualpipe" and (stages % 2 or n % 2 or n < 2 * stages):
            raise InstanceError(
                f"pipelines[{number}]: found {stages} stages and {n} micro-batches, "
                "dualpipe expects even numbers of both and two micro-batches a stage "
                "or more; choose another schedule"
            )
        if schedule == "zbv" and min(len(x.span) for x in pipeline.stages) < 2:
            raise InstanceError(
                f"pipelines[{number}]: found a stage of one layer, zbv expects two "
                "runs of layers on each; choose another schedule"
            )


def times_of(
    data: Instance,
    table: CostTable,
    plan: TrainingPlan,
    schedule: Schedule,
    transfers: Transfers,
) -> list[list[Times]]:
    """Return by pipeline the times of its stages, virtual where layers turn."""

    def of(data: Instance, one: TrainingPlan) -> list[list[Times]]:
        rows = training_plan.evaluate(data, one).parts["stages"]
        own = CostTable(data).under(zero=plan.zero, split=table.split)
        pairs = zip(one.pipelines, rows, strict=True)
        return [_times(own, *pair, transfers) for pair in pairs]

    if schedule == "zbv":
        return [
            _turned_halves(times, _head(table, pipeline))
            for times, pipeline in zip(
                of(_without_head(data), plan), plan.pipelines, strict=True
            )
        ]
    own = of(data, plan)
    if schedule == "dualpipe":
        turned = tuple(map(_turn, plan.pipelines))
        back = of(data, plan.model_copy(update={"pipelines": turned}))
        return [[*there, *other] for there, other in zip(own, back, strict=True)]
    return own


def _times(
    table: CostTable,
    pipeline: Pipeline,
    rows: Sequence[dict[str, int]],
    transfers: Transfers,
) -> list[Times]:
    found, costs = [], table.workload.costs
    for j, row in enumerate(rows):
        forward, backward = row["compute_us"] - row["backward_us"], row["backward_us"]
        weights = _share(table, pipeline, j) * backward
        half, entering = Fraction(row["hop_us"], 2), Fraction(0)
        if transfers == "overlapped":
            found.append(Times(Fraction(forward), Fraction(backward), -half, weights))
            continue
        if costs.links.hops == "both":
            entering = Fraction(rows[j - 1]["hop_us"], 2)
        busy = half + entering
        shared = half if costs.links.hops == "both" else Fraction(0)
        found.append(Times(forward + busy, backward + busy, shared, weights, busy))
    return found


def _share(table: CostTable, pipeline: Pipeline, j: int) -> Fraction:
    """Return the share of a backward pass that makes gradients of weights, by FLOPs."""
    stage, model, workload = pipeline.stages[j], table.model, table.workload
    table = table.under(stage.recompute)
    weights = whole = 0
    for layer in stage.span:
        weights += compute.weight_flops(model, workload, layer)
        whole += table.hardware_flops[layer]
        whole -= compute.forward_flops(model, workload, layer, 1)
    if j == len(pipeline.stages) - 1 and workload.costs.compute.head == "include":
        head = 2 * model.embedding_parameters * workload.sequence_length
        trained = workload.costs.updates.lora is None
        weights, whole = weights + head * trained, whole + head * (1 + trained)
    return Fraction(weights, whole) if whole else Fraction(0)


def _without_head(data: Instance) -> Instance:
    costs = data.workload.costs.model_copy(update={"head": "omit"})
    workload = data.workload.model_copy(update={"costs": costs})
    return data.model_copy(update={"workload": workload})


def _head(table: CostTable, pipeline: Pipeline) -> Times:
    """Passes of the head on the first stage, where ZBV has the last layers, too."""
    whole = Fraction(
        max(
            table.head_us(replica.node, replica.degree, replica.samples)
            for replica in pipeline.stages[0].replicas
        )
    )
    trained = table.workload.costs.updates.lora is None
    return Times(whole / 3, whole * 2 / 3, weights_us=whole / 3 * trained)


def _turn(pipeline: Pipeline) -> Pipeline:
    """Return the layers in their order, on the stages' GPUs from the last one on."""
    stages = tuple(
        stage.model_copy(update={"replicas": other.replicas})
        for stage, other in zip(pipeline.stages, reversed(pipeline.stages), strict=True)
    )
    return pipeline.model_copy(update={"stages": stages})


def _turned_halves(times: Sequence[Times], head: Times) -> list[Times]:
    """Half of each stage's layers on the way there, half on the way back; the head.

    Each half sends over the border behind it, as the stage before that does.
    """
    nobody, last = Times(Fraction(0), Fraction(0)), len(times) - 1
    there = [_half(stage, stage) for stage in times[:last]]
    back = [_half(times[j], times[j - 1]) for j in range(last, 0, -1)]
    end = _half(times[0], nobody)
    return [
        *there,
        _half(times[last], nobody),
        *back,
        Times(
            end.forward_us + head.forward_us,
            end.backward_us + head.backward_us,
            weights_us=end.weights_us + head.weights_us,
        ),
    ]


def _half(stage: Times, sender: Times) -> Times:
    """Half of a stage's work, with the hop of the sender over a border."""
    return Times(
        (stage.forward_us - stage.hop_us) / 2 + sender.hop_us,
        (stage.backward_us - stage.hop_us) / 2 + sender.hop_us,
        sender.shared_us,
        stage.weights_us / 2,
        sender.hop_us,
    )
