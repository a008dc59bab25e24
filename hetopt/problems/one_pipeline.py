"""One pipeline: the training plans that Metis chooses from.

As `training_plan`, restricted: one pipeline, whose stages have replicas of one
tensor-parallel degree (Metis: one (dp, tp) a stage). Free are the number of stages,
their order, which GPUs of which nodes a stage has (also of several types, also none:
GPUs may stay idle), the degrees, the cuts between layers, the micro-batch size and
the samples of each replica. A bound of this problem says nothing about plans with
several pipelines. Source: Metis, sections 4.1 and 4.2.

The judge is that of `training_plan`, and names the plans that lie outside.
"""

from collections.abc import Iterator
from dataclasses import replace

from ..plans import TrainingPlan
from ..schema import Instance
from . import Evaluation, Violation, training_plan

Data = Instance
Plan = TrainingPlan
sense, data, unit = training_plan.sense, training_plan.data, training_plan.unit


def evaluate(data: Instance, plan: TrainingPlan) -> Evaluation:
    """Return the judgement of a training plan, with the rules of one pipeline added."""
    found = training_plan.evaluate(data, plan)
    return replace(found, violations=(*found.violations, *_outside(plan)))


def _outside(plan: TrainingPlan) -> Iterator[Violation]:
    if (count := len(plan.pipelines)) != 1:
        yield Violation("one_pipeline", "plan", f"{count} pipelines, expected one")
    for number, pipeline in enumerate(plan.pipelines):
        for j, stage in enumerate(pipeline.stages):
            degrees = sorted({replica.degree for replica in stage.replicas})
            if len(degrees) > 1:
                yield Violation(
                    "one_degree",
                    f"pipelines[{number}].stages[{j}]",
                    f"replicas of {', '.join(map(str, degrees))} GPUs, expected one",
                )
