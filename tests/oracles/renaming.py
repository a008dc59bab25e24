"""One instance under other names, its nodes in another order, or with an idle GPU."""

import json
from random import Random
from typing import Any

from hetopt.plans import TrainingPlan
from hetopt.schema import Instance

Tree = dict[str, Any]


def renamed(rng: Random, instance: Instance) -> tuple[Tree, dict[str, str]]:
    """The instance with all nodes and types renamed and in a random order.

    Returned with the new names of the nodes by the old ones.
    """
    tree = instance.model_dump(mode="json", exclude_unset=True)
    cluster, costs = tree["cluster"], tree["workload"].get("costs", {})
    nodes = _names(rng, [node["name"] for node in cluster["nodes"]])
    types = _names(rng, [*cluster["gpus"]])
    for node in cluster["nodes"]:
        node |= {"name": nodes[node["name"]], "gpu": types[node["gpu"]]}
    inter = cluster.get("inter", {})
    inter["pairs"] = [
        pair | {end: nodes[pair[end]] for end in ("first", "second")}
        for pair in inter.get("pairs", ())
    ]
    for row in costs.get("profile") or ():
        row["gpu"] = types[row["gpu"]]
    gpus = [(types[name], gpu) for name, gpu in cluster["gpus"].items()]
    rng.shuffle(gpus)
    rng.shuffle(cluster["nodes"])
    return tree | {"cluster": cluster | {"gpus": dict(gpus), "inter": inter}}, nodes


def _names(rng: Random, old: list[str]) -> dict[str, str]:
    """New names, whose alphabet is another, and whose numbers have no zeros before."""
    numbers = rng.sample(range(1, 200), len(old))
    return {
        name: f"{rng.choice('az')}{n}" for name, n in zip(old, numbers, strict=True)
    }


def plan_under(plan: TrainingPlan, nodes: dict[str, str]) -> TrainingPlan:
    """The plan on the same GPUs under the new names of their nodes."""
    tree = plan.model_dump(mode="json")
    for pipeline in tree["pipelines"]:
        for stage in pipeline["stages"]:
            for replica in stage["replicas"]:
                pairs = (gpu.rpartition(":") for gpu in replica["gpus"])
                replica["gpus"] = [f"{nodes[node]}:{i}" for node, _, i in pairs]
    return TrainingPlan.model_validate_json(json.dumps(tree))


def with_an_idle_gpu(rng: Random, tree: Tree) -> Tree:
    """The instance with one more GPU on a node of several, or on a node of its own."""
    tree = json.loads(json.dumps(tree))
    nodes = tree["cluster"]["nodes"]
    several = [node for node in nodes if node["count"] > 1]
    if several and rng.random() < 0.6:
        rng.choice(several)["count"] += 1
    elif tree["cluster"].get("inter", {}).get("gbytes_per_s"):
        nodes.append(rng.choice(nodes) | {"name": "idle", "count": 1})
    return tree
