"""Megatron-LM: its arguments, the layout of the pipeline, and a torchrun for each host.

Stage s owns the ranks [s W/P, (s + 1) W/P), in the order tp-cp-ep-dp-pp. `launch.sh`
starts one torchrun for every run of neighbouring ranks on a host, in the order of the
ranks, so a host may take part in stages that are not neighbours. Uneven stages are told
by `--pipeline-model-parallel-layout` (megatron/core/transformer/
pipeline_parallel_layer_layout.py). Equal stages need none.
"""

import shlex

from ...errors import escaped
from ...plans import Pipeline, TrainingPlan
from ...problems.training_plan.shapes import normal
from ...schema import Instance
from ...schema.fields import fields_of, fields_of_split
from ...schema.targets import Feature
from ...text.documents import Document
from ...trainers.megatron import TABLE
from ..contract import Held
from ..exporting.launching import ranks, torchruns

# Uneven stages need 0.13.
HELD = Held(
    "Megatron-LM",
    "core 0.12.0",
    ("core 0.12.0", "core 0.13.0", "core 0.16.1", "0.20.0 (d98e8a6)"),
    "megatron-core",
)

#: Adapters are Megatron-Bridge's.
WITHOUT = frozenset({Feature.LORA})
ARGUMENTS, LAUNCH = "arguments.txt", "launch.sh"
OPTIONS: Document = {"init_from": str}
LATENT_POSITIONS = (
    "rotary positions of latent attention, YaRN's by default: set rope-type, "
    "rotary-scaling-factor and mscale as the model's configuration has them"
)
_ABOUT = """\
# PRETRAIN is the path of pretrain_gpt.py; further arguments (data, tokenizer,
# optimiser) are passed on.
"""
_SETUP = """\
arguments="$(grep -v '^#' arguments.txt | tr '\\n' ' ')${*@Q}"
run="$(printf %q "${PRETRAIN:-pretrain_gpt.py}") $arguments"
"""
#: Hugging Face weights as a checkpoint that any layout of Megatron-LM loads.
_WEIGHTS = """\
#!/usr/bin/env bash
# Convert Hugging Face weights, once, to a folder that all hosts see: the converter is
# Megatron-Bridge's (pip install megatron-bridge). The checkpoint is distributed: any
# tensor and pipeline parallelism loads it.
set -euo pipefail
cd "$(dirname "$0")"
python3 -c 'import sys
from megatron.bridge import AutoBridge
AutoBridge.import_ckpt(*sys.argv[1:])' {model} weights
"""
_LOADED: tuple[str, ...] = ("--load weights", "--ckpt-format torch_dist")
_LOADED += ("--finetune", "--no-load-optim", "--no-load-rng")


def export(
    data: Instance, plan: TrainingPlan, *, init_from: str | None = None
) -> dict[str, str]:
    """`arguments.txt`, one argument a line, and `launch.sh`.

    `init_from` is a folder of Hugging Face weights: `weights.sh` converts them, and the
    arguments begin with what it wrote.
    """
    pipeline = normal(plan).pipelines[0]
    lines = [f"# {escaped(data.model.name)}, a plan of hetopt for Megatron-LM"]
    lines += [f"# not set: {word}" for word in untold(data)]
    for name, value in given(data, pipeline).items():
        word = "" if value is True else f" {shlex.quote(str(value))}"
        lines.append(f"--{name}{word}")
    made = {LAUNCH: torchruns(_ABOUT, _SETUP, ranks(pipeline))}
    if init_from is not None:
        lines += _LOADED
        made["weights.sh"] = _WEIGHTS.format(model=shlex.quote(init_from))
    return {ARGUMENTS: "\n".join(lines) + "\n", **made}


def given(data: Instance, pipeline: Pipeline) -> Document:
    """Arguments by the names of the table, True for a flag."""
    replica, split = pipeline.stages[0].replicas[0], data.workload.costs.split
    told = any(stage.runs or not stage.span for stage in pipeline.stages)
    ways = zip(*pipeline.held(split.interleave), strict=True)
    plan = fields_of_split(split) | {
        "pp": len(pipeline.stages),
        "mbs": replica.samples,
        "stage_layers": tuple(len(stage.span) for stage in pipeline.stages),
        "parts": [len(run) for way in ways for run in way] if told else None,
    }
    return TABLE.write(fields_of(data, replica.degree // split.context) | plan)


def untold(data: Instance) -> list[str]:
    """Return in words the arguments that the user must add."""
    if data.model.architecture is not None:
        return []
    return [
        *((LATENT_POSITIONS,) if data.model.latent else ()),
        "normalization, positions, biases, dropout, activations: add --normalization, "
        "--position-embedding-type, --disable-bias-linear, --quick-geglu and their "
        "like, or assemble the instance from a config.json of a known family",
    ]
