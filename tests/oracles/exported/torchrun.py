"""hetopt's own launch files: every host's ranks are those of the plan beside them."""

import json
import re

from hetopt.plans import TrainingPlan
from hetopt.text.complaints import validated

__all__ = ["read", "validate"]


def read(files: dict[str, str]) -> TrainingPlan:
    """The plan that travels."""
    tree = json.loads(files["plan.json"])["plan"]
    return validated(TrainingPlan, tree, "plan.json")


def validate(files: dict[str, str]) -> list[str]:
    """Where hosts, their GPUs or their order are others than the plan's."""
    wanted: dict[str, set[int]] = {}
    for replica in read(files).replicas():
        for gpu in replica.gpus:
            node, _, index = gpu.rpartition(":")
            wanted.setdefault(node, set()).add(int(index))
    rows = re.findall(r"^(\S+)\) rank=(\d+) gpus=(\S+) ;;$", files["train.sh"], re.M)
    told = {node: {int(i) for i in gpus.split(",")} for node, _, gpus in rows}
    broken = []
    if told != wanted:
        broken.append(f"train.sh has the GPUs {told}, the plan {wanted}")
    if [int(rank) for _, rank, _ in rows] != [*range(len(rows))]:
        broken.append("train.sh does not count its hosts from 0 on")
    order = json.loads(files["plan.json"])["instance"]["cluster"]["nodes"]
    names = [node["name"] for node in order if node["name"] in wanted]
    if [node for node, _, _ in rows] != names:
        broken.append("train.sh has hosts in another order than the cluster")
    if f"--nnodes {len(wanted)} " not in files["train.sh"]:
        broken.append("train.sh starts another number of hosts")
    hosts = re.findall(r'^ssh (\S+) "\$here (\S+)" &', files["launch.sh"], re.M)
    if sorted(hosts) != sorted((node, node) for node in wanted):
        broken.append("launch.sh does not start every host as itself once")
    head = re.search(r"MASTER_ADDR=(\S+) ", files["launch.sh"])
    if head is None or head[1] != names[0]:
        broken.append("launch.sh names another first host")
    return broken
