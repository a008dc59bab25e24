"""HexiScale (FlashFlex): pipelines of any shapes, and a start on every machine.

`hetero_configs.json` is what `--all_hetero_configs_path` takes: for every pipeline the
tensor-parallel degrees of its stages, their numbers of layers, and the machine of
every GPU, by the number of its line in `machines`; micro-batches and batch of each
pipeline are arguments in `launch.sh` (llama/generate_hetero_scripts.py). A stage has
one replica: replicas become pipelines. A rank's GPU is not told: machines give
theirs in the order of the ranks, whatever numbers they have in the plan.
"""

import json

from ...plans import TrainingPlan
from ...problems.training_plan.models import HEXISCALE
from ...problems.training_plan.shapes import apart, place
from ...schema import Instance
from ..contract import Held
from ..exporting.launching import WAIT, ranks

HELD = Held("FlashFlex", "5ee1726", ("5ee1726",))

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
while [ \\${{#ranks[@]}} -gt 0 ]; do
  sleep 0.2
  running=()
  for one in \\"\\${{ranks[@]}}\\"; do
    if kill -0 \\$one 2> /dev/null; then running+=(\\$one); else wait \\$one || exit; fi
  done
  ranks=(\\"\\${{running[@]}}\\")
done"
there="cd $(printf %q "${{HEXISCALE:?}}")"
pids=()
while read -r number host; do
  ssh -ntt -- "$host" "$there && python3 llama/generate_hetero_scripts.py $arguments \\
    --current_device $number && {{ $run; }}" & pids+=($!)
done < machines
"""


def export(data: Instance, plan: TrainingPlan) -> dict[str, str]:
    """`hetero_configs.json`, `machines` and `launch.sh`."""
    pipelines = apart(plan) or []
    gpus = [gpu for pipeline in pipelines for gpu in ranks(pipeline)]
    hosts = list(dict.fromkeys(place(gpu)[0] for gpu in gpus))
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
        model=HEXISCALE[data.model.hidden, data.model.heads],
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
