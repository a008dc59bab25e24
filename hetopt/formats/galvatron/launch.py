"""Galvatron: its parallel strategy, layer by layer, and a torchrun for each host.

`galvatron_config.json` is what `--galvatron_config_path` takes: lists of one number a
layer, separated by commas (galvatron/utils/config_utils.py). Every stage has as many
GPUs; within it each layer has its own tensor-parallel degree, and the GPUs left are
replicas. Ranks are in the order of stages, replicas, tensor-parallel ranks
(`tp_consecutive_flags` 1). A global batch is cut into `chunks` micro-batches; embedding
and head are cut alike (`vtp`).
"""

import json

from ...plans import TrainingPlan
from ...problems.training_plan.shapes import normal
from ...schema import Instance
from ..exporting.launching import ranks, torchruns

CONFIG, LAUNCH = "galvatron_config.json", "launch.sh"
_LISTS = (
    "tp_sizes_enc",
    "tp_consecutive_flags",
    "dp_types_enc",
    "use_sp",
    "cp_sizes_enc",
    "checkpoint",
)
_REPLICAS = {0: "ddp", 2: "zero2", 3: "zero3"}
_ABOUT = """\
# TRAIN is the path of the model's training script; further arguments (model, data,
# optimiser) are passed on.
"""
_SETUP = """\
train="$(printf %q "${TRAIN:-train_dist.py}")"
run="$train --galvatron_config_path ./galvatron_config.json ${*@Q}"
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
        "checkpoint": _list([int(costs.recompute == "full")] * layers),
        "global_bsz": data.workload.global_batch,
        "chunks": pipeline.micro_batches,
        "pp_division": _list([len(stage.span) for stage in pipeline.stages]),
        "pipeline_type": "gpipe" if costs.in_flight == "gpipe" else "pipedream_flush",
        "default_dp_type": _REPLICAS[costs.zero],
        "vtp": degrees[0],
        "vsp": 0,
    }
    return {
        CONFIG: json.dumps(config, indent=1) + "\n",
        LAUNCH: torchruns(_ABOUT, _SETUP, ranks(pipeline)),
    }


def _list(numbers: list[int]) -> str:
    return ",".join(map(str, numbers))
