"""Slurm: a heterogeneous job with one component for each GPU type.

`job.sbatch` is submitted in its own folder, `ARGS='--steps 1000 --data tokens.bin'
sbatch job.sbatch`; the option `train` names another program than hetopt's executor,
which gets `plan.json NODE` and needs no ARGS. A component asks for
nodes by `--gres=gpu:TYPE:N`; nodes of one type that take part with different numbers of
GPUs are components of their own. Where Slurm grants the nodes that the plan names, each
is itself; other nodes get the names of the plan's in order
(https://slurm.schedmd.com/heterogeneous_jobs.html).

TYPE is Slurm's: what the option `gres` says (a name, or one for each type,
`A100-80GB-SXM4:a100,L40S:l40s`; `gpu` where GPUs have no type), else the node's `gres`,
which `assemble --from sinfo` writes. Where neither tells, it is the instance's name of
the type; but a name that is hetopt's for a card is hardly Slurm's, and then the nodes
are asked for by their own names, `--nodelist`, with `--gres=gpu:N`. All nodes are with
`nodes=named`. The job's first lines say which of these was assumed.

Nodes are asked for whole, with all of their processors and memory: a task of Slurm has
one processor by default, whatever its GPUs. The options `cpus_per_gpu` and
`mem_per_gpu` (as 64G) ask for a share of a node instead. `partition` is one, or one for
each type, `A100:fast,V100:old`; `time` (as 2-00:00:00) and `account` are the job's.
Components have nodes of their own, so no job has two types of GPUs of one machine.
"""

import re
from collections.abc import Iterator, Sequence
from typing import Literal

from ..catalogue import gpus
from ..errors import InstanceError, UnknownName
from ..plans import TrainingPlan
from ..schema import Instance, Node
from ..text.documents import Document
from .contract import Held
from .exporting import allocation
from .exporting.allocation import LABEL, Machines, Share, Word, shares
from .exporting.launching import WAIT, parts

HELD = Held("Slurm", "20.02", ("22.05.8",), program="sbatch")

_BY_TYPE = rf"{LABEL}|{LABEL}:{LABEL}(,{LABEL}:{LABEL})*"
_NAMES = Word(str, _BY_TYPE, "a name, or TYPE:NAME,TYPE:NAME")
_TIME = r"[0-9]+(-[0-9]+)?(:[0-9]+){0,2}"
WORDS = {
    "gres": _NAMES,
    "nodes": Word(Literal["named"], "named", "named"),
    "partition": _NAMES,
    "time": Word(str, _TIME, "a time as 2-00:00:00 or 12:00:00"),
    "account": Word(str, LABEL, "a name"),
    "cpus_per_gpu": Word(int, r"[1-9][0-9]*", "a positive whole number"),
    "mem_per_gpu": Word(str, r"[1-9][0-9]*[KMGT]?", "a size as 64G"),
}
OPTIONS = allocation.options(WORDS)
UNTYPED = "gpu"
JOB = "job.sbatch"
_RUN = """\

# On every node: TRAIN plan.json NODE, with MASTER_ADDR and MASTER_PORT; by default
# train.sh, which runs hetopt run with the words in ARGS.
set -euo pipefail
folder="${{SLURM_SUBMIT_DIR:-$PWD}}"
{train}plan="$folder/plan.json"
names=({names})
lists=({lists})
processors=({processors})
# The hosts of a component in the order of the plan's names, which may be their own.
grant() {{
  mapfile -t hosts < <(scontrol show hostnames "${{lists[$1]}}")
  local named
  read -r -a named <<< "${{names[$1]}}"
  if [ "$(printf '%s\\n' "${{hosts[@]}}" | sort)" = \\
    "$(printf '%s\\n' "${{named[@]}}" | sort)" ]; then hosts=("${{named[@]}}"); fi
}}
grant 0
export MASTER_ADDR="${{hosts[0]}}" MASTER_PORT="${{MASTER_PORT:-29500}}"
pids=()
for group in "${{!names[@]}}"; do
  grant "$group"
  # As 8(x2),6: a task gets as many as the least node has.
  each="$(sed 's/([^)]*)//g; s/,/\\n/g' <<< "${{processors[$group]}}")"
  least="$(sort -n <<< "$each" | sed 1q)"
  i=0
  for name in ${{names[$group]}}; do
    srun {group}--nodes=1 --ntasks=1 --nodelist="${{hosts[$i]}}" \\
      --cpus-per-task="$least" --kill-on-bad-exit=1 \\
      "$train" "$plan" "$name" & pids+=($!)
    i=$((i + 1))
  done
done
"""


