"""Logs of trainers: a reader finds what the log was written from."""

import json
from pathlib import Path
from statistics import median
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from inputs import examples
from logs_by_hand import deepspeed, human, megatron, nanotron, torchtitan
from rows_by_hand import as_csv

from hetopt.calibration.runs import Run
from hetopt.errors import InstanceError
from hetopt.formats.runs import logs, read
from hetopt.formats.runs.nanotron import number as nanotron_number

CONFIG = {
    "model_type": "llama",
    "hidden_size": 4096,
    "num_hidden_layers": 32,
    "num_attention_heads": 32,
    "num_key_value_heads": 8,
    "intermediate_size": 14336,
    "vocab_size": 128256,
    "hidden_act": "silu",
}
LLAMA = {
    "layers": 32,
    "hidden": 4096,
    "heads": 32,
    "kv_heads": 8,
    "intermediate": 14336,
    "gated": True,
    "vocabulary": 128256,
}
SMI = (
    "|   0  NVIDIA A100-SXM4-80GB          On  | 00000000:07:00.0 Off |          0 |\n"
)
ARGUMENTS = {
    "num_layers": 32,
    "hidden_size": 4096,
    "num_attention_heads": 32,
    "group_query_attention": True,
    "num_query_groups": 8,
    "kv_channels": 128,
    "ffn_hidden_size": 14336,
    "swiglu": True,
    "seq_length": 8192,
    "num_experts": None,
    "world_size": 16,
    "data_parallel_size": 2,
    "tensor_model_parallel_size": 2,
    "pipeline_model_parallel_size": 4,
    "context_parallel_size": 1,
    "expert_model_parallel_size": 1,
    "virtual_pipeline_model_parallel_size": 2,
    "micro_batch_size": 1,
    "global_batch_size": 64,
    "use_distributed_optimizer": True,
    "overlap_grad_reduce": True,
    "overlap_param_gather": False,
    "tp_comm_overlap": False,
    "sequence_parallel": True,
    "bf16": True,
    "fp16": False,
    "fp8": None,
    "recompute_granularity": "full",
    "recompute_method": "block",
    "recompute_num_layers": 2,
    "optimizer": "adam",
    "data_path": "['/data/a b.bin']",
}
LAYOUT = {"gpus": 16, "dp": 2, "tp": 2, "pp": 4, "cp": 1, "ep": 1, "vp": 2}
BATCH = {"mbs": 1, "gbs": 64, "ga": 32, "seq": 8192}
MESH = {"pp": 1, "dp_replicate": 1, "dp_shard": 8, "cp": 1, "tp": 1, "ep": 1, "etp": 1}
TITAN_MODEL = {
    "dim": 4096,
    "n_layers": 32,
    "n_heads": 32,
    "n_kv_heads": 8,
    "vocab_size": 128256,
    "multiple_of": 1024,
    "ffn_dim_multiplier": 1.3,
    "rope_scaling_args": {"scaling_factor": 8.0},
}
TITAN_TOML = """
[model]
name = "llama3"
flavor = "8B"
converters = ["quantize.linear.float8"]
[training]
local_batch_size = 1
seq_len = 8192
[parallelism]
data_parallel_shard_degree = -1
pipeline_parallel_microbatch_size = 2
[activation_checkpoint]
mode = "selective"
selective_ac_option = "op"
[compile]
enable = true
[quantize.linear.float8]
recipe_name = "rowwise"
"""
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
NANOTRON_YAML = """
model:
  dtype: bfloat16
  model_config:
    hidden_size: 2048
    hidden_act: silu
    num_hidden_layers: 24
    num_attention_heads: 32
    num_key_value_heads: 8
    intermediate_size: 4096
    vocab_size: 50257
optimizer: {zero_stage: 1, accumulate_grad_in_fp32: true}
parallelism: {dp: 16, tp: 4, pp: 1, tp_linear_async_communication: true}
tokens: {micro_batch_size: 4, batch_accumulation_per_replica: 16, sequence_length: 4096}
"""
TIMES = [9000.0, 1500.0, 1300.0, 1234.5, 1230.5, 1250.0, 1200.5]
STEADY = 1232.5  # the median of the last four


def put(folder: Path, name: str, text: str) -> Path:
    path = folder / name
    path.write_text(text, encoding="utf-8")
    return path


def one(path: Path, **options: Any) -> Run:
    (run,) = read(path, **options)
    return run


