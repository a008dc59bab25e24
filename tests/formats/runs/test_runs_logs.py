"""Logs of all trainers: speeds, GPUs, sources that differ, damage."""

import json
from contextlib import suppress
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory

import pytest
from hypothesis import given
from hypothesis import strategies as st
from inputs import examples
from logs_by_hand import deepspeed, megatron, torchtitan
from model_configs import LLAMA_3_8B as CONFIG
from reading_logs import ARGUMENTS, LAYOUT, TIMES, one, put, told

from hetopt.errors import InstanceError
from hetopt.formats.runs import logs, read

SMI = (
    "|   0  NVIDIA A100-SXM4-80GB          On  | 00000000:07:00.0 Off |          0 |\n"
)


@examples(60)
@given(st.lists(st.floats(0.5, 5.0), min_size=4, max_size=60))
def test_the_speed_is_the_median_after_warm_up(readings: list[float]) -> None:
    left = readings[max(3, (len(readings) + 9) // 10) :]
    found = logs.steady(readings)
    assert found is not None
    assert found.seconds == pytest.approx(median(left))
    assert (found.counted, found.left_out) == (len(left), len(readings) - len(left))


def test_a_log_too_short_or_out_of_memory_says_so(tmp_path: Path) -> None:
    short = put(tmp_path, "short.log", megatron(ARGUMENTS, TIMES[:3]))
    with pytest.raises(InstanceError, match="found 3 iterations with a time, expected"):
        read(short)
    none = megatron(ARGUMENTS, [])
    with pytest.raises(InstanceError, match="found 0 iterations"):
        read(put(tmp_path, "none.log", none))
    failed = (
        megatron(ARGUMENTS, TIMES[:1])
        + "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate\n"
    )
    run = one(put(tmp_path, "failed.log", failed))
    assert run.oom
    assert run.measured_s is None
    told(run, LAYOUT)


def test_two_sources_that_differ_are_named_with_both_values(tmp_path: Path) -> None:
    path = put(tmp_path, "m.log", megatron(ARGUMENTS, TIMES))
    with pytest.raises(InstanceError, match=r"tp: found 4 \(option tp\) and 2 \(line"):
        read(path, tp=4)
    config = put(tmp_path, "config.json", json.dumps(CONFIG | {"hidden_size": 8192}))
    with pytest.raises(InstanceError, match=r"hidden: found 8192 \(config.json\) and"):
        read(path, configs=[config])
    wrong = megatron(ARGUMENTS | {"world_size": 24}, TIMES)
    with pytest.raises(InstanceError, match=r"gpus: found 24 .*dp 2 x tp 2 x pp 4"):
        read(put(tmp_path, "wrong.log", wrong))
    other = put(tmp_path, "other.json", '{"train_batch_size": 8}')
    with pytest.raises(InstanceError, match="a configuration of deepspeed beside"):
        read(path, configs=[other])


def test_the_gpu_is_found_where_nvidia_smi_ran_before(tmp_path: Path) -> None:
    log = megatron(ARGUMENTS, TIMES)
    found = one(put(tmp_path, "smi.log", SMI + log))
    assert found.gpu == "NVIDIA A100-SXM4-80GB"
    listed = "GPU 0: NVIDIA H200 (UUID: GPU-1)\nGPU 1: NVIDIA H200 (UUID: GPU-2)\n"
    assert one(put(tmp_path, "l.log", listed + log)).gpu == "NVIDIA H200"
    with pytest.raises(
        InstanceError, match=r"gpu: found .*A100-SXM4-80GB.* and .*H200"
    ):
        read(put(tmp_path, "two.log", SMI + listed + log))


@examples(40)
@given(st.data())
def test_a_damaged_log_is_read_or_refused(data: st.DataObject) -> None:
    logs_ = [
        megatron(ARGUMENTS, TIMES, vocabulary=(5, 8), peaks=[(1, 2)]),
        torchtitan({"pp": 1, "dp_shard": 8}, [5000] * 6, config={"training": {}}),
        deepspeed({"train_batch_size": 8}, {"bf16": {}}, [1.0] * 6, stages=2),
    ]
    log = data.draw(st.sampled_from(logs_))
    places = st.integers(0, len(log))
    for _ in range(data.draw(st.integers(1, 4))):
        start, length = data.draw(places), data.draw(st.integers(0, 30))
        junk = data.draw(st.sampled_from(["", "-1", "0", "nan", "1e308", "{}", "}\n"]))
        log = log[:start] + junk + log[start + length :]
    with TemporaryDirectory() as folder:
        path = put(Path(folder), "damaged.log", log)
        with suppress(InstanceError):
            assert len(read(path)) == 1
