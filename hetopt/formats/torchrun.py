"""torchrun: hetopt's own executor, `hetopt run`, on every host of a plan.

`train.sh PLAN NODE` starts a node's ranks, as it does for schedulers. `launch.sh`
starts it over ssh on all hosts, in the folder of the file, which every host has at the
same place; the GPUs are those that the plan numbers. Ranks are counted host by host, in
the order of the cluster's nodes, and a host's by its GPUs. torchrun takes different
numbers of processes on different hosts
(torch/distributed/elastic/agent/server/api.py, `_assign_worker_ranks`).
"""

from ..plans import TrainingPlan
from ..schema import Instance
from .contract import Held
from .exporting.allocation import PLAN, plan_text
from .exporting.launching import WAIT
from .exporting.programs import TRAIN, by_host, executor_refusals, train_text

HELD = Held("PyTorch", "2.5", ("2.11 (CUDA)", "2.13 (CPU)"), "torch")

refusals = executor_refusals
LAUNCH = "launch.sh"
# What the user sets is quoted for the shell of the other host, which reads it again.
_LAUNCH = """\
#!/usr/bin/env bash
# Start every host's part over ssh, in the folder of this file: launch.sh WORDS..., the
# words of `hetopt run` behind the plan, such as --steps 1000 --data tokens.bin. A
# folder for --checkpoint must be one that all hosts see.
set -euo pipefail
cd "$(dirname "$0")"
export ARGS="${{*:-${{ARGS:-}}}}"
bash {train} # it looks at ARGS
pids=()
# No scheduler has granted these hosts: the plan's own GPUs are meant.
told="-u CUDA_VISIBLE_DEVICES -u HIP_VISIBLE_DEVICES -u ROCR_VISIBLE_DEVICES"
told="$told MASTER_ADDR={head} MASTER_PORT=$(printf %q "${{PORT:-29500}}")"
told="$told ARGS=$(printf %q "$ARGS")"
here="cd $(printf %q "$PWD") && env $told bash {train} {plan}"
{parts}
{wait}"""


def export(data: Instance, plan: TrainingPlan) -> dict[str, str]:
    """`train.sh`, `launch.sh` and `plan.json`."""
    hosts = by_host(data, plan)
    parts = [f'ssh {host} "$here {host}" & pids+=($!)' for host in hosts]
    launch = _LAUNCH.format(
        head=next(iter(hosts)),
        train=TRAIN,
        plan=PLAN,
        parts="\n".join(parts),
        wait=WAIT,
    )
    return {TRAIN: train_text(data, plan), LAUNCH: launch, PLAN: plan_text(data, plan)}
