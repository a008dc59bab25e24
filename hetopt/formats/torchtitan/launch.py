"""torchtitan: a configuration in Python, and in TOML for releases that read it.

`hetopt_plan.py` has a function `plan`, for `--module hetopt_plan --config plan`: it
takes the user's configuration (model, data, optimiser) and puts the plan into it,
by the names that the installed release has (torchtitan/config). That is 0.3.0 and
later; `plan.toml` is for releases up to 0.2.2 (`--job.config_file`). Newer releases
capture CUDA graphs unless told not to, and refuse that of pipelines.

A model of Llama 3's kind (RMSNorm, rope, gated MLP, no biases, no experts) is told
whole to these: the configuration's own is given its shape. Any other is the user's, by
BASE_CONFIG, whose model must have as many layers, as is that of older releases;
families that torchtitan has not are refused before.

Replicas are FSDP's: torchtitan refuses to replicate a model that it also cuts. So the
states are divided among them as in ZeRO 2, or 3 where the instance says so, and need
no more memory than the judge counts; in groups that are replicated (HSDP) where a plan
has them, `data_parallel_replicate_degree` x `data_parallel_shard_degree`.

Weights that are gathered anew for every micro-batch are `fsdp_reshard_after_forward =
"always"`, those that are kept whole meanwhile "never" (`exporting.sharding`). Its mesh
is [pp, dp, tp]. A schedule needs as many micro-batches as stages, or more
(torch/distributed/pipelining/schedules.py).
"""

import json
import os

from ...plans import Pipeline, TrainingPlan
from ...problems.training_plan.models import like_llama
from ...problems.training_plan.shapes import normal
from ...schema import Instance, ModelSpec
from ...text.documents import Document
from ..contract import Held
from ..exporting.launching import ranks, torchruns
from ..exporting.sharding import refusals, reshards
from . import module

HELD = Held("torchtitan", "0.2.2", ("0.2.2", "0.3.0"), "torchtitan")

__all__ = ["OPTIONS", "export", "refusals"]

MODULE, TOML, LAUNCH = "hetopt_plan.py", "plan.toml", "launch.sh"
OPTIONS: Document = {"init_from": str}
_BASE = "torchtitan.models.llama3.config_registry:llama3_8b"
_FIRST, _LAST = ["tok_embeddings"], ["norm", "output"]
_ABOUT = """\
# BASE_CONFIG names the rest of the configuration (see hetopt_plan.py). With CONFIG=toml
# plan.toml is used instead, and --model.flavor names the model. Further arguments are
# passed on.
"""
_SETUP = """\
if [ "${CONFIG:-}" = toml ]; then
  run="--no-python env PYTHONPATH=.:\\"\\${PYTHONPATH:-}\\" \
python3 -m torchtitan.train --job.config_file plan.toml ${*@Q}"
else
  base="$(printf %q "${BASE_CONFIG:@BASE@}")"
  run="--no-python env BASE_CONFIG=$base PYTHONPATH=.:\\"\\${PYTHONPATH:-}\\" \
python3 -m torchtitan.train --module hetopt_plan --config plan ${*@Q}"
fi
"""


def export(
    data: Instance, plan: TrainingPlan, *, init_from: str | None = None
) -> dict[str, str]:
    """`hetopt_plan.py`, `plan.toml`, `launch.sh`.

    `init_from` is a folder of Hugging Face weights, which torchtitan reads itself.
    """
    pipeline = normal(plan).pipelines[0]
    told = _job(data, pipeline, "always" if reshards(data, plan) else "never")
    if init_from is not None:
        told["weights"] = os.path.abspath(init_from)
    literal = json.dumps(told, indent=4)
    base = "-" + _BASE if "model" in told else "?"
    setup = _SETUP.replace("@BASE@", base)
    return {
        MODULE: module.MODULE.replace("@PLAN@", literal),
        TOML: _toml(told),
        LAUNCH: torchruns(_ABOUT, setup, ranks(pipeline)),
    }


