"""Settings that a plan chooses: said in a plan, taken from one."""

from ..costs import under
from ..plans import Stage, TrainingPlan
from ..problems.training_plan.shapes import split_of
from ..schema import Instance, Recompute
from ..schema.groups import FIELDS


def said(instance: Instance, twin: Instance, plan: TrainingPlan) -> TrainingPlan:
    """A plan of `runnable`'s twin as one of the instance: settings of the twin said."""
    own, new = instance.workload.costs, twin.workload.costs

    def rule(stage: Stage) -> Recompute | None:
        chosen = stage.recompute or new.compute.recompute
        return None if chosen == own.compute.recompute else chosen

    zero = new.updates.zero if plan.zero is None else plan.zero
    pipelines = []
    for pipeline in plan.pipelines:
        stages = (x.model_copy(update={"recompute": rule(x)}) for x in pipeline.stages)
        pipelines.append(pipeline.model_copy(update={"stages": tuple(stages)}))
    fields: dict[str, object] = {"pipelines": tuple(pipelines)}
    fields["zero"] = None if zero == own.updates.zero else zero
    for field in FIELDS:
        degree = getattr(plan, field) or new.value(field)
        fields[field] = None if degree == own.value(field) else degree
    return plan.model_copy(update=fields)


def settled(instance: Instance, plan: TrainingPlan) -> tuple[Instance, TrainingPlan]:
    """Return the plan without choices, on the instance whose settings it chose.

    A plan whose stages chose different rules keeps them, and the instance offers them.
    """
    stages = [stage for pipeline in plan.pipelines for stage in pipeline.stages]
    costs = instance.workload.costs
    zero = costs.updates.zero if plan.zero is None else plan.zero
    split = split_of(instance, plan)
    rules = {stage.recompute or costs.compute.recompute for stage in stages}
    if len(rules) > 1:
        own = dict.fromkeys(("zero", *FIELDS))
        data = under(instance, zero=zero, split=split)
        return data, plan.model_copy(update=own)
    (rule,) = rules
    data = under(instance, rule, zero, split)
    return data, said(data, data, plan)
