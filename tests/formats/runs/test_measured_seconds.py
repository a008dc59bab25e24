"""What an iteration took, by a log or the user, beside what is predicted of it."""

import json
from pathlib import Path
from typing import Any

import pytest
from assembled import assembled
from command_line import typed
from disk import put
from logs_by_hand import deepspeed, torchtitan

from hetopt import api
from hetopt.costs import CostTable
from hetopt.files import load_instance

DEFECTS = Path(__file__).parents[2] / "defects"
SECONDS, STEPS = 2.5, 20
TRAINER = (
    "model_name_or_path: m\nlearning_rate: 1e-5\nper_device_train_batch_size: 1\n"
    "gradient_accumulation_steps: 1\nbf16: true\ngradient_checkpointing: true\n"
    "deepspeed: zero3.json\n"
)
MEGATRON = (
    "torchrun --nproc_per_node 8 pretrain_gpt.py --num-layers 32 --hidden-size 4096 "
    "--num-attention-heads 32 --seq-length 1024 --micro-batch-size 1 "
    "--global-batch-size 8 --tensor-model-parallel-size 2 --bf16 --swiglu "
    "--group-query-attention --num-query-groups 8 --ffn-hidden-size 14336 "
    "--use-distributed-optimizer --recompute-activations"
)
TITAN = {
    "training": {"local_batch_size": 1, "global_batch_size": 8, "seq_len": 1024},
    "parallelism": {"tensor_parallel_degree": 2},
    "activation_checkpoint": {"mode": "full"},
}


def clock(seconds: float) -> str:
    return f"{int(seconds) // 60:02}:{int(seconds) % 60:02}"


def at_steps(row: str) -> str:
    passed = ((step, step * SECONDS) for step in range(2, STEPS * 2 + 1, 2))
    return "\n".join(
        row.replace("STEP", str(step))
        .replace("CLOCK", clock(s))
        .replace("WORDS", f"{int(s) // 60}m {int(s) % 60}s")
        for step, s in passed
    )


LOGS = {
    "bar.log": "Loading shards: 100%|#| 4/4 [00:05<00:00,  1.3s/it]\n"
    + at_steps(" 5%|#   | STEP/100 [CLOCK<12:00,  2.50s/it]").replace("\n", "\r"),
    "trainer_log.jsonl": at_steps(
        '{"current_steps": STEP, "total_steps": 100, "elapsed_time": "0:CLOCK"}'
    ),
    "logging.jsonl": at_steps(
        '{"loss": 1.0, "global_step/max_steps": "STEP/100", "elapsed_time": "WORDS"}'
    ),
    "swift.log": at_steps(
        "{'loss': 1.0, 'global_step/max_steps': 'STEP/100', 'elapsed_time': 'WORDS'}"
    ),
    "deepspeed.log": deepspeed(
        {"train_batch_size": 8}, {"train_batch_size": 8}, [SECONDS] * STEPS
    ),
    "output.log": "{'train_runtime': 250.0, 'train_steps_per_second': 0.4}\n",
}
NEMO = "".join(
    f"Training epoch 0, iteration {i}/99 | global_batch_size: 8 | "
    f"train_step_timing in s: {9 if i < 3 else SECONDS}\n"
    for i in range(STEPS)
)
MESH = {"pp": 1, "dp_replicate": 1, "dp_shard": 4, "cp": 1, "tp": 2}
RATE = round(8 * 1024 / (SECONDS * 8))
RUNS = {
    **{name: {"run.yaml": TRAINER, name: text} for name, text in LOGS.items()},
    "nemo.log": {"run.sh": MEGATRON, "nemo.log": NEMO},
    "torchtitan.log": {
        "torchtitan.log": torchtitan(
            MESH, [RATE] * STEPS, config=TITAN, batch=(1, 8, 1024)
        )
    },
}


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("measured")
    hosts = ["a slots=8 type=A100-80GB-SXM4"]
    work = {"sequence_length": 1024, "global_batch": 8}
    options = ["recompute=full,selective,none", "zero=1,0,2,3"]
    made = assembled(folder, hosts, *options, work=work)
    return put(folder / "instance.json", made.document)


def checked(*words: object) -> dict[str, Any]:
    shown = typed("check", *words, "--time-limit", "0.2", "--json")
    assert shown.exit_code in (0, 2), shown.output
    return json.loads(shown.stdout)


