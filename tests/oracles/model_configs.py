"""Configurations of models that many tests start from, as Hugging Face has them."""

import json
from typing import Any

from exporter_plans import instance

from hetopt.catalogue.architectures import from_config
from hetopt.schema import Instance

LLAMA_3_8B = {
    "model_type": "llama",
    "hidden_size": 4096,
    "num_hidden_layers": 32,
    "num_attention_heads": 32,
    "num_key_value_heads": 8,
    "intermediate_size": 14336,
    "vocab_size": 128256,
    "hidden_act": "silu",
}
#: Few layers, each large: the search of plans on many GPUs ends by itself.
SEVENTY_BILLION = {
    "model_type": "llama",
    "hidden_size": 32768,
    "num_hidden_layers": 6,
    "num_attention_heads": 256,
    "num_key_value_heads": 32,
    "intermediate_size": 114688,
    "vocab_size": 128256,
    "hidden_act": "silu",
    "tie_word_embeddings": False,
    "rms_norm_eps": 1e-05,
    "rope_theta": 500000.0,
    "max_position_embeddings": 8192,
}
LLAMA_31 = {
    **LLAMA_3_8B,
    "num_hidden_layers": 12,
    "rms_norm_eps": 1e-5,
    "rope_theta": 500000.0,
    "max_position_embeddings": 131072,
    "rope_scaling": {
        "rope_type": "llama3",
        "factor": 8.0,
        "low_freq_factor": 1.0,
        "high_freq_factor": 4.0,
        "original_max_position_embeddings": 8192,
    },
}
MIXTRAL = {
    **LLAMA_3_8B,
    "model_type": "mixtral",
    "num_hidden_layers": 12,
    "vocab_size": 32000,
    "num_local_experts": 8,
    "num_experts_per_tok": 2,
    "router_aux_loss_coef": 0.02,
}
QWEN = {**LLAMA_3_8B, "model_type": "qwen2", "num_hidden_layers": 12}
QWEN_3 = {**LLAMA_3_8B, "model_type": "qwen3", "num_hidden_layers": 12, "head_dim": 128}
GPT = {
    "model_type": "gpt2",
    "n_embd": 768,
    "n_layer": 12,
    "n_head": 12,
    "n_positions": 1024,
    "vocab_size": 50304,
}


def made_of(config: dict[str, Any], costs: dict[str, Any] | None = None) -> Instance:
    """The machines of the other tests with the model of a configuration."""
    tree = json.loads(instance(costs=costs).model_dump_json())
    tree["model"] = json.loads(from_config(config, "m").model_dump_json())
    for gpu in tree["cluster"]["gpus"].values():
        gpu["memory_gib"] = 1 << 16
    return Instance.model_validate_json(json.dumps(tree))
