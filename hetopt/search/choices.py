"""Settings that a plan chooses: which there are, said in a plan, taken from one."""

from itertools import product

from ..costs import under
from ..plans import Stage, TrainingPlan
from ..problems.training_plan import shapes
from ..problems.training_plan.shapes import split_of
from ..schema import Instance, Recompute
from ..schema.splits import FIELDS


def has_choices(instance: Instance) -> bool:
    """Whether plans of the instance choose any setting."""
    workload = instance.workload
    settings = workload.recomputes, workload.zeros, workload.splits
    return any(len(offers) > 1 for offers in settings)


def offered(instance: Instance) -> list[tuple[int, Recompute]]:
    """Stages of ZeRO and rules of recomputation that the instance's target runs."""
    workload = instance.workload
    supports = workload.target.supports
    pairs = product(workload.zeros, workload.recomputes)
    return [pair for pair in pairs if shapes.of_choice(*pair) <= supports]


def divided(instance: Instance) -> list[Instance]:
    """The instance once for each way to be divided that it offers.

    Those alone that its target runs, if it runs any.
    """
    workload = instance.workload
    if len(workload.splits) == 1:
        return [instance]
    supports = workload.target.supports
    runs = [split for split in workload.splits if shapes.of_split(split) <= supports]
    return [under(instance, split=split) for split in runs or workload.splits[:1]]


def runnable(instance: Instance) -> Instance:
    """The instance with the settings alone that its target runs, the first its own.

    The instance itself where it runs them all, or none.
    """
    pairs = offered(instance)
    workload = instance.workload
    if not pairs or len(pairs) == len(workload.zeros) * len(workload.recomputes):
        return instance
    zeros = tuple(dict.fromkeys(zero for zero, _ in pairs))
    rules = tuple(dict.fromkeys(rule for _, rule in pairs))
    costs = workload.costs.model_copy(update={"zero": zeros[0], "recompute": rules[0]})
    other = workload.alternatives.model_copy(
        update={"zero": zeros[1:], "recompute": rules[1:]}
    )
    fields = {"costs": costs, "alternatives": other}
    workload = workload.model_copy(update=fields)
    return instance.model_copy(update={"workload": workload})


def said(instance: Instance, twin: Instance, plan: TrainingPlan) -> TrainingPlan:
    """A plan of `runnable`'s twin as one of the instance: settings of the twin said."""
    own, new = instance.workload.costs, twin.workload.costs

    def rule(stage: Stage) -> Recompute | None:
        chosen = stage.recompute or new.recompute
        return None if chosen == own.recompute else chosen

    zero = new.zero if plan.zero is None else plan.zero
    pipelines = tuple(
        pipeline.model_copy(
            update={
                "stages": tuple(
                    stage.model_copy(update={"recompute": rule(stage)})
                    for stage in pipeline.stages
                )
            }
        )
        for pipeline in plan.pipelines
    )
    fields = {"pipelines": pipelines, "zero": None if zero == own.zero else zero}
    for field in FIELDS:
        degree = getattr(plan, field) or getattr(new, field)
        fields[field] = None if degree == getattr(own, field) else degree
    return plan.model_copy(update=fields)


def stamped(
    instance: Instance, plan: TrainingPlan, rule: Recompute, zero: int
) -> TrainingPlan:
    """A plan of an instance under one setting as one of the instance."""
    return said(instance, under(instance, rule, zero), plan)


def settled(instance: Instance, plan: TrainingPlan) -> tuple[Instance, TrainingPlan]:
    """The same plan without choices, on the instance whose settings it chose.

    A plan whose stages chose different rules keeps them, and the instance offers them.
    """
    stages = [stage for pipeline in plan.pipelines for stage in pipeline.stages]
    costs = instance.workload.costs
    zero = costs.zero if plan.zero is None else plan.zero
    split = split_of(instance, plan)
    rules = {stage.recompute or costs.recompute for stage in stages}
    if len(rules) > 1:
        own = dict.fromkeys(("zero", *FIELDS))
        data = under(instance, zero=zero, split=split)
        return data, plan.model_copy(update=own)
    (rule,) = rules
    data = under(instance, rule, zero, split)
    return data, said(data, data, plan)
