"""One instance under other names, its nodes in another order, or with an idle GPU."""

import json
from random import Random
from typing import Any

from flat import flat

from hetopt.plans import TrainingPlan
from hetopt.schema import Instance

Tree = dict[str, Any]


def renamed(rng: Random, instance: Instance) -> tuple[Tree, dict[str, str]]:
    """The instance with all nodes and types renamed and in a random order.

    Returned with the new names of the nodes by the old ones.
    """
    tree = flat(instance, exclude_unset=True)
    cluster, costs = tree["cluster"], tree["workload"]["costs"]
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
    """The instance with a GPU more on a node, or on one of its own, on any links."""
    tree = json.loads(json.dumps(tree))
    cluster = tree["cluster"]
    nodes, inter = cluster["nodes"], cluster.setdefault("inter", {})
    if rng.random() < 0.5:
        node = rng.choice(nodes)
        node["count"] += 1
        node["intra_gbytes_per_s"] = node.get("intra_gbytes_per_s") or 50.0
        return tree
    names, rate = [node["name"] for node in nodes], inter.get("gbytes_per_s")
    nodes.append(rng.choice(nodes) | {"name": "idle", "count": 1})
    if len(names) == 1 or inter.get("pairs") or rate is None or rng.random() < 0.5:
        far = rng.choice([0.01, 1.0, 1000.0])
        pairs = [{"first": x, "second": "idle", "gbytes_per_s": far} for x in names]
        inter["pairs"] = [*inter.get("pairs", ()), *pairs]
    return tree
