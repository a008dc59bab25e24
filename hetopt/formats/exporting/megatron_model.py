"""A model and its workload in the words of Megatron-LM's arguments.

Names are those of `megatron/training/arguments.py`, without dashes. Data, tokenizer,
optimiser and checkpoints are the user's.
"""

from typing import Any

from ...schema import Instance
from .shapes import Feature

# Settings of the instance that these arguments tell; further ZeRO they do not know.
SETTINGS = {Feature.ZERO_1, Feature.SELECTIVE, Feature.SINGLE_PRECISION}


def fields(data: Instance, degree: int) -> dict[str, Any]:
    """Arguments by name, True for a flag; `degree` is the largest in the plan."""
    model, workload = data.model, data.workload
    made: dict[str, Any] = {
        "num_layers": model.layers,
        "hidden_size": model.hidden,
        "num_attention_heads": model.heads,
        "seq_length": workload.sequence_length,
        "max_position_embeddings": workload.sequence_length,
        "global_batch_size": workload.global_batch,
    }
    if workload.costs.precision != "fp32":
        made["bf16"] = True
    if model.kv_heads is not None and model.kv_heads != model.heads:
        made |= {"group_query_attention": True, "num_query_groups": model.kv_heads}
    if model.head_dim is not None:
        made["kv_channels"] = model.head_dim
    if model.intermediate is not None:
        made["ffn_hidden_size"] = model.intermediate
    if model.gated:
        made["swiglu"] = True
    if not model.tied_embeddings:
        made["untie_embeddings_and_output_weights"] = True
    if workload.costs.recompute == "full":
        made |= {
            "recompute_granularity": "full",
            "recompute_method": "uniform",
            "recompute_num_layers": 1,
        }
    if workload.costs.recompute == "selective":
        made["recompute_granularity"] = "selective"
    if workload.costs.zero:
        made["use_distributed_optimizer"] = True
    # Megatron demands it for experts with tensor parallelism.
    if degree > 1 and (workload.costs.sequence_parallel or model.experts):
        made["sequence_parallel"] = True
    if model.experts:
        made |= _experts(data)
    return made


def _experts(data: Instance) -> dict[str, Any]:
    model = data.model
    width = model.expert_intermediate or model.intermediate or 4 * model.hidden
    made: dict[str, Any] = {
        "num_experts": model.experts,
        "moe_router_topk": model.active_experts,
        "moe_ffn_hidden_size": width,
    }
    if model.shared_experts:
        made["moe_shared_expert_intermediate_size"] = model.shared_experts * width
    if model.dense_layers:
        sparse = model.layers - model.dense_layers
        made["moe_layer_freq"] = f"([0]*{model.dense_layers}+[1]*{sparse})"
    return made
