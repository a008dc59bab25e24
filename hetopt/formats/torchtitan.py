"""torchtitan: a configuration in Python, and in TOML for releases that read it.

`hetopt_plan.py` has a function `plan`, for `--module hetopt_plan --config plan`: it
takes the user's configuration (model, data, optimiser) and puts the plan into it,
by the names that the installed release has (torchtitan/config). That is 0.3.0 and
later; `plan.toml` is for releases up to 0.2.2 (`--job.config_file`). Newer releases
capture CUDA graphs unless told not to, and refuse that of pipelines.

Replicas are FSDP's: torchtitan refuses to replicate a model that it also cuts. So the
states are divided among them as in ZeRO 2, or 3 where the instance says so, and need
no more memory than the judge counts. With ZeRO 3 the judge prices weights that are
gathered once an iteration for each of the two passes. With one micro-batch that is
`fsdp_reshard_after_forward = "always"`, which gathers them anew for every one; with
more it is "never", which keeps them whole meanwhile: a plan whose weights do not fit
whole is refused. Its mesh is [pp, dp, tp]. A schedule needs as many
micro-batches as stages, or more (torch/distributed/pipelining/schedules.py).
"""

import json
from typing import Any

from ..costs import under
from ..plans import Pipeline, TrainingPlan
from ..problems import training_plan
from ..problems.training_plan.shapes import normal
from ..schema import Instance
from .exporting.launching import ranks, torchruns

MODULE, TOML, LAUNCH = "hetopt_plan.py", "plan.toml", "launch.sh"
_FIRST, _LAST = ["tok_embeddings"], ["norm", "output"]
_MODULE = '''\
"""A plan of hetopt for torchtitan: `--module hetopt_plan --config plan`.

BASE_CONFIG names the function that makes the rest of the configuration, such as
torchtitan.models.llama3.config_registry:llama3_8b.
"""

import os
from importlib import import_module

PLAN = {plan}


def plan():
    """The configuration that BASE_CONFIG names, with the plan put in."""
    module, _, name = os.environ["BASE_CONFIG"].partition(":")
    config = getattr(import_module(module), name)()
    _parallelism(config.parallelism)
    size, steps = PLAN["micro_batch_size"], PLAN["micro_batches"]
    length, batch = PLAN["sequence_length"], PLAN["global_batch"]
    stages = len(PLAN["module_fqns_per_model_part"])
    put(
        config.training,
        {{
            "local_batch_size": size * (steps if stages > 1 else 1),
            "global_batch_size": batch,
            "seq_len": length,
        }},
        {{
            "num_tokens_per_microbatch_per_dp_rank": size * length,
            "num_tokens_per_train_step": batch * length,
            "max_context_length": length,
        }},
    )
    if stages > 1 and hasattr(config.training, "disable_cuda_graphs"):
        config.training.disable_cuda_graphs = True
    _recomputation(config)
    return config


def _recomputation(config):
    mode = PLAN["activation_checkpoint"]
    if hasattr(config.activation_checkpoint, "mode"):
        config.activation_checkpoint.mode = mode
        return
    from torchtitan.distributed import activation_checkpoint as policies

    kinds = {{"full": "FullAC", "selective": "SelectiveAC"}}
    config.activation_checkpoint = (
        getattr(policies, kinds[mode]).Config() if mode in kinds else None
    )


def _parallelism(section):
    for name in ("pipeline", "tensor"):
        put(section, {{f"{{name}}_parallel_degree": PLAN[f"{{name}}_parallel_degree"]}})
    put(section, {{"data_parallel_shard_degree": PLAN["replicas"]}})
    put(section, {{"data_parallel_replicate_degree": 1}})
    put(section, {{"fsdp_reshard_after_forward": PLAN["reshard"]}})
    parts = PLAN["module_fqns_per_model_part"]
    if len(parts) == 1:
        return
    from torchtitan.distributed import pipeline_parallel

    # A model of one layer in one part: the release's names of what is around it.
    name = "generate_llm_fqn_per_model_part"
    generate = getattr(pipeline_parallel, name, None)
    generate = generate or getattr(pipeline_parallel, f"_{{name}}")
    first, _, *last = generate(1, 1)[0]
    parts = [[first, *parts[0]], *parts[1:-1], [*parts[-1], *last]]
    put(section, {{"pipeline_parallel_schedule": PLAN["schedule"]}})
    put(section, {{"module_fqns_per_model_part": parts}})
    put(
        section,
        {{"num_pp_microbatches": PLAN["micro_batches"]}},
        {{"pipeline_parallel_microbatch_size": PLAN["micro_batch_size"]}},
    )


def put(section, *generations):
    """Set the fields of the first generation of names that the release has."""
    for fields in generations:
        if all(hasattr(section, name) for name in fields):
            for name, value in fields.items():
                setattr(section, name, value)
            return
    raise AttributeError(f"this torchtitan has none of {{generations}}")
'''
_ABOUT = """\
# BASE_CONFIG names the rest of the configuration (see hetopt_plan.py). With CONFIG=toml
# plan.toml is used instead; the model is then told by --model.name and --model.flavor.
# Further arguments are passed on.
"""
_SETUP = """\
if [ "${CONFIG:-}" = toml ]; then
  run="-m torchtitan.train --job.config_file plan.toml ${*@Q}"
else
  base="$(printf %q "${BASE_CONFIG:?}")"
  run="--no-python env BASE_CONFIG=$base PYTHONPATH=.:\\"\\${PYTHONPATH:-}\\" \
python3 -m torchtitan.train --module hetopt_plan --config plan ${*@Q}"
fi
"""


