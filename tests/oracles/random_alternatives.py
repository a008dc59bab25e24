"""Random instances whose plans choose settings, and random choices."""

from collections.abc import Callable
from random import Random

from flat import flat

from hetopt.plans import TrainingPlan
from hetopt.schema import Instance
from hetopt.search.fast_cost import FastCost

RULES = ("full", "selective", "none", "mlp")


def with_alternatives(
    random: Random, instance: Instance, *, zeros: tuple[int, ...] = ()
) -> Instance:
    """The instance with every rule of recomputation, and such stages of ZeRO."""
    tree = flat(instance, exclude_unset=True)
    costs = tree["workload"]["costs"]
    if costs.pop("profile", None):
        costs["layer_times"] = "analytic"
    if costs.get("activations") == "checkpoint":
        costs["activations"] = "standard"
    costs["flash"] = random.random() < 0.3  # scores are what selective recomputes
    rules = random.sample(RULES, random.randint(2, 3))
    tree["workload"]["alternatives"] = {"recompute": rules, "zero": list(zeros)}
    return Instance.model_validate(tree, strict=False)


def with_rules(plan: TrainingPlan, rule: Callable[[], str | None]) -> TrainingPlan:
    """The plan with what `rule` says in every stage."""
    pipelines = tuple(
        pipeline.model_copy(
            update={
                "stages": tuple(
                    stage.model_copy(update={"recompute": rule()})
                    for stage in pipeline.stages
                )
            }
        )
        for pipeline in plan.pipelines
    )
    return plan.model_copy(update={"pipelines": pipelines})


def with_choices(
    random: Random, instance: Instance, plan: TrainingPlan
) -> TrainingPlan:
    """The plan with any choice in every stage, the workload's own among them."""
    rules = (None, *instance.workload.recomputes)
    chosen = with_rules(plan, lambda: random.choice(rules))
    zero = random.choice((None, *instance.workload.zeros))
    return chosen.model_copy(update={"zero": zero})


def cost_of(instance: Instance, plan: TrainingPlan) -> FastCost:
    """The evaluator under the plan's stage of ZeRO, stages free to choose."""
    from hetopt.costs import under

    return FastCost(instance if plan.zero is None else under(instance, zero=plan.zero))
