"""Slurm: a heterogeneous job with one component for each GPU type.

`job.sbatch` is submitted in its own folder, `sbatch job.sbatch`. A component asks for
nodes by `--gres=gpu:TYPE:N`, where TYPE is the instance's name of the GPU type; nodes
of one type that take part with different numbers of GPUs are components of their own.
The names of the plan's nodes are given to the nodes that Slurm grants, in order
(https://slurm.schedmd.com/heterogeneous_jobs.html).
"""

import re

from ..errors import InstanceError
from ..plans import TrainingPlan
from ..schema import Instance
from .exporting import allocation
from .exporting.allocation import (
    PLAN,
    Share,
    disagreements,
    plan_text,
    read_back,
    shares,
)
from .exporting.launching import WAIT

__all__ = ["SUPPORTS", "export", "read_back", "refusals", "validate"]

SUPPORTS = allocation.SUPPORTS
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


def validate(files: dict[str, str]) -> list[str]:
    """Where the job asks for other machines than the plan has, or forgets the plan."""
    broken = disagreements(files, _asked(files[JOB]))
    if f"/{PLAN}" not in files[JOB]:
        broken.append(f"{JOB} does not name {PLAN}")
    return broken


def _asked(text: str) -> list[Share]:
    """The components and the nodes that they stand for."""
    directives = [
        line.removeprefix("#SBATCH ")
        for line in text.splitlines()
        if line.startswith("#SBATCH ")
    ]
    names = re.search(r"^names=\((.*)\)$", text, re.MULTILINE)
    rows = re.findall(r'"([^"]*)"', names[1]) if names else []
    asked: list[Share] = []
    for line in directives:
        match = re.fullmatch(
            r"--nodes=(\d+) --ntasks-per-node=1 --gres=gpu:([^:]+):(\d+)", line
        )
        if match is None:
            continue
        nodes = tuple(rows[len(asked)].split()) if len(asked) < len(rows) else ()
        if len(nodes) != int(match[1]):
            raise InstanceError(
                f"{JOB}: found {match[1]} nodes and {len(nodes)} names for them, "
                "expected as many; export the plan again"
            )
        asked.append(Share(match[2], int(match[3]), nodes))
    if directives.count("hetjob") != len(asked) - 1:
        raise InstanceError(
            f"{JOB}: found {directives.count('hetjob')} lines hetjob between "
            f"{len(asked)} components, expected one less; export the plan again"
        )
    return asked