def told(run: Run, fields: dict[str, Any]) -> None:
    assert {name: getattr(run, name) for name in fields} == fields


# --- all of them -------------------------------------------------------------------


@examples(60)
@given(st.lists(st.floats(0.5, 5.0), min_size=4, max_size=60))
def test_the_speed_is_the_median_after_warm_up(readings: list[float]) -> None:
    left = readings[max(3, (len(readings) + 9) // 10) :]
    assert logs.steady(readings) == pytest.approx(median(left))


def test_a_log_too_short_or_out_of_memory_says_so(tmp_path: Path) -> None:
    short = put(tmp_path, "short.log", megatron(ARGUMENTS, TIMES[:3]))
    with pytest.raises(InstanceError, match="found 3 iterations with a time, expected"):
        read(short)
    none = megatron(ARGUMENTS, [])
    with pytest.raises(InstanceError, match="found 0 iterations"):
        read(put(tmp_path, "none.log", none))
    failed = none + "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate\n"
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
    other = put(tmp_path, "other.yaml", NANOTRON_YAML)
    with pytest.raises(InstanceError, match="a configuration of nanotron beside"):
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


# --- Megatron-LM -------------------------------------------------------------------


def test_a_log_of_megatron_is_the_run_it_was_written_from(tmp_path: Path) -> None:
    log = megatron(
        ARGUMENTS,
        TIMES,
        vocabulary=(128256, 128512),
        peaks=[(1000.25, 2000.5), (3000.75, 1500.0)],
    )
    run = one(put(tmp_path, "m.log", log), gpu="h100_80gb")
    told(run, LLAMA | LAYOUT | BATCH | {"zero": 1, "kind": "dense"})
    assert run.iteration_s == pytest.approx(STEADY / 1000)
    assert run.peak_allocated_mib == pytest.approx(3000.75)
    assert run.peak_reserved_mib == pytest.approx(2000.5)
    assert run.recompute == "full, block, 2 layers"
    assert run.precision == "bf16 mixed"
    assert run.overlap is not None
    assert "overlap_grad_reduce=True" in run.overlap
    assert run.framework == "Megatron-LM"


def test_ranks_and_a_restart_do_not_change_what_megatron_says(tmp_path: Path) -> None:
    log = megatron(ARGUMENTS, TIMES)
    plain = one(put(tmp_path, "plain.log", log))
    for prefix in ("[default0]:", "[rank7]:", "12: "):
        marked = "\r\n".join(prefix + line for line in log.split("\n"))
        assert one(put(tmp_path, "marked.log", marked)) == plain
    again = one(put(tmp_path, "again.log", log + log))
    assert again.iteration_s == pytest.approx(median((TIMES * 2)[3:]) / 1000)


def test_iterations_of_a_smaller_batch_do_not_count(tmp_path: Path) -> None:
    log = megatron(ARGUMENTS, [300.0] * 9 + TIMES, batches=[16] * 9 + [64] * len(TIMES))
    run = one(put(tmp_path, "m.log", log))
    assert run.iteration_s == pytest.approx(STEADY / 1000)
    told(run, BATCH)
    ramp = megatron(ARGUMENTS, TIMES, batches=[16] * len(TIMES))
    told(one(put(tmp_path, "ramp.log", ramp)), {"gbs": 16, "ga": 8})


@pytest.mark.parametrize(
    ("changes", "fields"),
    [
        ({"recompute_granularity": None}, {"recompute": "none"}),
        (
            {"recompute_method": "uniform", "recompute_num_layers": 1},
            {"recompute": "full"},
        ),
        (
            {"recompute_granularity": "selective", "recompute_modules": "['moe_act']"},
            {"recompute": "selective: moe_act"},
        ),
        ({"use_distributed_optimizer": False}, {"zero": 0}),
        (
            {
                "use_megatron_fsdp": True,
                "data_parallel_sharding_strategy": "optim_grads_params",
            },
            {"zero": 3},
        ),
        ({"deepspeed": True, "zero_stage": 2}, {"zero": 2}),
        ({"bf16": False, "fp16": True}, {"precision": "fp16 mixed"}),
        ({"bf16": False}, {"precision": "fp32"}),
        (
            {"fp8": "hybrid", "fp8_recipe": "tensorwise"},
            {"precision": "fp8 current scaling"},
        ),
        ({"fp8": "e4m3", "fp8_recipe": "mxfp8"}, {"precision": "mxfp8"}),
        ({"group_query_attention": False, "num_query_groups": 1}, {"kv_heads": 32}),
        (
            {"num_experts": 8, "moe_router_topk": 2, "moe_ffn_hidden_size": 1024},
            {"kind": "moe", "experts": 8, "experts_per_token": 2, "shared_experts": 0},
        ),
        (
            {
                "decoder_first_pipeline_num_layers": 5,
                "decoder_last_pipeline_num_layers": 5,
            },
            {"stage_layers": (5, 11, 11, 5)},
        ),
        ({"decoder_first_pipeline_num_layers": 2}, {"stage_layers": (2, 10, 10, 10)}),
    ],
)
def test_settings_of_megatron_in_our_words(
    tmp_path: Path, changes: dict[str, Any], fields: dict[str, Any]
) -> None:
    told(one(put(tmp_path, "m.log", megatron(ARGUMENTS | changes, TIMES))), fields)


def test_a_wrong_argument_is_named(tmp_path: Path) -> None:
    path = put(tmp_path, "m.log", megatron(ARGUMENTS | {"num_layers": "many"}, TIMES))
    with pytest.raises(InstanceError, match=r"layers \(line 2\): found \"many\", exp"):
        read(path)


# --- torchtitan --------------------------------------------------------------------


def test_a_log_of_torchtitan_is_the_run_it_was_written_from(tmp_path: Path) -> None:
    rates = [1000, 5000, 5700, 5762, 5758, 5800]
    log = torchtitan(MESH, rates, model=TITAN_MODEL, batch=(2, 16, 8192), mode="full")
    run = one(put(tmp_path, "t.log", log))
    told(run, LLAMA | {"dp": 8, "tp": 1, "pp": 1, "cp": 1, "gpus": 8, "vp": 1})
    told(run, {"mbs": 2, "gbs": 16, "ga": 1, "seq": 8192, "recompute": "full"})
    told(run, {"model": "llama3 8B", "gpu": "NVIDIA H100 80GB HBM3", "zero": None})
    assert run.tokens_per_s_gpu == pytest.approx(5762)
    assert run.peak_gib == pytest.approx(45)
    assert run.measured_s == pytest.approx(16 * 8192 / (5762 * 8))


def test_torchtitans_configuration_tells_the_rest(tmp_path: Path) -> None:
    log = put(tmp_path, "t.log", torchtitan(MESH, [5000] * 6, model=TITAN_MODEL))
    toml = put(tmp_path, "train.toml", TITAN_TOML)
    flags = put(
        tmp_path,
        "run.sh",
        "torchrun train.py --model.name llama3 --model.flavor=8B \\\n"
        "--model.converters quantize.linear.float8 --training.local-batch-size 1 "
        "--training.seq_len 8192 --activation_checkpoint.mode selective "
        "--activation_checkpoint.selective_ac_option op --compile.enable "
        "--parallelism.data_parallel_shard_degree -1 "
        "--quantize.linear.float8.recipe_name 'rowwise'\n",
    )
    run = one(log, configs=[toml])
    assert run == one(log, configs=[flags])
    assert run.precision == "float8 rowwise (in nn.Linear), bf16 elsewhere"
    told(run, {"zero": 3, "recompute": "selective, per op (torchtitan's policy)"})
    told(run, {"overlap": "torch.compile"})
    printed = torchtitan(
        MESH, [5000] * 6, config={"parallelism": {}, "compile": {"enable": True}}
    )
    told(one(put(tmp_path, "p.log", printed)), {"zero": 3, "overlap": "torch.compile"})


def test_a_pipeline_of_torchtitan_has_its_own_micro_batches(tmp_path: Path) -> None:
    mesh = MESH | {"pp": 2, "dp_shard": 4}
    log = put(tmp_path, "t.log", torchtitan(mesh, [5000] * 6, batch=(8, 32, 8192)))
    toml = put(tmp_path, "train.toml", TITAN_TOML)
    told(one(log), {"mbs": None, "ga": None, "gbs": 32})
    told(one(log, configs=[toml]), {"mbs": 2, "ga": 4, "zero": 2})
    # whole weights, gathered once, where a pipeline would gather them for each


def test_older_torchtitan_says_the_same_otherwise(tmp_path: Path) -> None:
    new = torchtitan(MESH | {"dp_shard": 4, "tp": 2}, [5000] * 6, model=TITAN_MODEL)
    mesh = new.index("Building device mesh")
    old = (
        new[:mesh]
        + "Building 2-D device mesh with ['dp_shard', 'tp'], [4, 2]\n"
        + "INFO - Building llama3 8B with TransformerModelArgs(_enforced='x', "
        "dim=4096, n_layers=32, n_heads=32, n_kv_heads=8, vocab_size=128256, "
        "multiple_of=1024, ffn_dim_multiplier=1.3, norm_eps=1e-05)\n"
        + new[new.index("[rank0]:[titan]", new.index("Building llama3")) :]
    )
    old = old.replace("CUDA capacity", "INFO - CUDA capacity")
    paths = put(tmp_path, "new.log", new), put(tmp_path, "old.log", old)
    wanted, found = (one(path).model_dump(exclude={"gpu"}) for path in paths)
    assert found == wanted


# --- DeepSpeed ---------------------------------------------------------------------


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
    told(run, {"offload": "optimizer", "overlap": "overlap_comm=True"})
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


# --- nanotron ----------------------------------------------------------------------

NANO = {
    "layers": 24,
    "hidden": 2048,
    "heads": 32,
    "kv_heads": 8,
    "intermediate": 4096,
    "gated": True,
    "vocabulary": 50257,
    "gpus": 64,
    "dp": 16,
    "tp": 4,
    "pp": 1,
    "cp": 1,
    "mbs": 4,
    "ga": 16,
    "gbs": 1024,
    "seq": 4096,
    "zero": 1,
    "recompute": "none",
    "precision": "bf16, fp32 gradient accumulation",
}
PRINTED = """\
Config(general=GeneralArgs(project='debug', run='tiny'),
       parallelism=ParallelismArgs(dp=16,
                                   pp=1,
                                   tp=4,
                                   pp_engine=<nanotron.OneForwardOneBackward object>,
                                   tp_mode=<TensorParallelLinearMode.ALL_REDUCE: 1>,
                                   tp_linear_async_communication=True,
                                   expert_parallel_size=1),
       model=ModelArgs(model_config=LlamaConfig(hidden_size=2048,
                                                hidden_act='silu',
                                                intermediate_size=4096,
                                                num_attention_heads=32,
                                                num_hidden_layers=24,
                                                num_key_value_heads=8,
                                                vocab_size=50257),
                       dtype=torch.bfloat16),
       tokens=TokensArgs(sequence_length=4096, micro_batch_size=4,
                         batch_accumulation_per_replica=16),
       optimizer=OptimizerArgs(zero_stage=1, accumulate_grad_in_fp32=True))
Model Config:
LlamaConfig(hidden_size=2048, vocab_size=50260)"""


@pytest.mark.parametrize(
    "name", ["elapsed_time_per_iteration_ms", "time_per_iteration_ms"]
)
def test_a_log_of_nanotron_is_the_run_it_was_written_from(
    tmp_path: Path, name: str
) -> None:
    log = nanotron(TIMES, start=(4, 16, 1024, 4096), name=name, peak=(13153.25, 14332))
    yaml = put(tmp_path, "config.yaml", NANOTRON_YAML)
    run = one(put(tmp_path, "n.log", log), configs=[yaml])
    told(run, NANO)
    assert run.iteration_s == pytest.approx(STEADY / 1000, rel=0.005)
    assert run.peak_allocated_mib == pytest.approx(13153.25)
    assert run.peak_reserved_mib == pytest.approx(14332)
    printed = nanotron(TIMES, name=name, printed=PRINTED)
    told(one(put(tmp_path, "p.log", printed)), NANO)


def test_nanotrons_table_of_iterations_agrees_with_its_log(tmp_path: Path) -> None:
    yaml = put(tmp_path, "config.yaml", NANOTRON_YAML)
    log = put(tmp_path, "n.log", nanotron(TIMES, peak=(100.5, 200.5)))
    rows = [
        {
            "iteration": i,
            "elapsed_time_per_iteration_ms": float(f"{ms:.3g}"),
            "lm_loss": 10.5,
            "peak_allocated_MiB": 100.5,
            "peak_reserved_MiB": 200.5,
        }
        for i, ms in enumerate(TIMES)
    ]
    table = put(tmp_path, "log_metrics_1.csv", as_csv(rows))
    wanted, found = one(log, configs=[yaml]), one(table, configs=[yaml])
    assert found.iteration_s == pytest.approx(wanted.iteration_s)
    assert found.model_copy(update={"iteration_s": wanted.iteration_s}) == wanted
    rows[4]["elapsed_time_per_iteration_ms"] = "slow"
    put(tmp_path, "log_metrics_1.csv", as_csv(rows))
    with pytest.raises(InstanceError, match="line 6, column elapsed_time_per_iterat"):
        read(table)


def test_nanotrons_benchmarks_are_a_run_a_row(tmp_path: Path) -> None:
    row = {
        "job_id": 1,
        "name": "a",
        "nodes": 8,
        "seq_len": 4096,
        "mbs": 4,
        "batch_accum": 16,
        "gbs": 1024,
        "tok/s/gpu": "23000.50",
        "Mem Res (GB)": "14.50",
        "dp": 16,
        "pp": 1,
        "tp": 4,
        "cp": 1,
        "ep": 1,
        "recompute_layer": "False",
        "hidden_size": 2048,
        "hidden_act": "silu",
        "num_layers": 24,
        "num_heads": 32,
        "num_kv_heads": 8,
        "vocab_size": 50257,
        "dtype": "torch.bfloat16",
        "zero_stage": 1,
        "accumulate_grad_in_fp32": "True",
    }
    path = put(tmp_path, "b.csv", as_csv([row, row | {"mbs": 8, "batch_accum": 8}]))
    first, second = read(path)
    told(first, {k: v for k, v in NANO.items() if k != "intermediate"})
    assert first.tokens_per_s_gpu == pytest.approx(23000.5)
    assert first.peak_gib == pytest.approx(14.5)
    assert second.mbs == 8
    put(tmp_path, "b.csv", as_csv([row | {"tok/s/gpu": "0.00"}]))
    with pytest.raises(InstanceError, match="column tok/s/gpu: found 0"):
        read(path)


@examples(40)
@given(st.floats(0.001, 1e11))
def test_nanotrons_numbers_are_read_to_three_digits(number: float) -> None:
    text = human(number)
    power = text[-1] if text[-1].isalpha() else ""
    digits = text.removesuffix(power)
    assert nanotron_number(digits, power) == pytest.approx(number, rel=0.0051)


# --- Sailor ------------------------------------------------------------------------

SAILOR = {
    "source_file": "N8/plan.json",
    "mbs": 8,
    "gbs": 512,
    "pp": 2,
    "dp": [4, 4],
    "tp": [4],
    "n_nodes": 8,
    "seq": 2048,
    "precision": "fp32",
    "optimizer": "Adam(W), ZeRO off",
    "measured_iteration_time_s": 2.25,
    "measured_max_mem_bytes_per_gpu": 2**34,
    "stage_layers": [12, 14],
}
SAILOR_MODEL = {"name": "OPT", "hidden": 1024, "heads": 16, "blocks": 24}


def test_sailors_runs_are_ours_with_one_degree_for_all_stages(tmp_path: Path) -> None:
    text = json.dumps({"model": SAILOR_MODEL, "runs": [SAILOR]})
    run = one(put(tmp_path, "s.json", text), gpu="GH200")
    told(run, {"gpus": 32, "dp": 4, "tp": 4, "pp": 2, "ga": 16, "zero": 0})
    told(run, {"stage_layers": (11, 13), "layers": 24, "gpu": "GH200"})
    assert run.measured_s == pytest.approx(2.25)
    assert run.measured_gib == pytest.approx(16)


@pytest.mark.parametrize(
    ("changes", "place"),
    [
        ({"dp": [4, 2]}, r"runs\[1\] \(N8/plan.json\): dp: found 4, 2, expected the s"),
        ({"tp": [4, 2]}, r"runs\[1\] \(N8/plan.json\): tp: found 4, 2"),
        ({"gbs": 500}, r"runs\[1\] .*: gbs: found 500, expected a multiple"),
        ({"stage_layers": [12, 13]}, r"runs\[1\] .*: stage_layers: found 25 layers"),
        ({"mbs": 0}, r"runs\[1\].mbs: found 0, expected"),
    ],
)
def test_a_run_of_sailor_that_has_no_form_of_ours_is_named(
    tmp_path: Path, changes: dict[str, Any], place: str
) -> None:
    text = json.dumps({"model": SAILOR_MODEL, "runs": [SAILOR, SAILOR | changes]})
    with pytest.raises(InstanceError, match=place):
        read(put(tmp_path, "s.json", text))
