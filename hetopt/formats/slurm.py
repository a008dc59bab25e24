"""Slurm: a heterogeneous job with one component for each GPU type.

`job.sbatch` is submitted in its own folder, `sbatch job.sbatch`. A component asks for
nodes by `--gres=gpu:TYPE:N`, where TYPE is the instance's name of the GPU type; nodes
of one type that take part with different numbers of GPUs are components of their own.
The names of the plan's nodes are given to the nodes that Slurm grants, in order
(https://slurm.schedmd.com/heterogeneous_jobs.html).

Nodes are asked for whole, with all of their processors and memory: a task of Slurm has
one processor by default, whatever its GPUs. The options `cpus_per_gpu` and
`mem_per_gpu` (as 64G) ask for a share of a node instead. `partition` is one, or one for
each type, `A100:fast,V100:old`; `time` (as 2-00:00:00) and `account` are the job's.
"""

import re
from typing import Any

from ..errors import InstanceError, UnknownName, quoted
from ..plans import TrainingPlan
from ..schema import Instance
from .exporting import allocation
from .exporting.allocation import LABEL, PLAN, Share, plan_text, shares
from .exporting.launching import WAIT

refusals = allocation.refusals
OPTIONS: dict[str, Any] = {
    "partition": str,
    "time": str,
    "account": str,
    "cpus_per_gpu": int,
    "mem_per_gpu": str,
}
_WORD = {
    "partition": rf"{LABEL}|{LABEL}:{LABEL}(,{LABEL}:{LABEL})*",
    "time": r"[0-9]+(-[0-9]+)?(:[0-9]+){0,2}",
    "account": LABEL,
    "cpus_per_gpu": r"[1-9][0-9]*",
    "mem_per_gpu": r"[1-9][0-9]*[KMGT]?",
}
_EXPECTED = {
    "partition": "a name, or TYPE:NAME,TYPE:NAME",
    "time": "a time as 2-00:00:00 or 12:00:00",
    "account": "a name",
    "cpus_per_gpu": "a positive whole number",
    "mem_per_gpu": "a size as 64G",
}
JOB = "job.sbatch"
_RUN = """\

# On every node: TRAIN plan.json NODE, with MASTER_ADDR and MASTER_PORT.
set -euo pipefail
plan="${{SLURM_SUBMIT_DIR:-$PWD}}/plan.json"
names=({names})
lists=({lists})
processors=({processors})
read -r MASTER_ADDR < <(scontrol show hostnames "${{lists[0]}}")
export MASTER_ADDR MASTER_PORT="${{MASTER_PORT:-29500}}"
pids=()
for group in "${{!names[@]}}"; do
  mapfile -t hosts < <(scontrol show hostnames "${{lists[$group]}}")
  i=0
  for name in ${{names[$group]}}; do
    srun {group}--nodes=1 --ntasks=1 --nodelist="${{hosts[$i]}}" \\
      --cpus-per-task="${{processors[$group]%%[(,]*}}" --kill-on-bad-exit=1 \\
      "${{TRAIN:-./train.sh}}" "$plan" "$name" & pids+=($!)
    i=$((i + 1))
  done
done
"""


def export(
    data: Instance,
    plan: TrainingPlan,
    *,
    partition: str | None = None,
    **asked: Any,
) -> dict[str, str]:
    """`job.sbatch` and `plan.json`.

    Raises `InstanceError` for an option that is none of Slurm's words.
    """
    for name, word in {"partition": partition, **asked}.items():
        if word is not None and not re.fullmatch(_WORD[name], str(word)):
            raise InstanceError(
                f"option {name}: found {quoted(str(word))}, expected {_EXPECTED[name]}"
            )
    found = shares(data, plan)
    partitions = _partitions(partition, [share.gpu for share in found])
    lines = ["#!/usr/bin/env bash", "#SBATCH --job-name=hetopt"]
    lines += [
        f"#SBATCH --{name}={asked[name]}"
        for name in ("time", "account")
        if name in asked
    ]
    for number, share in enumerate(found):
        if number:
            lines.append("#SBATCH hetjob")
        lines.append(
            f"#SBATCH --nodes={len(share.nodes)} --ntasks-per-node=1 "
            f"--gres=gpu:{share.gpu}:{share.gpus}"
        )
        lines.append(f"#SBATCH {_size(share, asked)}")
        if share.gpu in partitions:
            lines.append(f"#SBATCH --partition={partitions[share.gpu]}")
    run = _RUN.format(
        names=" ".join(f'"{" ".join(share.nodes)}"' for share in found),
        lists=_granted("SLURM_JOB_NODELIST", len(found)),
        processors=_granted("SLURM_JOB_CPUS_PER_NODE", len(found)),
        group='--het-group="$group" ' if len(found) > 1 else "",
    )
    return {JOB: "\n".join(lines) + "\n" + run + WAIT, PLAN: plan_text(data, plan)}


def _size(share: Share, asked: dict[str, Any]) -> str:
    """What of a node a component asks for."""
    each = asked.get("cpus_per_gpu")
    words = [f"--cpus-per-task={each * share.gpus}"] if each else ["--exclusive"]
    memory = asked.get("mem_per_gpu")
    return " ".join([*words, f"--mem-per-gpu={memory}" if memory else "--mem=0"])


def _granted(name: str, components: int) -> str:
    """What Slurm tells of every component, as words of an array."""
    if components == 1:
        return f'"${name}"'
    return " ".join(f'"${name}_HET_GROUP_{number}"' for number in range(components))


def _partitions(told: str | None, types: list[str]) -> dict[str, str]:
    """The partition of each type that has one."""
    if told is None or ":" not in told:
        return dict.fromkeys(types, told) if told else {}
    pairs = dict(word.split(":") for word in told.split(","))
    for name in pairs:
        if name not in types:
            raise UnknownName("GPU type", name, types)
    return pairs
