"""A queue of Kueue: quotas for the machines of the plan, and the JobSet in it."""

import yaml

from . import jobset
from .machines import carried, read

__all__ = ["read", "validate"]

QUEUE, LABEL = "queue.yaml", "kueue.x-k8s.io/queue-name"


def validate(files: dict[str, str]) -> list[str]:
    """Where the queue has other machines than the plan, or the JobSet is in none."""
    broken: list[str] = jobset.validate(files)
    *flavours, cluster, local = yaml.safe_load(files[QUEUE])["items"]
    data, plan = carried(files)
    gpus: dict[str, int] = {}
    for one in plan.replicas():
        kind = data.planned_cluster.node[one.node].gpu
        gpus[kind] = gpus.get(kind, 0) + len(one.gpus)
    (group,) = cluster["spec"]["resourceGroups"]
    quotas = {
        one["name"]: one["resources"][0]["nominalQuota"] for one in group["flavors"]
    }
    selected = {one["metadata"]["name"]: one["spec"]["nodeLabels"] for one in flavours}
    if sorted(quotas.values()) != sorted(gpus.values()) or set(quotas) != set(selected):
        broken.append("the quotas are not the GPUs of the plan")
    tree = yaml.safe_load(files[jobset.JOBSET])
    jobs = [job["template"]["spec"] for job in tree["spec"]["replicatedJobs"]]
    for job in jobs:
        if job["template"]["spec"]["nodeSelector"] not in selected.values():
            broken.append("pods select machines of no flavour")
    queue = tree["metadata"].get("labels", {}).get(LABEL)
    if {queue, local["spec"]["clusterQueue"]} != {local["metadata"]["name"]}:
        broken.append("the JobSet is in another queue")
    return broken