def refusals(data: Instance, plan: TrainingPlan) -> list[str]:
    """Return the names of GPU types, ours and Slurm's, that Slurm does not take."""
    found = allocation.refusals(data, plan)
    named = {node.gres for node in data.planned_cluster.nodes if node.gres is not None}
    found += [
        f"gres {name!r} is not a valid Slurm type: correct it in cluster.nodes"
        for name in sorted(named)
        if not re.fullmatch(LABEL, name)
    ]
    return found + [
        f"{' and '.join(map(repr, names))} are of machine {machine!r}, and a job has "
        "GPUs of one type there: plan without the others"
        for machine, names in parts(data, plan).items()
        if len(names) > 1
    ]


def _ask(
    made: Machines,
    *,
    gres: str | None = None,
    nodes: str | None = None,
    partition: str | None = None,
    **asked: object,
) -> dict[str, str]:
    data, plan = made.data, made.plan
    types = [share.gpu for share in shares(data, plan)]
    named = _by_type(gres, types)
    if gres is not None and len(set(types)) > 1 and ":" not in gres:
        raise InstanceError(
            f"option gres: found one name, {gres}, for GPUs of several types, expected "
            f"one for each; write gres={','.join(f'{x}:NAME' for x in [*named])}"
        )
    found = shares(data, plan, lambda node: named.get(node.gpu) or _gres(node))
    partitions = _by_type(partition, types)
    lines = ["#!/usr/bin/env bash", *_type_notes(data, plan, named)]
    lines.append("#SBATCH --job-name=hetopt")
    lines += [
        f"#SBATCH --{name}={asked[name]}"
        for name in ("time", "account")
        if name in asked
    ]
    for number, share in enumerate(found):
        if number:
            lines.append("#SBATCH hetjob")
        asks = f"--gres=gpu:{share.gpus} --nodelist={','.join(share.nodes)}"
        if share.called is not None:
            kind = "" if share.called == UNTYPED else f"{share.called}:"
            asks = f"--gres=gpu:{kind}{share.gpus}"
        lines.append(f"#SBATCH --nodes={len(share.nodes)} --ntasks-per-node=1 {asks}")
        if nodes is not None and share.called is not None:
            machines = (data.planned_cluster.node[name] for name in share.nodes)
            names = ",".join(node.machine or node.name for node in machines)
            lines.append(f"#SBATCH --nodelist={names}")
        lines.append(f"#SBATCH {_size(share, asked)}")
        if share.gpu in partitions:
            lines.append(f"#SBATCH --partition={partitions[share.gpu]}")
    run = _RUN.format(
        train=made.program.chosen("$folder", "$folder"),
        names=" ".join(f'"{" ".join(share.nodes)}"' for share in found),
        lists=_grants("SLURM_JOB_NODELIST", len(found)),
        processors=_grants("SLURM_JOB_CPUS_PER_NODE", len(found)),
        group='--het-group="$group" ' if len(found) > 1 else "",
    )
    return {JOB: "\n".join(lines) + "\n" + run + WAIT}


export = allocation.exporter(_ask, WORDS)


def _gres(node: Node) -> str | None:
    """Return the type that Slurm is asked for without the option; None for no type."""
    return node.gres or (None if node.gpu in gpus() else node.gpu)


def _type_notes(
    data: Instance, plan: TrainingPlan, named: dict[str, str]
) -> Iterator[str]:
    """Yield a comment for each type whose name in Slurm nothing tells."""
    used = plan.gpus_by_node
    nodes = (node for node in data.planned_cluster.nodes if node.name in used)
    silent = (x for x in nodes if x.gres is None and x.gpu not in named)
    for gpu, name in {node.gpu: _gres(node) for node in silent}.items():
        done = (
            "its nodes are requested by name" if name is None else f"{name} is assumed"
        )
        yield f"# Slurm's type of {gpu} is unknown: {done} (-o gres={gpu}:TYPE)."


def _size(share: Share, asked: Document) -> str:
    each = asked.get("cpus_per_gpu")
    words = [f"--cpus-per-task={each * share.gpus}"] if each else ["--exclusive"]
    memory = asked.get("mem_per_gpu")
    return " ".join([*words, f"--mem-per-gpu={memory}" if memory else "--mem=0"])


def _grants(name: str, components: int) -> str:
    """Return Slurm's values of every component as words of an array."""
    if components == 1:
        return f'"${name}"'
    return " ".join(f'"${name}_HET_GROUP_{number}"' for number in range(components))


def _by_type(told: str | None, types: Sequence[str]) -> dict[str, str]:
    """Return what an option says of each type, `NAME` or `TYPE:NAME,TYPE:NAME`."""
    if told is None or ":" not in told:
        return dict.fromkeys(types, told) if told else {}
    pairs = dict(word.split(":") for word in told.split(","))
    for name in pairs:
        if name not in types:
            raise UnknownName("GPU type", name, list(dict.fromkeys(types)))
    return pairs
