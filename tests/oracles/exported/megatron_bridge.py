"""Megatron-Bridge's files: Megatron's rules of the plan that the settings tell."""

import json
from typing import Any

from hetopt.plans import TrainingPlan

from . import megatron

SETTINGS, LAUNCH = "settings.json", "launch.sh"
_WORDS = {
    "tensor_model_parallel_size": "tensor-model-parallel-size",
    "pipeline_model_parallel_size": "pipeline-model-parallel-size",
    "context_parallel_size": "context-parallel-size",
    "num_layers": "num-layers",
    "hidden_size": "hidden-size",
    "num_attention_heads": "num-attention-heads",
    "num_query_groups": "num-query-groups",
    "kv_channels": "kv-channels",
    "num_moe_experts": "num-experts",
    "sequence_parallel": "sequence-parallel",
    "pipeline_model_parallel_layout": "pipeline-model-parallel-layout",
    "global_batch_size": "global-batch-size",
    "micro_batch_size": "micro-batch-size",
}


def _as_megatron(files: dict[str, str]) -> dict[str, str]:
    told: dict[str, Any] = json.loads(files[SETTINGS])
    lines = [
        f"--{_WORDS[name]}" + ("" if value is True else f" '{value}'")
        for name, value in {**told["model"], **told["train"]}.items()
        if name in _WORDS
    ]
    return {megatron.ARGUMENTS: "\n".join(lines), megatron.LAUNCH: files[LAUNCH]}


def validate(files: dict[str, str]) -> list[str]:
    """Rules that the files break: Megatron's, a program, one length everywhere."""
    compile(files["recipe.py"], "recipe.py", "exec")
    told = json.loads(files[SETTINGS])
    lengths = {told[section]["seq_length"] for section in ("model", "dataset")}
    broken = [] if len(lengths) == 1 else [f"sequences of {sorted(lengths)} tokens"]
    return broken + megatron.validate(_as_megatron(files))


def read(files: dict[str, str]) -> TrainingPlan:
    """The plan that it would run: one pipeline, replicas side by side."""
    return megatron.read(_as_megatron(files))
