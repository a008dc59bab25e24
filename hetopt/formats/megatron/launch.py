"""Megatron-LM: its arguments, the layout of the pipeline, and a torchrun for each host.

Stage s owns the ranks [s W/P, (s + 1) W/P), in the order tp-cp-ep-dp-pp. `launch.sh`
starts one torchrun for every run of neighbouring ranks on a host, in the order of the
ranks, so a host may take part in stages that are not neighbours. Uneven stages are told
by `--pipeline-model-parallel-layout` (megatron/core/transformer/
pipeline_parallel_layer_layout.py); where they suffice, the arguments of older releases
stand beside it as a comment. Equal stages need neither.
"""

import shlex

from ...errors import escaped
from ...plans import Pipeline, TrainingPlan
from ...problems.training_plan.shapes import normal
from ...schema import Instance, Split
from ...schema.targets import Feature
from ..contract import Held
from ..documents import Document, Options
from ..exporting.launching import ranks, torchruns
from ..importing.current import in_runs
from . import model, weights

# Uneven stages need 0.13, or 0.12 by the older arguments beside the layout.
HELD = Held(
    "Megatron-LM",
    "core 0.12.0",
    ("core 0.12.0", "core 0.13.0", "core 0.16.1", "0.20.0 (d98e8a6)"),
    "megatron-core",
)

#: Adapters are Megatron-Bridge's.
WITHOUT = frozenset({Feature.LORA})
ARGUMENTS, LAUNCH = "arguments.txt", "launch.sh"
OPTIONS: Options = {"init_from": str}
#: Where an argument has another name than its field.
_OPTIONS = {
    "virtual_pipeline_model_parallel_size": "num_virtual_stages_per_pipeline_rank"
}
_ABOUT = """\
# PRETRAIN is the path of pretrain_gpt.py; further arguments (data, tokenizer,
# optimiser) are passed on.
"""
_SETUP = """\
arguments="$(grep -v '^#' arguments.txt | tr '\\n' ' ')${*@Q}"
run="$(printf %q "${PRETRAIN:-pretrain_gpt.py}") $arguments"
"""


def export(
    data: Instance, plan: TrainingPlan, *, init_from: str | None = None
) -> dict[str, str]:
    """`arguments.txt`, one argument a line, and `launch.sh`.

    `init_from` is a folder of Hugging Face weights: `weights.sh` converts them, and the
    arguments begin with what it wrote.
    """
    pipeline = normal(plan).pipelines[0]
    layers = [len(stage.span) for stage in pipeline.stages]
    lines = [f"# {escaped(data.model.name)}, a plan of hetopt for Megatron-LM"]
    lines += [f"# not told: {word}" for word in model.untold(data)]
    if len(set(layers)) > 1 and data.workload.costs.schedule.interleave == 1:
        lines += _older(layers)
    for name, value in given(data, pipeline).items():
        option = "--" + _OPTIONS.get(name, name).replace("_", "-")
        lines.append(option if value is True else f"{option} {shlex.quote(str(value))}")
    made = {LAUNCH: torchruns(_ABOUT, _SETUP, ranks(pipeline))}
    if init_from is not None:
        lines += weights.ARGUMENTS
        made[weights.SCRIPT] = weights.script(init_from)
    return {ARGUMENTS: "\n".join(lines) + "\n", **made}


def given(data: Instance, pipeline: Pipeline) -> Document:
    """Arguments by the names of Megatron's configuration, True for a flag."""
    replica = pipeline.stages[0].replicas[0]
    layers = [len(stage.span) for stage in pipeline.stages]
    split = data.workload.costs.split
    degree = replica.degree // split.context
    return {
        "tensor_model_parallel_size": degree,
        "pipeline_model_parallel_size": len(layers),
        "micro_batch_size": replica.samples,
        **_degrees(split),
        **model.fields(data, degree),
        **_cuts(layers, split.interleave),
    }


def _degrees(split: Split) -> dict[str, int]:
    """Return the degrees of sequences and of experts, which are whole on a GPU then."""
    made = {}
    if split.context > 1:
        made["context_parallel_size"] = split.context
    if split.experts > 1:
        made["expert_model_parallel_size"] = split.experts
        made["expert_tensor_parallel_size"] = 1
    return made


def _cuts(layers: list[int], runs: int) -> Document:
    """Equal stages need nothing but their runs of layers, others the layout of all.

    Of a stage's layers that no number of runs divides, the first runs have one more.
    """
    if len(set(layers)) == 1 and layers[0] % runs == 0:
        return {} if runs == 1 else {"virtual_pipeline_model_parallel_size": runs}
    return {"pipeline_model_parallel_layout": layout_of(in_runs(layers, runs))}


def layout_of(layers: list[int]) -> str:
    """Return the layout of stages with these numbers of layers, `Et*6|t*10|t*4L`."""
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
