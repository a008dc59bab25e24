"""SkyPilot: one YAML for each GPU type, and a script that launches them in order.

A cluster of SkyPilot is of one accelerator; its name is the instance's name of the GPU
type (`sky show-gpus`). `launch.sh` launches the first cluster, asks for its address and
gives it to the others as HEAD: the clusters must reach one another. The nodes of the
plan are given to a cluster's nodes by `SKYPILOT_NODE_RANK`.
"""

import re
from typing import Any

from ...plans import TrainingPlan
from ...schema import Instance
from ...text.parsing import parse_tree, yaml_text
from ..exporting import allocation
from ..exporting.allocation import (
    PLAN,
    Share,
    disagreements,
    plan_text,
    read_back,
    shares,
)

__all__ = ["SUPPORTS", "export", "read_back", "refusals", "validate"]

SUPPORTS = allocation.SUPPORTS
refusals = allocation.refusals
LAUNCH = "launch.sh"
_RUN = """\
names=($NODES)
export MASTER_ADDR="${HEAD:-$(echo "$SKYPILOT_NODE_IPS" | head -n 1)}"
export MASTER_PORT="${MASTER_PORT:-29500}"
"$TRAIN" plan.json "${names[$SKYPILOT_NODE_RANK]}"
"""
_HEAD = """\
#!/usr/bin/env bash
# Launch a cluster for each GPU type, named CLUSTER-TYPE-GPUS. TRAIN, a program in this
# folder, is started on every node; further arguments are passed to `sky launch`.
set -euo pipefail
cd "$(dirname "$0")"
cluster="${CLUSTER:-hetopt}"
train="${TRAIN:-./train.sh}"
"""


def export(data: Instance, plan: TrainingPlan) -> dict[str, str]:
    """`TYPE-GPUS.yaml` for each type, `launch.sh` and `plan.json`."""
    found = shares(data, plan)
    files = {f"{share.label}.yaml": _task(share) for share in found}
    lines = []
    for number, share in enumerate(found):
        head = '--env HEAD="$head" ' if number else ""
        lines.append(
            f'sky launch --yes --detach-run -c "$cluster-{share.label}" '
            f'--env TRAIN="$train" {head}{share.label}.yaml "$@"'
        )
        if not number:
            lines.append(f'head="$(sky status --ip "$cluster-{share.label}")"')
    launch = _HEAD + "\n".join(lines) + "\n"
    return {**files, LAUNCH: launch, PLAN: plan_text(data, plan)}


def _task(share: Share) -> str:
    task = {
        "name": f"hetopt-{share.label}",
        "num_nodes": len(share.nodes),
        "workdir": ".",
        "resources": {"accelerators": {share.gpu: share.gpus}},
        "envs": {
            "HEAD": "",
            "NODES": " ".join(share.nodes),
            "TRAIN": "./train.sh",
        },
        "run": _RUN,
    }
    return yaml_text(task, width=88)


def validate(files: dict[str, str]) -> list[str]:
    """Where the clusters are other machines than the plan's, or forget the plan."""
    launched = re.findall(r"([a-z0-9-]+\.yaml) \"\$@\"", files[LAUNCH])
    tasks = [parse_tree(files[name], name, is_json=False) for name in launched]
    written = {name for name in files if name.endswith(".yaml")}
    broken = disagreements(files, [_asked(task) for task in tasks])
    if set(launched) != written or len(set(launched)) < len(launched):
        broken.append(f"{LAUNCH} does not launch every cluster once")
    if any(f" {PLAN} " not in task["run"] for task in tasks):
        broken.append(f"a cluster does not name {PLAN}")
    if any(len(task["envs"]["NODES"].split()) != task["num_nodes"] for task in tasks):
        broken.append("a cluster has not one name for each of its nodes")
    return broken


def _asked(task: dict[str, Any]) -> Share:
    ((gpu, gpus),) = task["resources"]["accelerators"].items()
    return Share(gpu, gpus, tuple(task["envs"]["NODES"].split()))
