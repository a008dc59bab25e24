"""Slurm: a heterogeneous job with one component for each GPU type.

`job.sbatch` is submitted in its own folder, `sbatch job.sbatch`. A component asks for
nodes by `--gres=gpu:TYPE:N`, where TYPE is the instance's name of the GPU type; nodes
of one type that take part with different numbers of GPUs are components of their own.
The names of the plan's nodes are given to the nodes that Slurm grants, in order
(https://slurm.schedmd.com/heterogeneous_jobs.html).
"""

from ..plans import TrainingPlan
from ..schema import Instance
from .exporting import allocation
from .exporting.allocation import PLAN, plan_text, shares
from .exporting.launching import WAIT

refusals = allocation.refusals
JOB = "job.sbatch"
_RUN = """\

# On every node: TRAIN plan.json NODE, with MASTER_ADDR and MASTER_PORT.
set -euo pipefail
plan="${{SLURM_SUBMIT_DIR:-$PWD}}/plan.json"
names=({names})
lists=({lists})
read -r MASTER_ADDR < <(scontrol show hostnames "${{lists[0]}}")
export MASTER_ADDR MASTER_PORT="${{MASTER_PORT:-29500}}"
pids=()
for group in "${{!names[@]}}"; do
  mapfile -t hosts < <(scontrol show hostnames "${{lists[$group]}}")
  i=0
  for name in ${{names[$group]}}; do
    srun {group}--nodes=1 --ntasks=1 --nodelist="${{hosts[$i]}}" \\
      "${{TRAIN:-./train.sh}}" "$plan" "$name" & pids+=($!)
    i=$((i + 1))
  done
done
"""


def export(data: Instance, plan: TrainingPlan) -> dict[str, str]:
    """`job.sbatch` and `plan.json`."""
    found = shares(data, plan)
    many = len(found) > 1
    lines = ["#!/usr/bin/env bash", "#SBATCH --job-name=hetopt"]
    for number, share in enumerate(found):
        if number:
            lines.append("#SBATCH hetjob")
        lines.append(
            f"#SBATCH --nodes={len(share.nodes)} --ntasks-per-node=1 "
            f"--gres=gpu:{share.gpu}:{share.gpus}"
        )
    lists = [
        f'"$SLURM_JOB_NODELIST_HET_GROUP_{number}"' if many else '"$SLURM_JOB_NODELIST"'
        for number in range(len(found))
    ]
    run = _RUN.format(
        names=" ".join(f'"{" ".join(share.nodes)}"' for share in found),
        lists=" ".join(lists),
        group='--het-group="$group" ' if many else "",
    )
    return {JOB: "\n".join(lines) + "\n" + run + WAIT, PLAN: plan_text(data, plan)}
