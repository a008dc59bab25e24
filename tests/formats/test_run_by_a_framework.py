"""Instances as one framework runs them, whatever they were assembled for."""

from pathlib import Path

import pytest
from test_assembling import made

from hetopt.api import boxes
from hetopt.catalogue import model
from hetopt.costs import chances
from hetopt.costs.runs.description import described
from hetopt.costs.runs.prediction import predictions, spread
from hetopt.costs.runs.rows import Run
from hetopt.formats.importing import changes
from hetopt.formats.importing.calibrating import run_by
from hetopt.planners import megatron
from hetopt.plans import TrainingPlan
from hetopt.problems import training_plan
from hetopt.runtime.jobs import Settings, job
from hetopt.schema import Instance, ModelSpec

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
    of_run = spread(described(Run.model_validate(row)))
    assert calibration.spread == pytest.approx(of_run)


LLAMA_70B = model("llama-3-70b") | {"seq": 8192, "cp": 1, "ep": 1}
#: Layouts of public runs, options of an instance, words of a command: Megatron-Bridge's
#: performance summary, and asyncTP_llama3_h100 of torchtitan's benchmarks.
PUBLIC = {
    "H100-80GB-SXM5": (
        {
            **{"set": "megatron-bridge", "dp": 2, "tp": 4, "pp": 4, "vp": 5, "mbs": 1},
            **{"gbs": 32, "zero": 1, "precision": "fp8", "release": "26.06"},
        },
        ["products=fp8", "release=26.06", "interleave=5"],
        "--tensor-model-parallel-size 4 --pipeline-model-parallel-size 4 --bf16 "
        "--fp8-format hybrid --num-layers-per-virtual-pipeline-stage 4 "
        "--micro-batch-size 1 --global-batch-size 32 --use-distributed-optimizer "
        "--grad-reduce-in-bf16 --tp-comm-overlap --sequence-parallel",
    ),
    "H100-96GB-SXM5": (
        {
            **{"set": "torchtitan", "dp": 32, "tp": 8, "pp": 1, "mbs": 16, "gbs": 512},
            **{"overlap": "torch.compile; async TP", "recompute": "full", "zero": 3},
            "precision": "bf16",
        },
        [],
        "--training.local_batch_size 16 --training.global_batch_size 512 "
        "--training.seq_len 8192 --parallelism.tensor_parallel_degree 8 "
        "--parallelism.enable_async_tensor_parallel true --compile.enable true "
        "--activation_checkpoint.mode full",
    ),
}


@pytest.mark.parametrize("card", PUBLIC)
def test_a_script_takes_as_long_as_the_row_of_its_run(
    tmp_path: Path, card: str
) -> None:
    told, options, script = PUBLIC[card]
    run = Run.model_validate(LLAMA_70B | told | {"gpu": card})
    shape = {"sequence_length": run.seq, "global_batch": run.gbs}
    cards = [boxes.Cards(card, described(run).layout.gpus)]
    spec = ModelSpec.model_validate(model("llama-3-70b"), strict=False)
    data, _ = boxes.instance_of(
        spec, cards, shape | {"micro_batch_sizes": [run.mbs]}, options
    )
    path = tmp_path / "run.sh"
    path.write_text(f"python train.py {script}\n")
    module, asked = changes.recognise([path])
    _, plan, _, judged, *_ = module.claimed(asked, data)
    found, (row,) = training_plan.evaluate(judged, plan), predictions([run])
    assert found.parts["iteration_us"] / 1e6 == pytest.approx(row.iteration_s, rel=0.05)
    need = max(x for _, x in chances.needs(judged, found.parts["peak_memory_mib"]))
    assert need / 2**30 == pytest.approx(row.peak_gib, rel=0.05)
