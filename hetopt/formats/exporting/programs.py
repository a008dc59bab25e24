"""Launchers start `PROGRAM plan.json NODE` on every node of a plan.

The program is hetopt's own executor by `train.sh`, wherever that can run the plan, or
one that the user names: by the option `train` when the files are written, by the
variable TRAIN when they are started.

`train.sh` takes as many GPUs as the plan has on its node, and never another's: of those
that a scheduler granted the first ones, in the scheduler's order. Slurm and Ray tell by
variables which these are; a pod, and a machine that SkyPilot rents, has no others, and
counts them from 0. On a bare host they are those that the plan numbers.
"""

from typing import NamedTuple

from ...plans import TrainingPlan
from ...problems.training_plan import targets
from ...problems.training_plan.shapes import place
from ...schema import Instance

TRAIN = "train.sh"
_TRAIN = """\
#!/usr/bin/env bash
# train.sh PLAN NODE: start the ranks of a node. MASTER_ADDR is the host of the first
# one; ARGS are passed to `hetopt run` after the plan, --steps and --data among
# them. Without PLAN and NODE it looks at ARGS alone.
set -euo pipefail
fail() {{
  echo "$0: $1" >&2
  exit 2
}}
for word in --steps --data; do
  case " ${{ARGS:-}} " in
  *" $word "* | *" $word="*) ;;
  *) fail "found no $word in ARGS, expected options of hetopt run;\
 set ARGS='--steps 1000 --data tokens.bin'" ;;
  esac
done
if [ $# -eq 0 ]; then exit; fi
case "$2" in
{cases}
*) fail "$2 is no node of the plan" ;;
esac
commas="${{gpus//[^,]/}}"
count=$((${{#commas}} + 1))
# Let the first of the devices that a variable lists be visible, and no others.
take() {{
  local IFS=, devices
  read -r -a devices <<< "$2"
  if [ ${{#devices[@]}} -lt $count ]; then
    fail "found $1='$2', expected $count GPUs for $node; ask the scheduler for more"
  fi
  export "$1=${{devices[*]:0:$count}}"
}}
node="$2" granted=
for name in CUDA_VISIBLE_DEVICES HIP_VISIBLE_DEVICES ROCR_VISIBLE_DEVICES; do
  if [ -n "${{!name+set}}" ]; then
    granted="$name"
    take "$name" "${{!name}}"
  fi
done
devices="${{SLURM_STEP_GPUS:-${{SLURM_JOB_GPUS:-}}}}"
scheduler="${{SLURM_JOB_ID:-}}${{KUBERNETES_SERVICE_HOST:-}}${{SKYPILOT_NODE_RANK:-}}"
if [ -z "$granted" ] && [ -n "$devices" ]; then
  take CUDA_VISIBLE_DEVICES "$devices"
elif [ -z "$granted$scheduler" ]; then
  export CUDA_VISIBLE_DEVICES="$gpus"
fi
read -r -a args <<< "$ARGS"
exec torchrun --nnodes {nodes} --node-rank "$rank" --nproc-per-node "$count" \\
  --master-addr "$MASTER_ADDR" --master-port "${{MASTER_PORT:-29500}}" \\
  -m hetopt run "$1" "${{args[@]}}"
"""
_OWN = """\
train="${{TRAIN:-{at}/{file}}}"
if [ "$train" = "{at}/{file}" ]; then bash "{here}/{file}"; fi # it looks at ARGS
"""
_OTHER = 'train="${{TRAIN:-{path}}}"\n'
_NONE = """\
train="${{TRAIN:?name your program that trains by plan.json: hetopt run cannot, as\
 hetopt export --explain says of torchrun}}"
"""


class Program(NamedTuple):
    """A program starts on every node; without `path` the user names it."""

    path: str | None
    files: dict[str, str]

    def chosen(self, at: str = ".", here: str = ".") -> str:
        """Return lines of bash that set `train`, or end the script with the reason.

        The files of the program lie `here` for the script, and `at` that place for the
        nodes.
        """
        if self.path is None:
            return _NONE.format()
        if TRAIN in self.files:
            return _OWN.format(at=at, here=here, file=TRAIN)
        return _OTHER.format(path=self.path)


def program(data: Instance, plan: TrainingPlan, told: str | None = None) -> Program:
    """Return what is started on the nodes of a plan: `told`, or else the executor."""
    if told is not None:
        return Program(told, {})
    if executor_refusals(data, plan):
        return Program(None, {})
    return Program(f"./{TRAIN}", {TRAIN: train_text(data, plan)})


def executor_refusals(data: Instance, plan: TrainingPlan) -> list[str]:
    """Return what the executor has not, and the rules of it that the plan breaks."""
    node = data.planned_cluster.node
    types = {node[replica.node].gpu for replica in plan.replicas()}
    found = targets.lacking("executor", data, plan) + targets.foreign(data, types)
    return found + targets.refusals("executor", data, plan)


def train_text(data: Instance, plan: TrainingPlan) -> str:
    """Return `train.sh`, which starts the executor's ranks of one node."""
    hosts = by_host(data, plan)
    cases = [
        f"{host}) rank={rank} gpus={','.join(map(str, indices))} ;;"
        for rank, (host, indices) in enumerate(hosts.items())
    ]
    return _TRAIN.format(cases="\n".join(cases), nodes=len(hosts))


def by_host(data: Instance, plan: TrainingPlan) -> dict[str, list[int]]:
    """Nodes of the plan in the order of the cluster's, and the GPUs that it uses."""
    used = sorted(place(gpu) for replica in plan.replicas() for gpu in replica.gpus)
    return {
        node.name: [index for name, index in used if name == node.name]
        for node in data.planned_cluster.nodes
        if any(name == node.name for name, _ in used)
    }
