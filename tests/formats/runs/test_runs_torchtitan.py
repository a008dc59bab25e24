"""Logs of torchtitan: the reader finds what the log was written from."""

from pathlib import Path

import pytest
from logs_by_hand import torchtitan
from reading_logs import LLAMA, one, put, told

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


def test_experts_and_latent_attention_of_torchtitans_models(tmp_path: Path) -> None:
    model = {
        "dim": 2048,
        "n_layers": 27,
        "n_heads": 16,
        "vocab_size": 102400,
        "inter_dim": 10944,
        "moe_inter_dim": 1408,
        "n_dense_layers": 1,
        "moe_args": {"num_experts": 64, "num_shared_experts": 2, "top_k": 6},
        "kv_lora_rank": 512,
        "v_head_dim": 128,
    }
    run = one(put(tmp_path, "t.log", torchtitan(MESH, [5000] * 6, model=model)))
    told(run, {"kind": "moe", "experts": 64, "experts_per_token": 6, "layers": 27})
    told(run, {"shared_experts": 2, "moe_intermediate": 1408, "intermediate": 10944})
    told(run, {"shape_notes": "MLA attention; first 1 layers dense", "head_dim": 128})
