"""Galvatron: its parallel strategy, layer by layer, and a torchrun for each host.

`galvatron_config.json` is what `galvatron_config_path` names: lists of one number a
layer, separated by commas (galvatron/utils/config_utils.py). Every stage has as many
GPUs; within it each layer has its own tensor-parallel degree, and the GPUs left are
replicas. Ranks are in the order of stages, replicas, tensor-parallel ranks
(`tp_consecutive_flags` 1). A global batch is cut into `chunks` micro-batches; embedding
and head are cut alike (`vtp`). Its training script takes `train_dist.yaml`, a
configuration for Hydra, and `name=value` words that change it; up to 2.4.0 it took
flags instead.
"""

import json

from ...plans import Pipeline, TrainingPlan
from ...problems.training_plan.shapes import normal
from ...schema import Instance
from ...schema.architecture import Architecture
from ...schema.widths import words
from ...text.parsing import yaml_text
from ..contract import Held
from ..documents import Document
from ..exporting.launching import ranks, torchruns

HELD = Held("Hetu-Galvatron", "2.0", ("2.4.0", "main (cea12ff)"), "hetu-galvatron")

CONFIG, TRAIN, LAUNCH = "galvatron_config.json", "train_dist.yaml", "launch.sh"
_REPLICAS = {0: "ddp", 2: "zero2", 3: "zero3"}
_ABOUT = """\
# TRAIN is the path of the model's training script; further arguments are passed on:
# words as runtime.data.data_path=CORPUS. With RELEASE=2.4 the script is started as
# releases up to 2.4.0 want it, and the model is told by flags.
"""
_SETUP = """\
train="$(printf %q "${TRAIN:-train_dist.py}")"
plan="$(printf %q "$PWD/galvatron_config.json")"
if [ "${RELEASE:-}" = 2.4 ]; then
  run="$train --galvatron_config_path $plan --reduce_in_fp32 ${*@Q}"
else
  run="$train ./train_dist.yaml runtime.parallel.galvatron_config_path=$plan ${*@Q}"
fi
"""


def export(data: Instance, plan: TrainingPlan) -> dict[str, str]:
    """`galvatron_config.json` and `launch.sh`."""
    pipeline = normal(plan).pipelines[0]
    layers = data.model.layers
    costs = data.workload.costs
    degrees = [
        stage.replicas[0].degree for stage in pipeline.stages for _ in stage.span
    ]
    config = {
        "pp_deg": len(pipeline.stages),
        "tp_sizes_enc": _list(degrees),
        "tp_consecutive_flags": _list([1] * layers),
        "dp_types_enc": _list([0] * layers),
        "use_sp": _list([0] * layers),
        "cp_sizes_enc": _list([1] * layers),
        "checkpoint": _list([int(costs.compute.recompute == "full")] * layers),
        "global_bsz": data.workload.global_batch,
        "chunks": pipeline.micro_batches,
        "pp_division": _list([len(stage.span) for stage in pipeline.stages]),
        "pipeline_type": "gpipe"
        if costs.schedule.in_flight == "gpipe"
        else "pipedream_flush",
        "default_dp_type": _REPLICAS[costs.updates.zero],
        "vtp": degrees[0],
        "vsp": 0,
    }
    if data.model.experts:
        config["ep_sizes_enc"] = _list([1] * layers)
        config["tp_of_ep_sizes_enc"] = _list(degrees)
    return {
        CONFIG: json.dumps(config, indent=1) + "\n",
        TRAIN: yaml_text({"runtime": _runtime(data, pipeline)}, width=88),
        LAUNCH: torchruns(_ABOUT, _SETUP, ranks(pipeline)),
    }


def _list(numbers: list[int]) -> str:
    return ",".join(map(str, numbers))


def _runtime(data: Instance, pipeline: Pipeline) -> Document:
    """Return the arguments of a run by section (galvatron/core/runtime/args_schema.py).

    Data are the user's: what stands here of them is empty.
    """
    costs, length = data.workload.costs, data.workload.sequence_length
    return {
        "parallel": {
            "galvatron_config_path": CONFIG,
            **words("galvatron", costs.memory.precision),
        },
        "model": _model(data),
        "train": {
            "global_batch_size": data.workload.global_batch,
            "chunks": pipeline.micro_batches,
            "seq_length": length,
            "sequence_parallel": costs.compute.sequence_parallel,
            "use_flash_attn": costs.compute.flash,
            "train_iters": 1000,
        },
        "data": {"data_path": None, "tokenizer_type": None, "tokenizer_model": None},
        "ckpt": {"load": None, "save": None, "save_interval": None},
    }


def _model(data: Instance) -> Document:
    model = data.model
    told: Document = {
        "model_size": "planned",
        "num_layers": model.layers,
        "hidden_size": model.hidden,
        "num_attention_heads": model.heads,
        "num_query_groups": model.kv_heads or model.heads,
        "ffn_hidden_size": model.mlp_width,
        "vocab_size": model.vocabulary,
        "gated_linear_unit": model.gated,
        "untie_embeddings_and_output_weights": not model.tied_embeddings,
    }
    if model.head_dim is not None:
        told["kv_channels"] = model.head_dim
    if model.experts:
        told |= {
            "is_moe_model": True,
            "num_moe_experts": model.experts,
            "moe_router_topk": model.active_experts,
            "moe_ffn_hidden_size": model.expert_intermediate or model.mlp_width,
        }
    if model.architecture is not None:
        told |= _architecture(model.architecture)
    return told


def _architecture(of: Architecture) -> Document:
    """Return what the shape does not tell; nothing scales rotary positions here."""
    functions = {"gelu_tanh": "gelu"}
    told: Document = {
        "normalization": "RMSNorm" if of.normalization == "rms" else "LayerNorm",
        "norm_epsilon": of.norm_epsilon,
        "layernorm_epsilon": of.norm_epsilon,
        "activation_func": "torch.nn.functional."
        + functions.get(of.activation, of.activation),
        "add_bias_linear": of.bias,
        "add_qkv_bias": of.qkv_bias and not of.bias,
        "qk_layernorm": of.query_key_norm,
        "hidden_dropout": of.dropout,
        "attention_dropout": of.attention_dropout,
        "make_vocab_size_divisible_by": 1,
        "position_embedding_type": "learned_absolute",
    }
    if of.rope_base is not None:
        told |= {"position_embedding_type": "rope", "rotary_base": int(of.rope_base)}
    if of.router is not None:
        told |= {
            "moe_aux_loss_coeff": of.router.auxiliary_loss,
            "moe_router_pre_softmax": not of.router.normalised,
        }
    return told
