"""Plans for a target: valid there, accepted by its exporter, and bounded truly."""

import pytest
from brute_force_grids import best_grid, tiny_on_a_trainer
from brute_force_training import best_training_plan, random_tiny_instance
from hypothesis import given
from inputs import drawn, examples
from small_instances import small

import hetopt
from hetopt import formats
from hetopt.formats import exporting
from hetopt.problems import training_plan as judge
from hetopt.result import Status
from hetopt.schema import Instance
from hetopt.schema.targets import TARGETS
from hetopt.search import grid

TRAINERS = [name for name in TARGETS if name in formats.exporters()]


@given(drawn(tiny_on_a_trainer))
@examples(15)
def test_the_best_grid_is_found_and_none_beats_the_bound(instance: Instance) -> None:
    best, found = best_grid(instance), grid.search(instance)
    if best is None:
        assert found.plan is None
        return
    assert found.bound_us <= best
    assert found.plan is not None
    judged = judge.evaluate(instance, found.plan)
    assert judged.valid
    assert judged.objective == found.objective
    assert best <= found.objective <= 1.1 * best  # local search ends somewhere


@pytest.mark.parametrize("target", TRAINERS)
def test_an_exporter_takes_the_plan_that_was_made_for_it(target: str) -> None:
    instance = shaped(target).on(target)
    limits = hetopt.Limits(time_s=20, gap=0.5)
    found = hetopt.plan(instance, limits=limits)
    assert found.plan is not None
    assert exporting.export_plan(target, instance, found.plan)
    free = hetopt.plan(instance.on("executor"), "islands", limits=limits)
    assert found.bound is not None
    assert free.bound is not None
    assert free.bound.value <= found.objective


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


def shaped(target: str = "any") -> Instance:
    """Two nodes of one type and one of another, links between, a Llama-like model.

    HexiScale trains models of its own.
    """
    sequences, model = 128, {"hidden": 512, "kv_heads": 4, "intermediate": 1024}
    if target == "hexiscale":
        sequences, model = 4096, {"hidden": 4096, "heads": 32, "intermediate": 11_008}
        model["vocabulary"] = 32_000
    hosts = [("a", "fast", 4, 50), ("b", "fast", 4, 50), ("c", "slow", 3, 20)]
    keys = "name", "gpu", "count", "intra_gbytes_per_s"
    return small(
        [dict(zip(keys, host, strict=True)) for host in hosts],
        {"fast": (100, 80), "slow": (40, 80)},
        model={"layers": 8, "gated": True, **model},
        inter=5,
        sequence_length=sequences,
        costs={"recompute": "none"},
        alternatives={"recompute": ["full"], "zero": [1, 2]},
    )