def refusals(data: Instance, plan: TrainingPlan) -> list[str]:
    """Under ZeRO 3, weights that do not fit whole where they are gathered once."""
    if data.workload.costs.zero < 3:
        return []
    if _reshard(data, normal(plan).pipelines[0]) == "always":
        return []
    whole = plan.model_copy(update={"zero": None})
    judged = training_plan.evaluate(under(data, zero=2), whole)
    if any(violation.rule == "memory" for violation in judged.violations):
        return [
            "weights that are gathered once an iteration, as ZeRO 3 is priced, do "
            "not fit whole"
        ]
    return []


def export(data: Instance, plan: TrainingPlan) -> dict[str, str]:
    """`hetopt_plan.py`, `plan.toml` and `launch.sh`."""
    pipeline = normal(plan).pipelines[0]
    told = _told(data, pipeline)
    literal = json.dumps(told, indent=4)
    return {
        MODULE: _MODULE.format(plan=literal),
        TOML: _toml(told),
        LAUNCH: torchruns(_ABOUT, _SETUP, ranks(pipeline)),
    }


def _reshard(data: Instance, pipeline: Pipeline) -> str:
    """When weights are divided again, so that gathering takes the time it is priced."""
    once = pipeline.micro_batches == 1
    return "always" if data.workload.costs.zero == 3 and once else "never"


def _told(data: Instance, pipeline: Pipeline) -> dict[str, Any]:
    replicas = pipeline.stages[0].replicas
    costs = data.workload.costs
    return {
        "pipeline_parallel_degree": len(pipeline.stages),
        "tensor_parallel_degree": replicas[0].degree,
        "replicas": len(replicas),
        "schedule": "GPipe" if costs.in_flight == "gpipe" else "1F1B",
        "activation_checkpoint": costs.recompute,
        "reshard": _reshard(data, pipeline),
        "micro_batches": pipeline.micro_batches,
        "micro_batch_size": replicas[0].samples,
        "sequence_length": data.workload.sequence_length,
        "global_batch": data.workload.global_batch,
        "module_fqns_per_model_part": [
            [f"layers.{layer}" for layer in stage.span] for stage in pipeline.stages
        ],
    }


def _toml(told: dict[str, Any]) -> str:
    stages = told["pipeline_parallel_degree"]
    parts = told["module_fqns_per_model_part"]
    local = told["micro_batch_size"] * (told["micro_batches"] if stages > 1 else 1)
    sections: dict[str, dict[str, Any]] = {
        "training": {
            "local_batch_size": local,
            "global_batch_size": told["global_batch"],
            "seq_len": told["sequence_length"],
        },
        "parallelism": {
            "data_parallel_replicate_degree": 1,
            "data_parallel_shard_degree": told["replicas"],
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
    lines = ["# A plan of hetopt for releases of torchtitan that read TOML"]
    for name, fields in sections.items():
        # Numbers, texts and lists of texts are written alike in TOML and in JSON.
        lines += ["", f"[{name}]"]
        lines += [f"{key} = {json.dumps(value)}" for key, value in fields.items()]
    return "\n".join(lines) + "\n"
