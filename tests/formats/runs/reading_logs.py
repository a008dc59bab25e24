"""What tests of logs share: a model, times of iterations, and how a file is read."""

from pathlib import Path
from typing import Any

from hetopt.costs.runs.rows import Run
from hetopt.formats.runs import read

LLAMA = {
    "layers": 32,
    "hidden": 4096,
    "heads": 32,
    "kv_heads": 8,
    "intermediate": 14336,
    "gated": True,
    "vocabulary": 128256,
}
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
