"""Plans for a target: valid there, accepted by its exporter, and bounded truly."""

from brute_force_grids import best_grid, tiny_on_a_trainer
from brute_force_training import best_training_plan, random_tiny_instance
from hypothesis import given
from inputs import drawn, examples

import hetopt
from hetopt.problems import training_plan as judge
from hetopt.result import Status
from hetopt.schema import Instance
from hetopt.search import grid


@given(drawn(tiny_on_a_trainer))
@examples(15)
def test_the_best_grid_is_found_and_none_beats_the_bound(instance: Instance) -> None:
    best, found = best_grid(instance), grid.search(instance)
    if best is None:
        assert found.plan is None
        return
    assert found.bound_us <= best
    judged = judge.evaluate(instance, found.plan)
    assert judged.valid
    assert judged.objective == found.objective
    assert best <= found.objective <= 1.1 * best  # local search ends somewhere


@given(drawn(random_tiny_instance))
@examples(5)
def test_proved_optima_over_permitted_degrees_are_those_of_all_plans(
    instance: Instance,
) -> None:
    heads = instance.model_copy(
        update={"model": instance.model.model_copy(update={"heads": 2, "head_dim": 64})}
    ).on("executor")
    found, best = hetopt.plan(heads, limits=60), None
    if heads.workload.costs.precision != "bf16" and heads.workload.costs.interleave < 2:
        best = best_training_plan(
            heads, several_replicas=max(heads.workload.micro_batch_sizes) > 1
        )
    if best is None:
        assert found.plan is None
    elif found.status is Status.OPTIMAL:
        assert found.objective == best[0]
