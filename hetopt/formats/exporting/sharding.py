"""FSDP shards weights again where the price of a plan gathers them again.

With ZeRO 3 the judge prices weights that are gathered once an iteration for each of the
two passes, or with `gathers: micro_batch` for every micro-batch of a plan of one stage.
FSDP that divides weights again after each layer gathers them anew for every
micro-batch; so it does so there, and where there is one micro-batch. Otherwise it keeps
them whole meanwhile, and a plan whose weights do not fit whole is refused.
"""

from ...costs import under
from ...plans import TrainingPlan
from ...problems import training_plan
from ...problems.training_plan.shapes import normal
from ...schema import Instance


def reshards(data: Instance, plan: TrainingPlan) -> bool:
    """Tell whether weights are divided again after the forward pass of each layer."""
    pipeline, costs = normal(plan).pipelines[0], data.workload.costs
    often = costs.updates.gathers == "micro_batch" and len(pipeline.stages) == 1
    return costs.updates.zero == 3 and (pipeline.micro_batches == 1 or often)


def refusals(data: Instance, plan: TrainingPlan) -> list[str]:
    """Return what is wrong under ZeRO 3 with weights that are kept whole."""
    if data.workload.costs.updates.zero < 3 or reshards(data, plan):
        return []
    whole = plan.model_copy(update={"zero": None})
    judged = training_plan.evaluate(under(data, zero=2), whole)
    if any(violation.rule == "memory" for violation in judged.violations):
        return [
            "weights that are gathered once an iteration, as ZeRO 3 is priced, do "
            "not fit whole"
        ]
    return []
