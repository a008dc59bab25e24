"""Megatron-LM's arguments of a model and of how it is trained.

Names are those of `megatron/training/arguments.py` and of its configuration classes
(core_v0.13.0 to 0.20.0), without dashes. Data, tokenizer, rates of the optimiser and
checkpoints are the user's; an optimiser other than Adam is told by its name (Muon since
core 0.16), and where its states lie in the memory of hosts. Windows and sinks are core
0.15's.
Where the instance has no `model.architecture`, norms, positions, biases and dropout are
left to the user, too: Megatron's own defaults are GPT-2's.
"""

from itertools import groupby

from ...problems.training_plan.models import has_sinks
from ...schema import CostSettings, Instance, ModelSpec
from ...schema.architecture import Architecture, RopeScaling
from ...schema.layers import EXPERTS, WINDOW
from ...schema.widths import words
from ..documents import Document


def fields(data: Instance, degree: int) -> Document:
    """Arguments by name, True for a flag; `degree` is the largest in the plan."""
    model, workload = data.model, data.workload
    made: Document = {
        "num_layers": model.layers,
        "hidden_size": model.hidden,
        "num_attention_heads": model.heads,
        "seq_length": workload.sequence_length,
        "max_position_embeddings": workload.sequence_length,
        "global_batch_size": workload.global_batch,
    }
    made |= words("megatron", workload.costs.memory.precision)
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
    if workload.costs.compute.recompute == "full":
        made |= {
            "recompute_granularity": "full",
            "recompute_method": "uniform",
            "recompute_num_layers": 1,
        }
    if workload.costs.compute.recompute == "selective":
        made["recompute_granularity"] = "selective"
    made |= _optimiser(workload.costs)
    # Megatron demands it for experts with tensor parallelism.
    if degree > 1 and (workload.costs.compute.sequence_parallel or model.experts):
        made["sequence_parallel"] = True
    if model.experts:
        made |= _experts(data)
    if model.vocabulary and model.vocabulary % degree == 0:
        made |= {"vocab_size": model.vocabulary, "make_vocab_size_divisible_by": 1}
    if model.qk_norm:
        made["qk_layernorm"] = True
    if has_sinks(model):
        made["softmax_type"] = "learnable"
    made |= _windows(data)
    if model.architecture is not None:
        made |= architecture(model.architecture, workload.sequence_length)
    return made


def _optimiser(costs: CostSettings) -> Document:
    """Return the optimiser, and where its states are; Adam is Megatron's default."""
    made: Document = {}
    if costs.updates.zero:
        made["use_distributed_optimizer"] = True
    if costs.updates.zero_groups > 1:
        made["num_distributed_optimizer_instances"] = costs.updates.zero_groups
    if costs.memory.optimiser != "adamw":
        made["optimizer"] = costs.memory.optimiser
    if costs.memory.hosts_update:
        made |= {
            "optimizer_cpu_offload": True,
            "optimizer_offload_fraction": 1.0,
            "use_precision_aware_optimizer": True,  # which it goes with
        }
    return made


def architecture(told: Architecture, length: int) -> Document:
    """Arguments of what the shape does not tell, for sequences of that length."""
    made: Document = {
        "normalization": "RMSNorm" if told.normalization == "rms" else "LayerNorm",
        "norm_epsilon": told.norm_epsilon,
        "hidden_dropout": told.dropout,
        "attention_dropout": told.attention_dropout,
        "max_position_embeddings": told.positions_for(length),
    }
    if told.rope_base is not None:
        made |= {"position_embedding_type": "rope", "rotary_base": int(told.rope_base)}
        made |= _rope_scaling(told.rope_scaling)
    else:
        made["position_embedding_type"] = "learned_absolute"
    if not told.bias:
        made["disable_bias_linear"] = True
        if told.qkv_bias:
            made["add_qkv_bias"] = True
    if told.router is not None:
        made["moe_router_load_balancing_type"] = "aux_loss"
        made["moe_aux_loss_coeff"] = told.router.auxiliary_loss
        if not told.router.normalised:
            made["moe_router_pre_softmax"] = True
    return made


def _rope_scaling(told: RopeScaling | None) -> Document:
    if told is None:
        return {}
    if told.kind == "linear":
        return {"rotary_seq_len_interpolation_factor": int(told.factor)}
    return {"use_rope_scaling": True, "rope_scaling_factor": told.factor}


def untold(data: Instance) -> list[str]:
    """Return the arguments that the user must add, in words."""
    if data.model.architecture is not None:
        return []
    return [
        "normalization, positions, biases, dropout, activations: add --normalization, "
        "--position-embedding-type, --disable-bias-linear, --quick-geglu and their "
        "like, or assemble the instance from the config.json of a family that is told "
        "whole"
    ]


def _experts(data: Instance) -> Document:
    model = data.model
    width = model.expert_intermediate or model.intermediate or 4 * model.hidden
    made: Document = {
        "num_experts": model.experts,
        "moe_router_topk": model.active_experts,
        "moe_ffn_hidden_size": width,
    }
    if model.shared_experts:
        made["moe_shared_expert_intermediate_size"] = model.shared_experts * width
    if 0 in (sparse := experts_of(model)):
        made["moe_layer_freq"] = pattern(sparse)
    return made


def _windows(data: Instance) -> Document:
    """Return the window of those layers that see one, since core 0.15.

    Megatron counts the tokens before a token, the instance this one, too.
    """
    model = data.model
    seen = windows_of(model, data.workload.sequence_length)
    if model.window is None or 1 not in seen:
        return {}
    made: Document = {"window_size": f"{model.window - 1},0"}
    if 0 in seen:
        made["window_attn_skip_freq"] = pattern(seen)
    return made


def experts_of(model: ModelSpec) -> list[int]:
    """Return 1 for each layer that has experts, 0 for each that has none."""
    return [int(EXPERTS in kind) for kind in model.kinds]


def windows_of(model: ModelSpec, length: int) -> list[int]:
    """Return 1 for each layer whose attention sees less than the whole sequence."""
    less = (model.window or 0) < length
    return [int(less and WINDOW in kind) for kind in model.kinds]


def pattern(bits: list[int]) -> str:
    """Return a list of layers as Megatron reads one, `([0]*3+[1]*29)`, `([1,0]*12)`."""
    for period in range(2, len(bits) // 2 + 1):
        times, rest = divmod(len(bits), period)
        if not rest and bits[:period] * times == bits and len(set(bits)) > 1:
            return f"([{','.join(map(str, bits[:period]))}]*{times})"
    runs = ((bit, len(list(run))) for bit, run in groupby(bits))
    return "(" + "+".join(f"[{bit}]*{count}" for bit, count in runs) + ")"
