"""HexiScale (FlashFlex): pipelines of any shapes, and a start on every machine.

`hetero_configs.json` is what `--all_hetero_configs_path` takes: for every pipeline the
tensor-parallel degrees of its stages, their numbers of layers, and the machine of
every GPU, by the number of its line in `machines`; micro-batches and batch of each
pipeline are arguments in `launch.sh` (llama/generate_hetero_scripts.py). A stage has
one replica: replicas become pipelines. A rank's GPU is not told: machines give
theirs in the order of the ranks, so a plan must take the first ones in that order.
"""

import json
import re
from typing import Any

from ...errors import InstanceError
from ...plans import Pipeline, Replica, Stage, TrainingPlan
from ...schema import Instance
from ...text.parsing import parse_tree
from ..exporting.launching import HOST, WAIT, bad_degrees, bad_hosts, ranks
from ..exporting.shapes import Feature, apart, place

SUPPORTS = frozenset(
    {
        Feature.UNEVEN_LAYERS,
        Feature.DIFFERENT_CUTS,
        Feature.DIFFERENT_BATCHES,
        Feature.MIXED_DEGREES,
        Feature.MIXED_DEGREES_IN_STAGE,
        Feature.UNEQUAL_SAMPLES,
        Feature.MIXED_TYPES,
        Feature.MIXED_TYPES_IN_STAGE,
        Feature.LISTED_PARAMETERS,
    }
)
CONFIG, MACHINES, LAUNCH = "hetero_configs.json", "machines", "launch.sh"
_LAUNCH = """\
#!/usr/bin/env bash
# Start HexiScale on every machine, from a checkout of it at HEXISCALE, the same path on
# all. MODEL is its name of the model; further arguments are passed on.
set -euo pipefail
cd "$(dirname "$0")"
model="$(printf %q "${{MODEL:-llama-7b}}")"
plan="$(printf %q "$PWD/hetero_configs.json")"
port="$(printf %q "${{PORT:-9998}}")"
arguments="--retain-run-file --model-size $model --all_hetero_configs_path $plan \\
  --layer-num {layers} --micro_batch_num {counts} --global_batch_size {batches} \\
  --accum-iter 1 --master_addr {master} --master_port $port ${{*@Q}}"
run="for one in llama-scripts-logs/$model-scripts/r*.sh; do
  bash \\"\\$one\\" &
done; wait"
there="cd $(printf %q "${{HEXISCALE:?}}")"
pids=()
while read -r number host; do
  ssh -n -- "$host" "$there && python3 llama/generate_hetero_scripts.py $arguments \\
    --current_device $number && $run" & pids+=($!)
done < machines
"""


def refusals(data: Instance, plan: TrainingPlan) -> list[str]:
    """Samples that are handed on unequally, GPUs that are not the first in order."""
    found = bad_hosts(plan) + bad_degrees(data, plan)
    if data.workload.costs.recompute != "full":
        found.append("its scripts always recompute layers in full, the plan does not")
    pipelines = apart(plan)
    if pipelines is None:
        return [
            *found,
            "replicas hand their samples on to replicas that take another number",
        ]
    held: dict[str, list[int]] = {}
    for host, index in map(place, _gpus(pipelines)):
        held.setdefault(host, []).append(index)
    return found + [
        f"host {host!r} serves with GPUs {indices}, not with the first ones in order"
        for host, indices in held.items()
        if indices != list(range(len(indices)))
    ]


def _gpus(pipelines: list[Pipeline]) -> list[str]:
    return [gpu for pipeline in pipelines for gpu in ranks(pipeline)]


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


# --- HexiScale's own rules -------------------------------------------------------


def validate(files: dict[str, str]) -> list[str]:
    """Rules of `validate_args` that the files break."""
    config, hosts = _config(files), _hosts(files)
    layers = _numbers(files, "layer-num")[0]
    counts, batches = (
        _numbers(files, "micro_batch_num"),
        _numbers(files, "global_batch_size"),
    )
    degrees, devices = config["hetero_configs"], config["devices_id"]
    cuts = config["layer_partitions"]
    broken = []
    for i, cut in enumerate(cuts):
        if sum(cut) != layers:
            broken.append(f"pipeline {i} has {sum(cut)} layers, not {layers}")
    lengths = {len(part) for part in (degrees, cuts, devices, counts, batches)}
    if len(lengths) > 1:
        return [*broken, f"the lists are of {sorted(lengths)} pipelines"]
    for i, (row, cut, held) in enumerate(zip(degrees, cuts, devices, strict=True)):
        if len(row) != len(cut) or row != list(map(len, held)):
            broken.append(f"pipeline {i} has other stages in its lists")
        if any(len(set(stage)) > 1 for stage in held):
            broken.append(f"pipeline {i} has a stage on several machines")
    for i, (count, batch) in enumerate(zip(counts, batches, strict=True)):
        if batch % count:
            broken.append(f"pipeline {i} cuts a batch of {batch} into {count}")
    used = {number for held in devices for stage in held for number in stage}
    if used != set(range(len(hosts))):
        broken.append(f"machines {sorted(used)} are used, {len(hosts)} are listed")
    return broken


def read_back(files: dict[str, str]) -> TrainingPlan:
    """The plan that HexiScale would run: pipelines of one replica a stage."""
    config, hosts = _config(files), _hosts(files)
    counts, batches = (
        _numbers(files, "micro_batch_num"),
        _numbers(files, "global_batch_size"),
    )
    used = [0] * len(hosts)
    pipelines = []
    for cut, held, count, batch in zip(
        config["layer_partitions"], config["devices_id"], counts, batches, strict=True
    ):
        stages, first = [], 0
        for layers, machines in zip(cut, held, strict=True):
            gpus = []
            for number in machines:
                gpus.append(f"{hosts[number]}:{used[number]}")
                used[number] += 1
            replica = Replica(gpus=tuple(gpus), samples=batch // count)
            stages.append(Stage(layers=(first, first + layers), replicas=(replica,)))
            first += layers
        pipelines.append(
            Pipeline(
                micro_batches=count,
                micro_batch_size=batch // count,
                stages=tuple(stages),
            )
        )
    return TrainingPlan(pipelines=tuple(pipelines))


def _config(files: dict[str, str]) -> dict[str, Any]:
    return parse_tree(files[CONFIG], CONFIG, is_json=True)


def _hosts(files: dict[str, str]) -> list[str]:
    found = []
    for number, line in enumerate(files[MACHINES].splitlines()):
        match = re.fullmatch(rf"{number} (?P<host>{HOST})", line)
        if match is None:
            raise InstanceError(f"{MACHINES}: found {line!r}, expected `{number} HOST`")
        found.append(match["host"])
    return found


def _numbers(files: dict[str, str], name: str) -> list[int]:
    match = re.search(rf"--{name}((?: [1-9][0-9]*)+) ", files[LAUNCH])
    if match is None:
        raise InstanceError(f"{LAUNCH}: found no --{name} with numbers, expected some")
    return [int(word) for word in match[1].split()]
