"""Megatron-LM: its arguments, the layout of the pipeline, and a torchrun for each host.

Stage s owns the ranks [s W/P, (s + 1) W/P), in the order tp-cp-ep-dp-pp. `launch.sh`
starts one torchrun for every run of neighbouring ranks on a host, in the order of the
ranks, so a host may take part in stages that are not neighbours. Uneven stages are told
by `--pipeline-model-parallel-layout` (megatron/core/transformer/
pipeline_parallel_layer_layout.py); where they suffice, the arguments of older releases
stand beside it as a comment. Equal stages need neither.
"""

import shlex

from ..plans import TrainingPlan
from ..schema import Instance
from .exporting import megatron_model
from .exporting.launching import (
    GRID,
    bad_degrees,
    bad_hosts,
    comment,
    ranks,
    torchruns,
)
from .exporting.shapes import normal

SUPPORTS = GRID | megatron_model.SETTINGS
ARGUMENTS, LAUNCH = "arguments.txt", "launch.sh"
_ABOUT = """\
# PRETRAIN is the path of pretrain_gpt.py; further arguments (data, tokenizer,
# optimiser) are passed on.
"""
_SETUP = """\
arguments="$(grep -v '^#' arguments.txt | tr '\\n' ' ')${*@Q}"
run="$(printf %q "${PRETRAIN:-pretrain_gpt.py}") $arguments"
"""


def refusals(data: Instance, plan: TrainingPlan) -> list[str]:
    """Hosts that cannot be named, degrees that do not divide the heads."""
    return bad_hosts(plan) + bad_degrees(data, plan)


def export(data: Instance, plan: TrainingPlan) -> dict[str, str]:
    """`arguments.txt`, one argument a line, and `launch.sh`."""
    pipeline = normal(plan).pipelines[0]
    replica = pipeline.stages[0].replicas[0]
    layers = [len(stage.span) for stage in pipeline.stages]
    fields = {
        "tensor_model_parallel_size": replica.degree,
        "pipeline_model_parallel_size": len(layers),
        "micro_batch_size": replica.samples,
        **megatron_model.fields(data, replica.degree),
    }
    lines = [comment(f"{data.model.name}, a plan of hetopt for Megatron-LM")]
    for name, value in fields.items():
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
