"""Exporters of launchers share this: names of hosts, and grids of ranks.

A grid of ranks is started by one torchrun for every run of neighbouring ranks on a
host, in the order of the ranks: so a host may take part in stages that are not
neighbours. `ssh -tt` gives each a terminal of its own, which it loses with its ssh: so
where one part fails, the others end too.
"""

import re
from collections.abc import Sequence
from itertools import groupby

from ...plans import Pipeline, TrainingPlan
from ...problems.training_plan.shapes import place
from ...schema import Instance

Parts = list[tuple[str, list[int]]]

HOST = r"[A-Za-z0-9]([A-Za-z0-9._-]{0,253}[A-Za-z0-9])?"


def bad_hosts(plan: TrainingPlan) -> list[str]:
    """Reasons to refuse nodes whose names no launcher takes for a host."""
    nodes = sorted({replica.node for replica in plan.replicas()})
    return [
        f"node {name!r} is not a valid host name: rename it in cluster.nodes"
        for name in nodes
        if not re.fullmatch(HOST, name)
    ]


def bad_parts(data: Instance, plan: TrainingPlan) -> list[str]:
    """Return reasons to refuse nodes that are parts of a machine.

    They are no hosts, and their GPUs have other numbers on the machine.
    """
    return [
        f"machine {machine!r} numbers GPUs of several types together, and the plan has "
        f"{' and '.join(map(repr, names))} of it: plan without it, or export to slurm"
        for machine, names in parts(data, plan).items()
    ]


def parts(data: Instance, plan: TrainingPlan) -> dict[str, list[str]]:
    """Return the plan's nodes that are parts of machines, by their machines."""
    node, found = data.planned_cluster.node, dict[str, list[str]]()
    for name in sorted({replica.node for replica in plan.replicas()}):
        if (machine := node[name].machine) is not None:
            found.setdefault(machine, []).append(name)
    return found


def ranks(pipeline: Pipeline) -> list[str]:
    """GPUs in Megatron's order of ranks: within a replica, replicas, then stages."""
    return [
        gpu
        for stage in pipeline.stages
        for replica in stage.replicas
        for gpu in replica.gpus
    ]


def runs(gpus: Sequence[str]) -> Parts:
    """Neighbouring GPUs of one node: the node and the indices."""
    return [
        (node, [index for _, index in run])
        for node, run in groupby(map(place, gpus), key=lambda at: at[0])
    ]


# --- torchrun --------------------------------------------------------------------

# What the user sets is quoted for the shell of the other host, which reads it again.
_HEAD = """\
#!/usr/bin/env bash
# Start every part of the run over ssh, in the folder of this file on every host.
{about}set -euo pipefail
cd "$(dirname "$0")"
pids=()
{setup}port="$(printf %q "${{PORT:-29500}}")"
here="cd $(printf %q "$PWD") && export CUDA_DEVICE_MAX_CONNECTIONS=1 &&"
"""

# A part that fails ends the others, which would wait for it for ever, and the script
# fails with its status; so does whoever stops the script. Parts are looked at in turn:
# of those that end at one moment `wait -n` forgets some.
WAIT = """\
trap 'kill "${pids[@]}" 2> /dev/null || true; wait' EXIT
trap 'exit 143' HUP INT TERM
while [ ${#pids[@]} -gt 0 ]; do
  sleep 0.2
  running=()
  for pid in "${pids[@]}"; do
    if kill -0 "$pid" 2> /dev/null; then running+=("$pid"); else wait "$pid"; fi
  done
  pids=("${running[@]}")
done
trap - EXIT
"""


TORCHRUN = (
    "torchrun --nnodes {hosts} --node-rank {number} --nproc-per-node {gpus} "
    "--master-addr {head} --master-port $port"
)


def torchruns(
    about: str, setup: str, gpus: Sequence[str], starter: str = TORCHRUN
) -> str:
    """Return a script that starts `$run`, which `setup` sets, on the GPUs as its ranks.

    `about` are comments: what the user may set. `starter` is the command that starts a
    host's ranks.
    """
    parts = runs(gpus)
    lines = []
    for number, (host, indices) in enumerate(parts):
        devices = ",".join(map(str, indices))
        start = starter.format(
            hosts=len(parts), number=number, gpus=len(indices), head=parts[0][0]
        )
        lines.append(
            f'ssh -ntt {host} "$here CUDA_VISIBLE_DEVICES={devices} {start} $run" '
            "& pids+=($!)"
        )
    return _HEAD.format(about=about, setup=setup) + "\n".join(lines) + "\n" + WAIT