def _model(model: ModelSpec, length: int) -> Document:
    """The shape of a model of Llama 3's kind, on sequences of `length`; else nothing.

    By the names of torchtitan's arguments; what is absent is not so.
    """
    of = model.architecture
    if of is None or not like_llama(model):
        return {}
    made: Document = {
        "dim": model.hidden,
        "n_layers": model.layers,
        "n_heads": model.heads,
        "n_kv_heads": model.kv_heads or model.heads,
        "head_dim": model.attention_width // model.heads,
        "hidden_dim": model.mlp_width,
        "vocab_size": model.vocabulary,
        "norm_eps": of.norm_epsilon,
        "rope_theta": of.rope_base,
        "max_seq_len": of.positions_for(length),
    }
    if (scaling := of.rope_scaling) is not None:
        made["rope_scaling"] = {
            "scaling": "llama",
            "scaling_factor": scaling.factor,
            "low_freq_factor": scaling.low_freq_factor,
            "high_freq_factor": scaling.high_freq_factor,
            "original_max_position_embeddings": scaling.original_length,
        }
    if model.tied_embeddings:
        made["tied"] = 1
    return {"model": made}


def _job(data: Instance, pipeline: Pipeline, reshard: str) -> Document:
    replicas = pipeline.stages[0].replicas
    costs = data.workload.costs
    groups = costs.updates.zero_groups
    return {
        **_model(data.model, data.workload.sequence_length),
        "layers": data.model.layers,
        "pipeline_parallel_degree": len(pipeline.stages),
        "tensor_parallel_degree": replicas[0].degree,
        "replicas": len(replicas),
        **({"groups": groups} if groups > 1 else {}),
        "schedule": "GPipe" if costs.schedule.in_flight == "gpipe" else "1F1B",
        "activation_checkpoint": costs.compute.recompute,
        "reshard": reshard,
        "micro_batches": pipeline.micro_batches,
        "micro_batch_size": replicas[0].samples,
        "sequence_length": data.workload.sequence_length,
        "global_batch": data.workload.global_batch,
        "module_fqns_per_model_part": [
            [f"layers.{layer}" for layer in stage.span] for stage in pipeline.stages
        ],
    }


def _toml(told: Document) -> str:
    stages, groups = told["pipeline_parallel_degree"], told.get("groups", 1)
    parts = told["module_fqns_per_model_part"]
    local = told["micro_batch_size"] * (told["micro_batches"] if stages > 1 else 1)
    sections: dict[str, Document] = {
        "training": {
            "local_batch_size": local,
            "global_batch_size": told["global_batch"],
            "seq_len": told["sequence_length"],
        },
        "parallelism": {
            "data_parallel_replicate_degree": groups,
            "data_parallel_shard_degree": told["replicas"] // groups,
            "fsdp_reshard_after_forward": told["reshard"],
            "tensor_parallel_degree": told["tensor_parallel_degree"],
            "pipeline_parallel_degree": stages,
        },
        "activation_checkpoint": {"mode": told["activation_checkpoint"]},
    }
    if stages > 1:
        around = [[*_FIRST, *parts[0]], *parts[1:-1], [*parts[-1], *_LAST]]
        sections["parallelism"] |= {
            "pipeline_parallel_schedule": told["schedule"],
            "pipeline_parallel_microbatch_size": told["micro_batch_size"],
            "module_fqns_per_model_part": around,
        }
    if "weights" in told:
        sections["model"] = {"hf_assets_path": told["weights"]}
        sections["checkpoint"] = {
            "enable": True,
            "initial_load_path": told["weights"],
            "initial_load_in_hf": True,
        }
    lines = ["# A plan of hetopt for releases of torchtitan that read TOML"]
    for name, fields in sections.items():
        # Numbers, texts and lists of texts are written alike in TOML and in JSON.
        lines += ["", f"[{name}]"]
        lines += [f"{key} = {json.dumps(value)}" for key, value in fields.items()]
    return "\n".join(lines) + "\n"
