"""Instances as one framework runs them, whatever they were assembled for."""

from dataclasses import replace
from pathlib import Path

import pytest
from test_assembling import made

from hetopt.costs.runs.description import described
from hetopt.costs.runs.prediction import spread
from hetopt.costs.runs.rows import Run
from hetopt.formats.calibrating import run_by
from hetopt.planners import megatron
from hetopt.plans import TrainingPlan
from hetopt.problems import training_plan
from hetopt.runtime.jobs import Settings, job
from hetopt.schema import Instance

HOSTS = ["n1 slots=4 type=A100-80GB", "n2 slots=4 type=H100-80GB"]


def seconds(instance: Instance, plan: TrainingPlan) -> int:
    judged = training_plan.evaluate(instance, plan)
    return judged.parts["iteration_us"]


@pytest.mark.parametrize("hosts", [HOSTS, HOSTS[:1], HOSTS[1:]], ids=str)
@pytest.mark.parametrize("framework", ["torch", "torchtitan", "executor"])
def test_an_instance_run_by_a_framework_is_one_assembled_for_it(
    tmp_path: Path, hosts: list[str], framework: str
) -> None:
    usual, own = made(tmp_path, hosts), made(tmp_path, hosts, f"framework={framework}")
    plan = megatron.plan(usual, seed=0, deadline=None)
    assert plan is not None
    assert seconds(run_by(usual, framework), plan) == seconds(own, plan)
    assert seconds(usual, plan) != seconds(own, plan)
    assert run_by(own, framework) is own


def test_rows_of_the_executor_are_of_the_operators_that_it_runs() -> None:
    row = {
        **{"layers": 24, "hidden": 1024, "heads": 16, "vocabulary": 50304, "seq": 2048},
        **{"gpu": "h100_80gb", "gpus": 1, "dp": 1, "tp": 1, "pp": 1, "mbs": 1, "ga": 4},
        **{"precision": "bf16", "recompute": "none"},
    }
    one, other = (
        described(Run.model_validate({**row, "framework": name})).layout
        for name in ("hetopt executor", "PyTorch")
    )
    assert one == replace(other, framework="executor")


def test_a_run_predicts_steps_of_the_operators_that_it_runs(tmp_path: Path) -> None:
    usual = made(tmp_path, HOSTS[:1])
    plan = megatron.plan(usual, seed=0, deadline=None)
    assert plan is not None
    predicted = job(usual, plan, Settings(steps=1)).predicted_s
    assert predicted == seconds(run_by(usual, "executor"), plan) / 1e6
    plain = seconds(run_by(usual, "torch"), plan) / 1e6
    assert predicted > plain > seconds(usual, plan) / 1e6


@pytest.mark.parametrize("framework", ["megatron", "torch", "trainer", "executor"])
@pytest.mark.parametrize("card", ["H100-80GB-SXM5", "H200-141GB-SXM5", "L40S", "A40"])
def test_a_plan_is_as_sure_as_a_run_of_its_framework_on_its_card(
    tmp_path: Path, framework: str, card: str
) -> None:
    """The interval of a plan is that of the same run, as rows tell it."""
    of_plan = made(tmp_path, [f"n1 slots=1 type={card}"], f"framework={framework}")
    words = {"trainer": "HF Trainer", "executor": "hetopt executor"}
    row = {
        **{"layers": 32, "hidden": 4096, "heads": 32, "vocabulary": 128256},
        **{"gpu": card, "gpus": 1, "dp": 1, "tp": 1, "pp": 1, "mbs": 1, "ga": 64},
        **{"precision": "bf16", "recompute": "none", "seq": 4096},
        "framework": words.get(framework, framework),
    }
    calibration = of_plan.workload.costs.compute.calibration
    assert calibration is not None
    of_run = spread(described(Run.model_validate(row)))
    assert calibration.spread == pytest.approx(of_run)