@pytest.mark.parametrize("name", RUNS)
def test_the_log_of_every_trainer_says_what_an_iteration_took(
    name: str, place: Path, tmp_path: Path
) -> None:
    words: list[object] = []
    for file, text in RUNS[name].items():
        (tmp_path / file).write_text(text)
        words += ["--from", tmp_path / file]
    found = checked(*words, "--instance", place)
    assert found["measured_s"] == pytest.approx(SECONDS, rel=0.02)
    assert found["predicted_s"] == pytest.approx(found["objective"] / 1e6)
    factor = found["measured_s"] / found["predicted_s"]
    assert found["best_s"] <= found["predicted_s"]
    assert found["best_on_measured_footing_s"] == pytest.approx(
        found["best_s"] * factor
    )
    assert found["measured_mfu"] == pytest.approx(found["evaluation"]["mfu"] / factor)
    told = checked(*words, "--instance", place, "--measured", "4s")
    assert told["measured_s"] == 4


@pytest.mark.parametrize("time", ["14.2s", "14200ms", "0.2366667min", "14.2"])
def test_a_measured_time_is_set_beside_a_plan(
    time: str, place: Path, tmp_path: Path
) -> None:
    result = api.plan(str(place), planner="megatron")
    plan = put(tmp_path / "plan.json", result.to_json())
    found = checked(plan, "--instance", place, "--measured", time)
    assert found["measured_s"] == pytest.approx(14.2, rel=1e-5)
    assert found["best_s"] <= found["predicted_s"] == result.objective / 1e6
    assert found["measured_below_bound"] is None
    words = ["check", str(plan), "--instance", str(place), "--measured", "1ms"]
    fast = " ".join(typed(*words).stdout.split())
    assert "Measured 1.00 ms per iteration (--measured), predicted" in fast
    assert "the model only. It is more than the model is usually off by" in fast


def test_the_network_that_explains_a_slow_run_is_named(tmp_path: Path) -> None:
    """The rate is that of the instance with which the plan takes as long."""
    hosts, work = (
        ["a slots=8 type=A100-80GB-SXM4", "b slots=8 type=A100-80GB-SXM4"],
        {
            "sequence_length": 1024,
            "global_batch": 16,
        },
    )
    fast, slow = (tmp_path / f"{rate}.json" for rate in (100, 2))
    for file in (fast, slow):
        told = f"inter_gbytes_per_s={file.stem}"
        made = assembled(tmp_path, hosts, "zero=1", told, work=work)
        file.write_text(json.dumps(made.document))
    result, plan = api.plan(str(fast), planner="megatron"), tmp_path / "plan.json"
    plan.write_text(json.dumps(result.to_json()))
    seconds = checked(plan, "--instance", slow)["objective"] / 1e6
    found = checked(plan, "--instance", fast, "--measured", f"{seconds}s")
    assert found["explained_by_gbytes_per_s"] == pytest.approx(2, rel=0.13)
    near = checked(plan, "--instance", fast, "--measured", f"{result.objective}us")
    assert near["explained_by_gbytes_per_s"] is None


def test_a_measured_time_without_a_prediction_is_refused(tmp_path: Path) -> None:
    script = put(tmp_path / "run.sh", MEGATRON)
    shown = typed("check", "--from", script, "--measured", "3s")
    assert shown.exit_code == 2
    assert "--measured is compared with a prediction" in shown.output


@pytest.mark.parametrize(
    ("products", "peak_tflops", "seconds"), [("bf16", 148, 12), ("fp8", 296, 7)]
)
def test_a_run_below_the_bound_is_set_beside_the_interval_and_the_peak(
    products: str, peak_tflops: int, seconds: float, tmp_path: Path
) -> None:
    """Of a card on which nothing was measured, in eight bits by the peak of these."""
    hosts, file = ["a slots=8 type=H20-96GB-SXM5"], tmp_path / "instance.json"
    work = {"sequence_length": 8192, "global_batch": 16}
    told = {"work": work, "model": DEFECTS / "h20-model.json"}
    made = assembled(tmp_path, hosts, f"products={products}", **told)
    assert any(
        "not calibrated here: H20-96GB-SXM5" in row.source for row in made.assumed
    )
    file.write_text(json.dumps(made.document))
    flag = " --fp8_format e4m3" if products == "fp8" else ""
    run = put(tmp_path / "run.sh", (DEFECTS / "h20-run.sh").read_text().strip() + flag)
    words = ["--from", run, "--instance", file, "--measured", f"{seconds}s"]
    found = checked(*words)
    bound_s = found["bound"] / 1e6
    assert seconds < bound_s < found["predicted_s"]
    assert found["measured_below_bound"] == pytest.approx(1 - seconds / bound_s)
    needed = CostTable(load_instance(file)).needed_flops_per_sample * 16
    peak = 8 * peak_tflops * 1e12
    assert found["measured_mfu"] == pytest.approx(needed / (peak * seconds))
    assert found["evaluation"]["hfu"] < 0.95
    shown = typed("check", *words, "--time-limit", "0.2")
    assert "at the fast end of the 80% interval" in " ".join(shown.stdout.split())
