"""No plan of tiny instances spends less than the bound on spending, at any prices."""

from fractions import Fraction

from brute_force_training import best_training_plan
from hypothesis import given
from hypothesis import strategies as st
from inputs import examples, plans_of, tiny_instances

from hetopt.bounds.training_plan import spending_bound
from hetopt.plans import TrainingPlan
from hetopt.problems import training_plan
from hetopt.schema import Instance


def spent(
    instance: Instance, plan: TrainingPlan, prices: dict[str, Fraction]
) -> Fraction | None:
    """At prices of a GPU's us; None for a plan that breaks a rule."""
    judged = training_plan.evaluate(instance, plan)
    if not judged.valid or judged.objective is None:
        return None
    used = {gpu for replica in plan.replicas() for gpu in replica.gpus}
    nodes = instance.planned_cluster.node
    rate = sum(prices[nodes[gpu.rpartition(":")[0]].gpu] for gpu in used)
    return rate * judged.objective


@examples(20)
@given(st.data(), tiny_instances())
def test_no_plan_spends_less(data: st.DataObject, instance: Instance) -> None:
    each = st.integers(0, 50).map(Fraction)
    prices = {name: data.draw(each) for name in instance.planned_cluster.gpus}
    bound = spending_bound(instance, prices)
    best = best_training_plan(instance)
    plans = [] if best is None else [best[1]]
    if 1 in instance.workload.micro_batch_sizes:
        plans += data.draw(st.lists(plans_of(instance), min_size=3, max_size=8))
    for plan in plans:
        try:
            value = spent(instance, plan, prices)
        except ValueError:  # a size or degree that the profile lacks
            continue
        assert value is None or bound.value <= value, bound
