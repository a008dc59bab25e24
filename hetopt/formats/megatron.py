"""Megatron-LM: its arguments, the layout of the pipeline, and a torchrun for each host.

Stage s owns the ranks [s W/P, (s + 1) W/P), in the order tp-cp-ep-dp-pp. `launch.sh`
starts one torchrun for every run of neighbouring ranks on a host, in the order of the
ranks, so a host may take part in stages that are not neighbours. Uneven stages are told
by `--pipeline-model-parallel-layout` (megatron/core/transformer/
pipeline_parallel_layer_layout.py); where they suffice, the arguments of older releases
stand beside it as a comment. Equal stages need neither.
"""

import shlex
from typing import Any

from ..errors import escaped
from ..plans import TrainingPlan
from ..problems.training_plan.shapes import normal
from ..schema import Instance
from .exporting.launching import ranks, torchruns

ARGUMENTS, LAUNCH = "arguments.txt", "launch.sh"
_ABOUT = """\
# PRETRAIN is the path of pretrain_gpt.py; further arguments (data, tokenizer,
# optimiser) are passed on.
"""
_SETUP = """\
arguments="$(grep -v '^#' arguments.txt | tr '\\n' ' ')${*@Q}"
run="$(printf %q "${PRETRAIN:-pretrain_gpt.py}") $arguments"
"""


def export(data: Instance, plan: TrainingPlan) -> dict[str, str]:
    """`arguments.txt`, one argument a line, and `launch.sh`."""
    pipeline = normal(plan).pipelines[0]
    replica = pipeline.stages[0].replicas[0]
    layers = [len(stage.span) for stage in pipeline.stages]
    given = {
        "tensor_model_parallel_size": replica.degree,
        "pipeline_model_parallel_size": len(layers),
        "micro_batch_size": replica.samples,
        **fields(data, replica.degree),
    }
    lines = [f"# {escaped(data.model.name)}, a plan of hetopt for Megatron-LM"]
    for name, value in given.items():
        option = "--" + name.replace("_", "-")
        lines.append(option if value is True else f"{option} {shlex.quote(str(value))}")
    if len(set(layers)) > 1:
        lines += _older(layers)
        layout = shlex.quote(layout_of(layers))
        lines.append(f"--pipeline-model-parallel-layout {layout}")
    return {
        ARGUMENTS: "\n".join(lines) + "\n",
        LAUNCH: torchruns(_ABOUT, _SETUP, ranks(pipeline)),
    }


def layout_of(layers: list[int]) -> str:
    """The layout of stages with these numbers of layers, `Et*6|t*10|t*4L`."""
    parts = [f"t*{count}" if count > 1 else "t" for count in layers]
    return "E" + "|".join(parts) + "L"


def _older(layers: list[int]) -> list[str]:
    if len(set(layers[1:-1])) > 1 or len(layers) < 2:
        return []
    return [
        "# before the layout there were, instead of it: "
        f"--decoder-first-pipeline-num-layers {layers[0]} "
        f"--decoder-last-pipeline-num-layers {layers[-1]}"
    ]


# --- the model and its workload ---------------------------------------------------


def fields(data: Instance, degree: int) -> dict[str, Any]:
    """Arguments by name, True for a flag; `degree` is the largest in the plan.

    Names are those of `megatron/training/arguments.py`, without dashes. Data,
    tokenizer, optimiser and checkpoints are the user's.
    """
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
        made["fp16" if workload.costs.precision == "fp16_mixed" else "bf16"] = True
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
