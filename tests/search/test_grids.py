"""Plans for a target: valid there, accepted by its exporter, and bounded truly."""

import json
import time
from itertools import count
from math import inf
from pathlib import Path

import pytest
from brute_force_grids import best_grid, tiny_on_a_trainer
from brute_force_training import best_training_plan, random_tiny_instance
from flat import flat
from hypothesis import given
from inputs import drawn, examples
from small_instances import small
from typer.testing import CliRunner

import hetopt
from hetopt import cli, formats
from hetopt.formats import exporting
from hetopt.plans import Pipeline, Replica, Stage, TrainingPlan
from hetopt.portfolio import exactly
from hetopt.problems import training_plan as judge
from hetopt.result import Status
from hetopt.schema import Instance
from hetopt.schema.targets import TARGETS, barred
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


def test_degrees_divide_what_they_cut_and_the_judge_says_which_do_not() -> None:
    instance = shaped()  # 8 heads, 4 key-value heads, nodes of 3 GPUs and more
    one = Replica(gpus=("a:0", "a:1", "a:2"), samples=1)
    plan = TrainingPlan(
        pipelines=(
            Pipeline(micro_batches=8, stages=(Stage(layers=(0, 8), replicas=(one,)),)),
        )
    )
    assert judge.evaluate(instance, plan).valid
    for target in TARGETS:
        broken = judge.evaluate(instance.on(target), plan).violations
        rules = {violation.rule for violation in broken}
        assert ("tensor_parallel" in rules) == (target != "any")
    assert [
        t for t in range(1, 9) if not list(barred("architecture", instance, t))
    ] == [*(1, 2, 4)]


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


def test_a_trainer_without_a_plan_is_an_answer_beside_others(tmp_path: Path) -> None:
    tree = flat(shaped())
    tree["workload"]["costs"]["precision"] = "fp16_mixed"  # no word of torchtitan's
    file = tmp_path / "half.json"
    file.write_text(json.dumps(tree))
    words = ["compare", "--targets", str(file), "--time-limit", "0.2", "--json"]
    shown = CliRunner().invoke(cli.app, words)
    rows = {row["target"]: row for row in json.loads(shown.stdout)["rows"]}
    assert "fp16" in rows["torchtitan"]["unsupported"]
    assert rows["torchtitan"]["result"]["status"] == "undecided"
    assert rows["megatron"]["unsupported"] is None
    assert rows["megatron"]["result"]["plan"] is not None
    assert shown.exit_code == 0


def test_a_plan_to_start_from_is_said_in_the_settings_that_the_target_runs() -> None:
    # It recomputes in full, which is the second choice here.
    instance = shaped("hexiscale").on("hexiscale")
    start = hetopt.plan(instance, "islands", limits=3)
    assert start.plan is not None
    limits = hetopt.Limits(time_s=0)
    found = exactly("training_plan", instance, limits, start.plan, None)
    assert found.objective == start.objective


def test_there_is_a_plan_before_the_shapes_of_all_settings_are_listed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    looks = count()  # a clock that goes on whenever it is looked at
    monkeypatch.setattr(time, "monotonic", lambda: float(next(looks)))
    instance = shaped().on("executor")
    assert grid.search(instance, most=0, deadline=inf).plan is None
    listed = next(looks)
    early = 0
    for tenths in range(5, 60, 5):
        until = float(next(looks) + listed * tenths // 10)
        found = grid.search(instance, deadline=until)
        if found.plan is not None:
            judged = judge.evaluate(instance, found.plan)
            assert judged.objective == found.objective
            early += found.bound_us == 0  # not all shapes were listed
    assert early
