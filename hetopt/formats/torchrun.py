"""torchrun: hetopt's own executor, `hetopt run`, on every host of a plan.

`train.sh PLAN NODE` starts a node's ranks: what the schedulers' targets (slurm, jobset,
skypilot, ray) start, in whose folder it may be put. `launch.sh` starts it over ssh on
all hosts, in the folder of the file, which every host has at the same place. Ranks are
counted host by host, in the order of the cluster's nodes, and a host's by its GPUs.
torchrun takes different numbers of processes on different hosts
(torch/distributed/elastic/agent/server/api.py, `_assign_worker_ranks`).
"""

from ..plans import TrainingPlan
from ..problems.training_plan import targets
from ..problems.training_plan.shapes import place
from ..schema import Instance
from .exporting.allocation import PLAN, plan_text
from .exporting.launching import WAIT

TRAIN, LAUNCH = "train.sh", "launch.sh"
_TRAIN = """\
#!/usr/bin/env bash
# train.sh PLAN NODE: start the ranks of a node. MASTER_ADDR is the host of the first
# one; ARGS are the words of `hetopt run` behind the plan.
set -euo pipefail
case "$2" in
{cases}
*) echo "$0: $2 is no node of the plan" >&2; exit 2 ;;
esac
export CUDA_VISIBLE_DEVICES="$gpus"
commas="${{gpus//[^,]/}}"
read -r -a args <<< "${{ARGS:---steps 100}}"
exec torchrun --nnodes {nodes} --node-rank "$rank" \\
  --nproc-per-node $((${{#commas}} + 1)) \\
  --master-addr "$MASTER_ADDR" --master-port "${{MASTER_PORT:-29500}}" \\
  -m hetopt run "$1" "${{args[@]}}"
"""
# What the user sets is quoted for the shell of the other host, which reads it again.
_LAUNCH = """\
#!/usr/bin/env bash
# Start every host's part over ssh, in the folder of this file: launch.sh WORDS..., the
# words of `hetopt run` behind the plan, such as --steps 1000 --data tokens.bin. A
# folder for --checkpoint must be one that all hosts see.
set -euo pipefail
cd "$(dirname "$0")"
pids=()
told="MASTER_ADDR={head} MASTER_PORT=$(printf %q "${{PORT:-29500}}")"
if [ $# -gt 0 ]; then told="$told ARGS=$(printf %q "$*")"; fi
here="cd $(printf %q "$PWD") && $told bash {train} {plan}"
{parts}
{wait}"""


def by_host(data: Instance, plan: TrainingPlan) -> dict[str, list[int]]:
    """Nodes of the plan in the order of the cluster's, and the GPUs that it uses."""
    used = sorted(place(gpu) for replica in plan.replicas() for gpu in replica.gpus)
    return {
        node.name: [index for name, index in used if name == node.name]
        for node in data.planned_cluster.nodes
        if any(name == node.name for name, _ in used)
    }


def refusals(data: Instance, plan: TrainingPlan) -> list[str]:
    """Features that the executor has not, and rules of it that the plan breaks."""
    found = targets.lacking("executor", data, plan)
    return found + targets.refused("executor", data, plan)


def export(data: Instance, plan: TrainingPlan) -> dict[str, str]:
    """`train.sh`, `launch.sh` and `plan.json`."""
    hosts = by_host(data, plan)
    cases = [
        f"{host}) rank={rank} gpus={','.join(map(str, indices))} ;;"
        for rank, (host, indices) in enumerate(hosts.items())
    ]
    parts = [f'ssh {host} "$here {host}" & pids+=($!)' for host in hosts]
    launch = _LAUNCH.format(
        head=next(iter(hosts)),
        train=TRAIN,
        plan=PLAN,
        parts="\n".join(parts),
        wait=WAIT,
    )
    return {
        TRAIN: _TRAIN.format(cases="\n".join(cases), nodes=len(hosts)),
        LAUNCH: launch,
        PLAN: plan_text(data, plan),
    }
