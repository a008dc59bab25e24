"""Tasks of SkyPilot: the machines that they ask for, and the plan beside them."""

import re
from typing import Any

from hetopt.text.parsing import parse_tree

from .machines import PLAN, Share, disagreements, read

__all__ = ["read", "validate"]

LAUNCH = "launch.sh"


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
