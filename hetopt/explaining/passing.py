"""Passes of stages take the judge's times, and gradients of weights their share.

Gradients of weights have the share of a backward pass that they have of its FLOPs.
"""

from collections.abc import Sequence
from fractions import Fraction
from typing import Literal

from ..costs import CostTable, compute
from ..plans import Pipeline, TrainingPlan
from ..problems import training_plan
from ..schema import Instance
from .timeline import Times

Transfers = Literal["charged", "overlapped"]


def times_of(
    data: Instance,
    table: CostTable,
    plan: TrainingPlan,
    transfers: Transfers,
) -> list[list[Times]]:
    """Return by pipeline the times of its stages."""
    rows = training_plan.evaluate(data, plan).parts["stages"]
    pairs = zip(plan.pipelines, rows, strict=True)
    return [_times(table, *pair, transfers) for pair in pairs]


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
