"""Logs of DeepSpeed: the reader finds what the log was written from."""

import json
from pathlib import Path

import pytest
from logs_by_hand import deepspeed
from model_configs import LLAMA_3_8B as CONFIG
from reading_logs import LLAMA, STEADY, TIMES, one, put, told

from hetopt.errors import InstanceError
from hetopt.formats.runs import read

DEEPSPEED = {
    "train_batch_size": 2048,
    "train_micro_batch_size_per_gpu": 4,
    "gradient_accumulation_steps": 64,
    "bf16": {"enabled": True},
    "zero_optimization": {
        "stage": 3,
        "overlap_comm": True,
        "reduce_bucket_size": 500000000,
        "offload_optimizer": {"device": "cpu"},
    },
    "optimizer": {"type": "AdamW", "params": {"betas": [0.9, 0.95]}},
}
RESOLVED = {
    "train_batch_size": 2048,
    "train_micro_batch_size_per_gpu": 4,
    "gradient_accumulation_steps": 64,
    "world_size": 8,
    "zero_optimization_stage": 3,
    "bfloat16_enabled": True,
    "fp16_enabled": False,
}


@pytest.mark.parametrize("words", ["rates", "pipeline", "breakdown"])
def test_a_log_of_deepspeed_is_the_run_it_was_written_from(
    tmp_path: Path, words: str
) -> None:
    seconds = [ms / 1000 for ms in TIMES]
    log = deepspeed(RESOLVED, DEEPSPEED, seconds, words=words)
    config = put(tmp_path, "config.json", json.dumps(CONFIG))
    path = put(tmp_path, "d.log", log)
    run = one(path, configs=[config], gpus=8, gpu="A100-80GB", seq="4096")
    told(run, LLAMA | {"gpus": 8, "dp": 8, "tp": 1, "pp": 1, "cp": 1, "seq": 4096})
    told(run, {"mbs": 4, "gbs": 2048, "ga": 64, "zero": 3, "precision": "bf16 mixed"})
    sums = "overlap_comm=True; reduce_bucket_size=500000000"
    told(run, {"offload": "optimizer", "overlap": sums})
    assert run.iteration_s == pytest.approx(STEADY / 1000, abs=0.0006)
    if words == "rates":
        assert run.peak_allocated_mib == pytest.approx(30.5 * 1024)


def test_deepspeeds_pipeline_and_its_own_configuration(tmp_path: Path) -> None:
    log = deepspeed(RESOLVED, DEEPSPEED, [1.0] * 6, stages=4, words="pipeline")
    run = one(put(tmp_path, "d.log", log), gpus=64)
    told(run, {"pp": 4, "dp": 8, "vp": 1, "tp": None})
    assert one(tmp_path / "d.log", gpus=64, cp=1).tp == 2
    bare = "\n".join(line for line in log.split("\n") if line.startswith("steps:"))
    config = put(tmp_path, "ds.json", json.dumps(DEEPSPEED | {"fp16": {}}))
    told(
        one(put(tmp_path, "bare.log", bare), configs=[config]),
        {"gbs": 2048, "mbs": 4, "dp": 8, "zero": 3, "optimizer": "AdamW"},
    )


def test_deepspeeds_samples_a_second_need_a_batch(tmp_path: Path) -> None:
    log = deepspeed(RESOLVED, DEEPSPEED, [1.0] * 6)
    rates = "\n".join(line for line in log.split("\n") if "Curr" in line)
    path = put(tmp_path, "d.log", rates)
    with pytest.raises(InstanceError, match=r"gbs: found samples a second and no"):
        read(path)
    assert one(path, gbs=2048).iteration_s == pytest.approx(1.0)


def test_a_printed_configuration_cut_short_is_named_by_its_line(tmp_path: Path) -> None:
    log = deepspeed(RESOLVED, DEEPSPEED, [1.0] * 6).replace(
        '"overlap_comm": true, ', ""
    )
    broken = log.replace('"stage": 3, ', '"stage": 3 ')
    with pytest.raises(InstanceError, match="line 8, a configuration: line"):
        read(put(tmp_path, "d.log", broken))
