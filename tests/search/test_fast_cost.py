"""The fast evaluator and the judge agree to the microsecond."""

from random import Random

from hypothesis import given
from hypothesis import strategies as st
from inputs import drawn, examples
from random_pipelines import random_instance, random_pipes

from hetopt.problems import training_plan
from hetopt.schema import Instance
from hetopt.search.fast_cost import FastCost, Pipe, Slot, lockstep_us


def several_pipes(instance: Instance) -> st.SearchStrategy[list[list[Pipe]]]:
    """A few plans of an instance, in compact form."""
    return st.lists(drawn(random_pipes, instance), min_size=1, max_size=4)


@examples(25)
@given(st.data(), drawn(random_instance, later=True))
def test_settings_that_came_later_agree_as_well(
    data: st.DataObject, instance: Instance
) -> None:
    cost = FastCost(instance)
    for pipes in data.draw(several_pipes(instance)):
        plan = cost.plan(pipes)
        judged = training_plan.evaluate(instance, plan)
        assert {v.rule for v in judged.violations} <= {"memory", "interleave"}
        assert cost.iteration_us(pipes) == judged.objective
        fits = all(cost.fits(pipe, len(pipes)) for pipe in pipes)
        assert fits == judged.valid
        # Fewer replicas than there are never ask for less memory.
        assert fits or not all(map(cost.fits, pipes))


@examples(25)
@given(st.data(), drawn(random_instance))
def test_iteration_time_and_memory_equal_the_judges(
    data: st.DataObject, instance: Instance
) -> None:
    cost = FastCost(instance)
    for pipes in data.draw(several_pipes(instance)):
        plan = cost.plan(pipes)
        judged = training_plan.evaluate(instance, plan)
        assert {v.rule for v in judged.violations} <= {"memory"}
        assert cost.iteration_us(pipes) == judged.objective
        assert all(map(cost.fits, pipes)) == judged.valid
        assert cost.compact(plan) == tuple(pipes)


def test_random_instances_cover_every_cost_setting() -> None:
    seen = set()
    for seed in range(100):
        costs = random_instance(Random(f"fast {seed}")).workload.costs
        seen |= {
            (name, costs.value(name))
            for name in ("head", "recompute", "activations", "in_flight", "flash")
        }
        seen |= {
            (name, costs.value(name))
            for name in ("pipeline", "sync", "sync_overlap", "sequence_parallel")
        }
    assert len(seen) == 2 + 2 + 2 + 3 + 2 + 2 + 2 + 2 + 2


def test_lockstep_counts_each_slot_at_its_slowest_active_stage() -> None:
    taus, n = (3, 1, 4, 1, 5), 3
    slots = [
        max(taus[j] for j in range(len(taus)) if 0 <= slot - j < n)
        for slot in range(len(taus) + n - 1)
    ]
    assert lockstep_us(n, taus) == sum(slots)


def test_a_stage_with_several_replicas_has_no_compact_form() -> None:
    instance = random_instance(Random("fast 0"))
    cost = FastCost(instance)
    (pipe,) = [Pipe(1, 1, (Slot(0, 1, 0, instance.model.layers),))]
    plan = cost.plan([pipe])
    stage = plan.pipelines[0].stages[0]
    doubled = stage.model_copy(update={"replicas": stage.replicas * 2})
    pipeline = plan.pipelines[0].model_copy(update={"stages": (doubled,)})
    assert cost.compact(plan.model_copy(update={"pipelines": (pipeline,)})) is None
