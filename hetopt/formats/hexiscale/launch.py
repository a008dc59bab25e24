"""HexiScale (FlashFlex): pipelines of any shapes, and a start on every machine.

`hetero_configs.json` is what `--all_hetero_configs_path` takes: for every pipeline the
tensor-parallel degrees of its stages, their numbers of layers, and the machine of
every GPU, by the number of its line in `machines`; micro-batches and batch of each
pipeline are arguments in `launch.sh` (llama/generate_hetero_scripts.py). A stage has
one replica: replicas become pipelines. A rank's GPU is not told: machines give
theirs in the order of the ranks, whatever numbers they have in the plan.

Models are its own four, of any number of layers (llama/llama-config of FlashFlex,
commit 5ee1726): without grouped keys and values, as wide between the matrices of the
MLP as flash-attn makes it where nothing is told, trained in fp16 on sequences of 4096
tokens.
"""

import json
from collections.abc import Iterator

from ...plans import Pipeline, TrainingPlan
from ...problems.training_plan.shapes import apart, place
from ...schema import Instance, ModelSpec
from ..exporting.launching import WAIT, ranks

#: Its names of models, by their width and attention heads.
MODELS = {
    (4096, 32): "llama-7b",
    (5120, 40): "llama-13b",
    (6656, 52): "llama-30b",
    (8192, 64): "llama-70b",
}
VOCABULARY, LENGTH = 32_000, 4096
CONFIG, MACHINES, LAUNCH = "hetero_configs.json", "machines", "launch.sh"
_LAUNCH = """\
#!/usr/bin/env bash
# Start HexiScale on every machine, from a checkout of it at HEXISCALE, the same path on
# all. Further arguments are passed on.
set -euo pipefail
cd "$(dirname "$0")"
model={model}
plan="$(printf %q "$PWD/hetero_configs.json")"
port="$(printf %q "${{PORT:-9998}}")"
arguments="--retain-run-file --model-size $model --all_hetero_configs_path $plan \\
  --layer-num {layers} --micro_batch_num {counts} --global_batch_size {batches} \\
  --accum-iter 1 --master_addr {master} --master_port $port ${{*@Q}}"
run="for one in llama-scripts-logs/$model-scripts/r*.sh; do
  [ -e \\"\\$one\\" ] || continue
  bash \\"\\$one\\" & ranks+=(\\$!)
done
trap 'kill \\"\\${{ranks[@]}}\\" 2> /dev/null' EXIT
for _ in \\"\\${{ranks[@]}}\\"; do wait -n || exit; done"
there="cd $(printf %q "${{HEXISCALE:?}}")"
pids=()
while read -r number host; do
  ssh -ntt -- "$host" "$there && python3 llama/generate_hetero_scripts.py $arguments \\
    --current_device $number && {{ $run; }}" & pids+=($!)
done < machines
"""


def _gpus(pipelines: list[Pipeline]) -> list[str]:
    return [gpu for pipeline in pipelines for gpu in ranks(pipeline)]


def refusals(data: Instance, plan: TrainingPlan) -> list[str]:
    """Models that it does not have, and what its scripts are fixed to."""
    found = list(_other_model(data.model))
    if data.workload.costs.precision != "fp16_mixed":
        found.append("its scripts train in fp16 (workload.costs.precision fp16_mixed)")
    if (length := data.workload.sequence_length) != LENGTH:
        found.append(f"it trains on sequences of {LENGTH} tokens, not of {length}")
    return found


def _other_model(model: ModelSpec) -> Iterator[str]:
    if (model.hidden, model.heads) not in MODELS:
        known = (f"{name} of {h} with {n} heads" for (h, n), name in MODELS.items())
        yield (
            f"its models are {', '.join(known)}, none is of {model.hidden} with "
            f"{model.heads}"
        )
    if model.kv_heads not in (None, model.heads) or model.head_dim is not None:
        yield "its models have no grouped keys, and no heads of another width"
    if model.vocabulary != VOCABULARY:
        yield f"its vocabulary has {VOCABULARY} tokens, not {model.vocabulary}"
    if model.tied_embeddings or model.experts:
        yield "its models have no tied embeddings and no experts"
    # flash_attn/modules/mlp.py, GatedMlp: 8/3 of the width, up to a multiple of 128.
    wide = -(-(8 * model.hidden // 3) // 128) * 128
    counted = model.layer_parameters or model.parameters_per_layer
    if not counted and (not model.gated or model.mlp_width != wide):
        yield f"its MLP is gated and {wide} wide"


def export(data: Instance, plan: TrainingPlan) -> dict[str, str]:
    """`hetero_configs.json`, `machines` and `launch.sh`."""
    pipelines = apart(plan) or []
    hosts = list(dict.fromkeys(place(gpu)[0] for gpu in _gpus(pipelines)))
    rows = [[stage.replicas[0] for stage in one.stages] for one in pipelines]
    config = {
        "hetero_configs": [[replica.degree for replica in row] for row in rows],
        "layer_partitions": [
            [len(stage.span) for stage in one.stages] for one in pipelines
        ],
        "devices_id": [
            [[hosts.index(replica.node)] * replica.degree for replica in row]
            for row in rows
        ],
    }
    launch = _LAUNCH.format(
        model=MODELS[data.model.hidden, data.model.heads],
        layers=data.model.layers,
        counts=" ".join(str(one.micro_batches) for one in pipelines),
        batches=" ".join(
            str(one.micro_batches * one.micro_batch_size) for one in pipelines
        ),
        master=hosts[0],
    )
    return {
        CONFIG: json.dumps(config) + "\n",
        MACHINES: "".join(f"{i} {host}\n" for i, host in enumerate(hosts)),
        LAUNCH: launch + WAIT,
    }
