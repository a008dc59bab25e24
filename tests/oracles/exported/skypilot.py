"""Tasks of SkyPilot: the machines that they ask for, and the plan beside them."""

import re
from typing import Any

from hetopt.catalogue import find_gpu, skypilot_gpus
from hetopt.text.parsing import parse_tree

from .machines import PLAN, Share, carried, disagreements, read

__all__ = ["read", "validate"]

LAUNCH = "launch.sh"


def validate(files: dict[str, str]) -> list[str]:
    """Where the clusters are other machines than the plan's, or forget the plan."""
    launched = re.findall(r"([a-z0-9-]+\.yaml) \"\$@\"", files[LAUNCH])
    tasks = [parse_tree(files[name], name, is_json=False) for name in launched]
    written = {name for name in files if name.endswith(".yaml")}
    data, _ = carried(files)
    types = {node.name: node.gpu for node in data.planned_cluster.nodes}
    broken = disagreements(files, [_asked(task, types) for task in tasks])
    if set(launched) != written or len(set(launched)) < len(launched):
        broken.append(f"{LAUNCH} does not launch every cluster once")
    if any(f" {PLAN} " not in task["run"] for task in tasks):
        broken.append(f"a cluster does not name {PLAN}")
    if any(len(task["envs"]["NODES"].split()) != task["num_nodes"] for task in tasks):
        broken.append("a cluster has not one name for each of its nodes")
    return broken


def _asked(task: dict[str, Any], types: dict[str, str]) -> Share:
    ((name, gpus),) = task["resources"]["accelerators"].items()
    nodes = tuple(task["envs"]["NODES"].split())
    kind = types.get(nodes[0], "")
    return Share(kind if _is(name, kind) else name, gpus, nodes)


def _is(name: str, kind: str) -> bool:
    """Whether SkyPilot gives such cards under a name; others keep the instance's."""
    card = find_gpu(kind)
    if card is None or not (card.skypilot or card.accelerator):
        return name in {kind, card and card.name}
    sold = skypilot_gpus()[name]
    alike = (sold.generation, sold.memory_gib) == (card.generation, card.memory_gib)
    return alike and name in {card.accelerator, *sold.skypilot, *sold.aliases}
